"""Workers that plan the same program agree on what they plan for: then equal programs get equal plans, and no worker waits for one
that computes more again."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Protocol, Tuple, Union

from transpiler import arguments
from transpiler.analysis.cost import CostModel
from transpiler.errors import InvalidArgumentError
from transpiler.planning import PlanOptions
from transpiler.request import Request

# What of the options decides what a plan may do; the rest says how fast the machine is, and what it is asked.
_OPTIONS = ('level', 'skip_grads', 'recompute', 'max_overhead', 'parallel', 'segments')
_FAILED, _SO = 'failed', 'so'


class OtherStoppedError(InvalidArgumentError):
    """Another worker has told all that it goes no further."""


class Round(Protocol):
    """Each worker tells all others something; see `backends.workers`."""

    rank: int
    count: int

    def tell(self, text: str) -> None:
        ...

    def leave(self, text: str) -> None:
        ...

    def heard(self) -> List[str]:
        ...


def agreed(request: Request,
           options: PlanOptions,
           cost: Optional[CostModel],
           others: Round,
           runs: int = 0) -> Tuple[Request, PlanOptions]:
    """What all workers plan with: hints, options and the speed of the machine as worker 0 has them, and the smallest budget.

    Names of variables and the runtime stay each worker's own: they are those of its program, and of its process.

    Args:
        cost: what has been measured of this machine.
        others: a round that all of them take part in.
        runs: what `verify_runs` asks for.

    Raises:
        OtherStoppedError: another worker was called with something wrong.
        InvalidArgumentError: some run more than others, which would wait; all raise that.
    """
    budget = arguments.byte_count('budget', request.budget)
    own = {
        'batch_size': _pairs(arguments.row_hints(request.batch_size)),
        'trip_count': _pairs(request.trip_count),
        'cost': asdict(cost or CostModel()),
        'budget': budget,
        'runs': runs,
        'options': {
            name: getattr(options, name) for name in _OPTIONS
        },
    }
    others.tell(json.dumps(own))
    said = _said(others)
    first = said[0]
    if len({each['runs'] for each in said}) > 1:
        raise OtherStoppedError('shared=True: verify_runs is ' + ', '.join(
            f'{each["runs"]} on worker {rank}' for rank, each in enumerate(said)) +
                                ': they would wait for each other; give the same number on all')
    budgets = [each['budget'] for each in said if each['budget'] is not None]
    shared = replace(request,
                     batch_size=_hints(first['batch_size']),
                     trip_count=_hints(first['trip_count']),
                     budget=min(budgets, default=None),
                     cost=CostModel(**first['cost']),
                     workers=others.count)
    return shared, replace(options, **first['options'])


def stopped(error: Exception, others: Round, stays: bool = False) -> None:
    """Tells the other workers not to wait for this one. If it `stays`, not before all have heard all: the store ends with worker 0, which takes
    who has left for one that has heard."""
    said = json.dumps({_FAILED: str(error)})
    if stays:
        others.tell(said)
        others.heard()
    else:
        others.leave(said)


@contextlib.contextmanager
def telling(others: Union[None, Round, Rounds], stays: bool = False) -> Iterator[None]:
    """The other workers would wait for one that stops in here.

    Args:
        others: a round, or those of which the current one is told.
        stays: until all have heard of it; worker 0, with whose process the store ends, could be gone before.
    """
    try:
        yield
    except OtherStoppedError:
        raise  # all have heard of that one
    except Exception as error:
        current = others.current if isinstance(others, Rounds) else others
        if current is not None:
            stopped(error, current, stays)
        raise


class Rounds:
    """Of workers that go on together: one round after the other."""

    def __init__(self, begin: Callable[[], Round]) -> None:
        self._begin = begin
        self._current: Optional[Round] = begin()

    @property
    def current(self) -> Round:
        """That in which this worker has told nothing; after the last, that one."""
        if self._current is None:
            self._current = self._begin()
        return self._current

    def any_of(self, here: bool, is_last: bool = False) -> bool:
        """Whether that is so on any worker; waits for all. Raises OtherStoppedError where one has stopped."""
        current = self.current
        current.tell(json.dumps({_SO: here}))
        said = _said(current)
        if not is_last:
            self._current = None
        return any(each[_SO] for each in said)


def _said(others: Round) -> List[Dict[str, Any]]:
    """What all have told; raises OtherStoppedError where one has stopped."""
    said: List[Dict[str, Any]] = [json.loads(text) for text in others.heard()]
    for rank, each in enumerate(said):
        if _FAILED in each:
            raise OtherStoppedError(
                f'shared=True: worker {rank} of {others.count} stopped: {each[_FAILED]}')
    return said


def _pairs(hints: Any) -> Any:
    """In JSON, keys would become texts."""
    return [list(pair) for pair in hints.items()] if isinstance(hints, Mapping) else hints


def _hints(said: Any) -> Any:
    return {key: value for key, value in said} if isinstance(said, list) else said
