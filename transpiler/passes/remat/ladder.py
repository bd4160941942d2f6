"""A ladder of plans, from the peak that the program has to the least that is reached: each rung costs more time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import FrozenSet, Iterator, List, Tuple

from transpiler.analysis.cost import is_heavy
from transpiler.ir import Graph
from transpiler.passes.remat.evict import Eviction, evict
from transpiler.passes.remat.problem import RematProblem
from transpiler.passes.remat.restore import restore
from transpiler.passes.remat.steps import RematPlan, profile, untouched

# Limits are tried from the peak downwards, each so much of the one before, as many as the work allows.
_STEP = 0.97
_LEAST = 0.02
_DISTANCE_POWERS = (0.0, 1.0)
_WORK = 1_500_000  # ops simulated; a second takes about 300,000
_MOST_FAILURES = 8  # limits in a row that bring no lower peak


@dataclass(frozen=True)
class Rung:
    """A plan with its peak in bytes and its extra time in seconds, and the problem that it is a plan for."""

    peak: int
    seconds: float
    plan: RematPlan
    problem: RematProblem


def ladder(graph: Graph, problem: RematProblem) -> List[Rung]:
    """Rungs by falling peak and rising time, the untouched program first.

    It depends on the program alone, not on any budget: so a larger budget never gets a slower plan from it, and a smaller
    one never a higher peak.
    """
    start = untouched(problem)
    found = [Rung(profile(problem, start).peak, 0.0, start, problem)]
    for variant in _variants(graph, problem):
        for power in _DISTANCE_POWERS:
            found.extend(_descend(variant, power, found[0].peak, _step(problem)))
    return [_restored(rung) for rung in front(found)]


def front(rungs: List[Rung]) -> List[Rung]:
    """Those that no other beats in both peak and time, by falling peak."""
    best: List[Rung] = []
    for rung in sorted(rungs, key=lambda r: (r.seconds, r.peak)):
        if not best or rung.peak < best[-1].peak:
            best.append(rung)
    return best


def _step(problem: RematProblem) -> float:
    """A finer ladder for smaller programs."""
    rungs = max(4, _WORK // (4 * len(problem)))
    return min(_STEP, max(_LEAST**(1 / rungs), 0.5))


def _descend(problem: RematProblem, power: float, peak: int, step: float) -> Iterator[Rung]:
    limit, least, failures = float(peak), peak, 0
    while limit > _LEAST * peak and failures < _MOST_FAILURES:
        limit *= step
        plan = evict(problem, Eviction(limit, distance_power=power))
        rung = Rung(profile(problem, plan).peak, plan.seconds, plan, problem)
        failures = 0 if rung.peak < least else failures + 1
        least = min(least, rung.peak)
        yield rung


def _variants(graph: Graph, problem: RematProblem) -> Iterator[RematProblem]:
    """All that may be cloned; and, if that makes a difference, products kept."""
    yield problem
    heavy = frozenset(at for at, op in enumerate(problem.ops) if is_heavy(graph.ops[op]))
    if any(problem.results[at] for at in heavy):
        yield _without(problem, heavy)


def _without(problem: RematProblem, ops: FrozenSet[int]) -> RematProblem:
    """The problem if `ops` may not be cloned."""
    return replace(problem,
                   producer=[-1 if op in ops else op for op in problem.producer],
                   results=[() if at in ops else cells for at, cells in enumerate(problem.results)])


def _restored(rung: Rung) -> Rung:
    plan = restore(rung.problem, rung.plan, rung.peak)
    return replace(rung, plan=plan, seconds=plan.seconds)


def cheapest_within(rungs: List[Rung], peak: int) -> Tuple[Rung, ...]:
    """The cheapest rung whose peak is at most `peak` bytes, if any."""
    return tuple(sorted((r for r in rungs if r.peak <= peak), key=lambda r: (r.seconds, r.peak)))[:1]


def lowest_within(rungs: List[Rung], seconds: float) -> Rung:
    """The rung of the lowest peak that costs at most `seconds`; the untouched program is one."""
    return min((r for r in rungs if r.seconds <= seconds), key=lambda r: (r.peak, r.seconds))
