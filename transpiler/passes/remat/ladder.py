"""A ladder of plans, from the peak that the program has to the least that is reached: each rung costs more time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import FrozenSet, Iterator, List, Optional, Tuple

from transpiler.analysis.cost import is_heavy
from transpiler.ir import Graph
from transpiler.passes.remat.evict import Eviction, dropped_at, evict
from transpiler.passes.remat.exact_remat import cheapest, is_small
from transpiler.passes.remat.holding import by_stages
from transpiler.passes.remat.joined import holding_joined, released
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.restore import restore
from transpiler.passes.remat.steps import (RematPlan, least_levels, least_peak, profile, untouched)
from transpiler.passes.remat.turns import Turns

# Limits are tried from the peak down to this share of it, in equal ratios: as many as the work allows.
_LEAST = 0.04
_WORK = 80_000  # ops simulated; a second takes about 50,000
_FEWEST, _MOST = 6, 160  # limits
_STAGED = 6_000  # ops of plans by dynamic programming
DISTANCE_POWERS = (1.0, 0.0)
# A bisection of the limit, and how much too long a plan may take before what it need not compute is taken out.
_HALVINGS = 6
BEFORE_RESTORING = 1.5
# Of two bisections the better one is taken where both together take no longer than half a second.
_OPS_OF_TWO = 2_000
# Step by step, until one is too dear: most programs have no lower peak of that kind, and find out in one simulation. Of longer ones the
# steps would take a share of planning that is not small.
_NEXT_LIMIT, _MOST_LOWER, _OPS_OF_LOWER = 0.98, 8, 1_000


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
    limits = min(_MOST, max(_FEWEST, _WORK // max(1, len(problem))))
    series = [(v, power) for v in _variants(graph, problem) for power in DISTANCE_POWERS]
    # A large program gets one series: several coarse ones are no better.
    series = series[:max(1, limits // _FEWEST)]
    for (variant, simulated), power in series:
        turns = Turns(simulated, power)
        found.extend(_descend(variant, turns, found[0].peak, limits // len(series)))
    found.extend(_staged(problem, found[0].peak, min(rung.peak for rung in found)))
    return [_restored(rung.problem, rung.plan) for rung in front(found)]


def _staged(problem: RematProblem, peak: int, lowest: int) -> Iterator[Rung]:
    """Rungs by dynamic programming, for chains; none below `lowest`, where the last few bytes take as long as all the others:
    without a budget they would be paid for, too."""
    for plan in by_stages(problem, peak, _STAGED // max(1, len(problem)), lowest):
        rung = Rung(profile(problem, plan).peak, plan.seconds, plan, problem)
        if rung.peak >= lowest:
            yield rung


def affordable(problem: RematProblem, seconds: float) -> List[Rung]:
    """The untouched program, and the plan of the lowest peak that bisections find at no more than `seconds`.

    A ladder has that plan or a slightly better one, and takes many times as long to make.
    """
    start = untouched(problem)
    found = [Rung(profile(problem, start).peak, 0.0, start, problem)]
    powers = DISTANCE_POWERS if len(problem) <= _OPS_OF_TWO else DISTANCE_POWERS[:1]
    searches = [_Search(problem, Turns(problem, power), seconds) for power in powers]
    found.extend(search.lowest(found[0]) for search in searches)
    held = holding_joined(problem)
    if held is not None:
        for power in powers:
            lowest = min(found, key=lambda rung: rung.peak)
            found.append(_Search(problem, Turns(held, power), seconds).lowest(lowest))
    return [found[0], *(rung for rung in front(found) if rung is not found[0])]


def chosen_together(rung: Rung, seconds: float) -> Rung:
    """`rung`, or one of a lower peak at no more than `seconds`: what goes is chosen all at once, for the op that needs most whatever
    goes, and not at each op that does not fit, from what there is by then."""
    problem = rung.problem
    if not rung.plan.clones or len(problem) > _OPS_OF_LOWER:
        return rung
    at = problem.boundary + int(least_levels(problem)[problem.boundary:].argmax())
    search = _Search(problem, Turns(problem, DISTANCE_POWERS[0]), seconds, at)
    for _ in range(_MOST_LOWER):
        lower = search.below(rung, rung.peak * _NEXT_LIMIT)
        if lower is None:
            break
        rung = lower
    return rung


@dataclass
class _Search:
    """Plans of at most so many seconds by simulations of `turns`; `at` is where what goes is chosen, if that is one op."""

    problem: RematProblem
    turns: Turns
    seconds: float
    at: Optional[int] = None

    def lowest(self, start: Rung) -> Rung:
        """The plan of the lowest peak that a bisection of the limit finds; `start` if none."""
        best, high = start, float(start.peak)
        low = max(_LEAST * high, least_peak(self.problem))
        for _ in range(_HALVINGS if self.seconds > 0 else 0):
            limit = math.sqrt(max(1.0, low) * high)
            rung = self.below(best, limit)
            if rung is None:
                low = limit
            else:
                best, high = rung, min(limit, float(rung.peak))
        return best

    def below(self, best: Rung, limit: float) -> Optional[Rung]:
        """What a simulation comes to, if it has a lower peak than `best`."""
        how = Eviction(limit,
                       best.peak,
                       self.seconds * BEFORE_RESTORING,
                       self._dropped(limit),
                       distance_power=self.turns.power)
        plan = _simulated(self.problem, how, self.turns)
        rung = None if plan is None else _restored(self.problem, plan)
        return rung if rung and rung.seconds <= self.seconds and rung.peak < best.peak else None

    def _dropped(self, limit: float) -> FrozenSet[int]:
        if self.at is None:
            return frozenset()
        return dropped_at(self.problem, self.at, limit, self.turns)


def proved(problem: RematProblem, peak: int) -> Optional[Rung]:
    """The cheapest plan there is for `peak`; None if the program is not a small one or there is no proof in time."""
    plan = cheapest(problem, peak) if is_small(problem) else None
    return None if plan is None else Rung(profile(problem, plan).peak, plan.seconds, plan, problem)


def front(rungs: List[Rung]) -> List[Rung]:
    """Those that no other beats in both peak and time, by falling peak."""
    best: List[Rung] = []
    for rung in sorted(rungs, key=lambda r: (r.seconds, r.peak)):
        if not best or rung.peak < best[-1].peak:
            best.append(rung)
    return best


def _descend(problem: RematProblem, turns: Turns, peak: int, limits: int) -> Iterator[Rung]:
    """Rungs for falling limits; stops where several in a row bring no lower peak."""
    lowest = max(_LEAST * peak, least_peak(problem))
    ratio = min(1.0, lowest / max(1, peak))**(1 / limits)
    limit, least, failures = float(peak), peak, 0
    for _ in range(limits):
        limit = min(limit, least) * ratio
        how = Eviction(limit, least, distance_power=turns.power)
        plan = _simulated(problem, how, turns)
        failures += 1
        if plan is not None:
            rung = Rung(profile(problem, plan).peak, plan.seconds, plan, problem)
            failures = 0 if rung.peak < least else failures
            least = min(least, rung.peak)
            yield rung
        if failures > 1 + limits // 10:
            return


def _simulated(problem: RematProblem, how: Eviction, turns: Turns) -> Optional[RematPlan]:
    """What a simulation comes to, which may be one of what holds more."""
    plan = evict(turns.problem, how, turns)
    return plan if plan is None or turns.problem is problem else released(problem, plan)


def _variants(graph: Graph, problem: RematProblem) -> Iterator[Tuple[RematProblem, RematProblem]]:
    """(problem of the plans, problem that is simulated): all that may be cloned; and, if that makes a difference, products kept, and what
    values are joined of held."""
    yield problem, problem
    heavy = frozenset(at for at, op in enumerate(problem.ops) if is_heavy(graph.ops[op]))
    if any(problem.results[at] for at in heavy):
        yield (_without(problem, heavy),) * 2
    held = holding_joined(problem)
    if held is not None:
        yield problem, held


def _without(problem: RematProblem, ops: FrozenSet[int]) -> RematProblem:
    """The problem if `ops` may not be cloned."""
    return replace(problem,
                   producer=[-1 if op in ops else op for op in problem.producer],
                   results=[() if at in ops else cells for at, cells in enumerate(problem.results)])


def _restored(problem: RematProblem, plan: RematPlan) -> Rung:
    """`plan` without what it need not compute, at the peak that it has."""
    seen = profile(problem, plan)
    better = restore(problem, plan, seen)
    return Rung(seen.peak, better.seconds, better, problem)
