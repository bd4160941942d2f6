"""What a caller wants of a saved program, what is made of it, and whether that keeps to the budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Optional

from transpiler.errors import InvalidArgumentError, MemoryBudgetError
from transpiler.planning import Plan
from transpiler.report import MemoryReport
from transpiler.report.data import human
from transpiler.request import Request
from transpiler.serving.writing import Contents


@dataclass(frozen=True)
class Serving:
    """How the predictor will be used. `release_inputs`: they are set before every run, so none needs to be kept.

    `in_parts`: operators may run once for each part of the batch, where this machine gives the same bytes for it.
    """

    onednn: bool = True
    release_inputs: bool = False
    in_parts: bool = False


@dataclass(frozen=True)
class Optimized:
    """A new program, the parameter files that it needs in place of the old ones, and the story."""

    serialized: bytes
    plan: Plan
    dims: Dict[str, int]
    report: MemoryReport
    replaced: Dict[str, Contents] = field(default_factory=dict)


def check_in_parts(served: bool, request: Request) -> None:
    """Raises InvalidArgumentError unless a predictor is planned for, and the batch that is split is known."""
    if not served:
        raise InvalidArgumentError('--in-parts is for programs that a predictor loads; this one is '
                                   'planned for the executor')
    if request.batch_size is None:
        raise InvalidArgumentError('--in-parts splits the batch, so it has to know how large that '
                                   'mostly is: give --batch-size')


def check_budget(report: MemoryReport, budget: Optional[int]) -> None:
    """Raises MemoryBudgetError if parameters and what a run may need together are more than `budget` bytes."""
    needed = report.resting_bytes + report.sure_bytes
    if budget is not None and needed > budget:
        raise MemoryBudgetError(
            f'no plan fits into {human(budget)}: the best needs {human(needed)} '
            f'({human(report.resting_bytes)} of it parameters and state)')
