"""The largest batch that our planner promises to train in so many bytes, by bisection; nothing that large is run."""
from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Iterable, Iterator, Mapping

from benchmarks.references.nets import NETS
from transpiler.report import MemoryReport

# What Checkmate's paper reached on a V100 of 16 GB, at most one forward part more (figure 5): not run here.
GOALS: Mapping[str, int] = {"vgg19": 289, "mobilenet": 1105, "unet": 57}
BUDGET = 16 * 10**9


@dataclass(frozen=True)
class Largest:
    """What was found for one net. `untouched` and `batch` are rows that fit as the program is, and as it is planned; bytes are with
    resting memory, `extra` is a share of a step and `forward` that of one forward part."""
    name: str
    budget: int
    untouched: int
    batch: int
    promised_bytes: int
    extra: float
    forward: float
    plans: int
    cpu_seconds: float


@dataclass(frozen=True)
class _Fit:
    bytes: int
    extra: float
    fits: bool


def _tried(name: str, batch: int, budget: int) -> _Fit:
    """The cheapest plan for `batch` rows that keeps to `budget`."""
    from transpiler import MemoryBudgetError, memory_optimize
    case = NETS[name].case(batch)
    try:
        report = memory_optimize(case.main,
                                 fetch_list=list(case.fetch),
                                 batch_size=batch,
                                 recompute="max",
                                 budget=budget)
    except MemoryBudgetError as error:
        return _Fit(error.best_bytes + error.held_bytes, 0.0, False)
    return _Fit(report.sure_bytes + report.resting_bytes, _extra(report), True)


def _forward_share(name: str) -> float:
    """The forward part's share of a step."""
    from benchmarks.references.compared import choice
    fitter, step = choice(NETS[name].case())
    problem = fitter.choice[0].problem
    return sum(problem.seconds[:problem.boundary]) / step


def largest(name: str, budget: int = BUDGET) -> Largest:
    """Bisects the batch, and for the figure of the program as it is, takes that its bytes grow evenly with the rows."""
    started = time.process_time()
    forward = _forward_share(name)
    batch, best, plans = GOALS.get(name,
                                   NETS[name].batch_size), None, 0  # type: int, Optional[_Fit], int
    low, high = 0, 0
    while not high or high - low > max(1, low // 100):
        found = _tried(name, batch, budget)
        plans += 1
        if found.fits and found.extra <= forward:
            low, best = batch, found
        else:
            high = batch
        batch = (low + high) // 2 if high else 2 * low
    assert best is not None
    return Largest(name, budget, _untouched(name, budget), low, best.bytes, best.extra, forward,
                   plans,
                   time.process_time() - started)


def _untouched(name: str, budget: int) -> int:
    """Rows of the program as it is."""
    from transpiler import memory_optimize
    needed = []
    for batch in (8, 16):
        case = NETS[name].case(batch)
        report = memory_optimize(case.main,
                                 fetch_list=list(case.fetch),
                                 batch_size=batch,
                                 recompute=False)
        needed.append(report.peak_bytes_before + report.resting_bytes)
    row = (needed[1] - needed[0]) / 8
    return int((budget - needed[0] + 8 * row) // row)


def confirmed(name: str, batch: int, budget: int) -> str:
    """Plans so many rows for `budget` bytes, runs a step as it is and as planned, in fresh processes, and says what both needed."""
    import paddle

    from transpiler import memory_optimize
    case = NETS[name].case(batch)
    with paddle.static.program_guard(case.main, case.startup):
        report = memory_optimize(case.main,
                                 fetch_list=list(case.fetch),
                                 batch_size=batch,
                                 recompute="max",
                                 budget=budget,
                                 verify_runs=1,
                                 verify_feed=case.feed(0))
    measured = report.measured
    assert measured is not None
    slower = measured.optimized.cpu_seconds / measured.untouched.cpu_seconds - 1
    return (
        f"{name}, {batch} rows, {budget} bytes: predicted {report.peak_bytes_after} above resting, measured "
        f"{measured.optimized.first_peak_bytes}, untouched {measured.untouched.first_peak_bytes}; "
        f"extra predicted {_extra(report):+.1%}, by CPU seconds {slower:+.1%}; bytes equal: {measured.equal}"
    )


def _extra(report: MemoryReport) -> float:
    again = report.recompute
    return again.extra_seconds / again.step_seconds if again else 0.0


def lines(found: Iterable[Largest]) -> Iterator[str]:
    """A table for a document."""
    columns = ("net", "as it is", "planned", "Checkmate's paper", "promised, bytes", "extra",
               "one forward part", "plans", "CPU s a plan")
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for each in found:
        yield (f"| {each.name} | {each.untouched} | {each.batch} | {GOALS.get(each.name, '')} | "
               f"{each.promised_bytes} | +{each.extra:.1%} | {each.forward:.1%} | {each.plans} | "
               f"{each.cpu_seconds / each.plans:.1f} |")
