"""Workers that plan the same program agree on what they plan for: then equal programs get equal plans, and no worker waits for one
that computes more again."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any, Dict, List, Mapping, Optional, Protocol, Tuple

from transpiler import arguments
from transpiler.analysis.cost import CostModel
from transpiler.errors import InvalidArgumentError, TranspilerError
from transpiler.planning import PlanOptions
from transpiler.request import Request

# What of the options decides what a plan may do; the rest says how fast the machine is, and what it is asked.
_OPTIONS = ('level', 'skip_grads', 'recompute', 'max_overhead', 'parallel', 'segments')
_FAILED = 'failed'


class Round(Protocol):
    """Each worker tells all others something; see `backends.workers`."""

    rank: int
    count: int

    def tell(self, text: str) -> None:
        ...

    def heard(self) -> List[str]:
        ...


def agreed(request: Request, options: PlanOptions, cost: Optional[CostModel],
           others: Round) -> Tuple[Request, PlanOptions]:
    """What all workers plan with: hints, options and the speed of the machine as worker 0 has them, and the smallest budget.

    Names of variables and the runtime stay each worker's own: they are those of its program, and of its process.

    Args:
        cost: what has been measured of this machine.
        others: a round that all of them take part in.

    Raises:
        InvalidArgumentError: another worker was called with something wrong.
    """
    budget = arguments.byte_count('budget', request.budget)
    own = {
        'batch_size': _pairs(arguments.row_hints('batch_size', request.batch_size)),
        'trip_count': _pairs(request.trip_count),
        'cost': asdict(cost or CostModel()),
        'budget': budget,
        'options': {
            name: getattr(options, name) for name in _OPTIONS
        },
    }
    others.tell(json.dumps(own))
    said: List[Dict[str, Any]] = [json.loads(text) for text in others.heard()]
    for rank, each in enumerate(said):
        if _FAILED in each:
            raise InvalidArgumentError(
                f'shared=True: worker {rank} of {others.count} stopped: {each[_FAILED]}')
    first = said[0]
    budgets = [each['budget'] for each in said if each['budget'] is not None]
    shared = replace(request,
                     batch_size=_hints(first['batch_size']),
                     trip_count=_hints(first['trip_count']),
                     budget=min(budgets, default=None),
                     cost=CostModel(**first['cost']),
                     workers=others.count)
    return shared, replace(options, **first['options'])


def stopped(error: TranspilerError, others: Round) -> None:
    """Tells the other workers not to wait for this one."""
    others.tell(json.dumps({_FAILED: str(error)}))


def _pairs(hints: Any) -> Any:
    """In JSON, keys would become texts."""
    return [list(pair) for pair in hints.items()] if isinstance(hints, Mapping) else hints


def _hints(said: Any) -> Any:
    return {key: value for key, value in said} if isinstance(said, list) else said
