"""Which values of the main block are computed again: the plan that fits a budget, or an overhead.

One ladder of plans is made for each way that the other passes leave the program in, from the program alone. A budget only
picks from it: so more budget never gives a slower plan, and less never a higher peak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from transpiler.analysis.kept import boundary_of
from transpiler.analysis.timeline import Timeline
from transpiler.passes.context import PassContext
from transpiler.passes.remat.between import keeping_less
from transpiler.passes.remat.bound import bound, least_seconds
from transpiler.passes.remat.improve import Allowance, improved
from transpiler.passes.remat.ladder import (DISTANCE_POWERS, Rung, affordable, chosen_together,
                                            front, ladder, proved)
from transpiler.passes.remat.remat_problem import RematProblem, remat_problem
from transpiler.passes.remat.rewrite import apply_plan
from transpiler.passes.remat.stages import is_chain
from transpiler.passes.remat.steps import profile
from transpiler.planning.plans import Plan, Recomputed

# A smaller gain is not worth clones.
_WORTH_IT = 0.99
_MOST_PROOFS = 8
# Local search starts from the candidate that is chosen and those of so many lower peaks together, with so many plans for each (for
# chains, which dynamic programming has made, fewer), and no more ops simulated than these.
_STARTS, _PLANS_EACH, _PLANS_OF_CHAINS, _SEARCH_OPS = 2, 24, 8, 40_000
# Of the proved bound: who is as near as that is not searched from.
_NEAR = 1.05
_MOST_REORDERED = 6


@dataclass(frozen=True)
class Candidate:
    """A plan in the choice: a rung, on what the other passes have left."""

    base: Plan
    problem: RematProblem  # of the base, with all that may be cloned
    rung: Rung

    @property
    def peak(self) -> int:
        return self.rung.peak

    @property
    def seconds(self) -> float:
        before = self.base.recomputed.seconds if self.base.recomputed is not None else 0.0
        return self.base.extra_seconds + before + self.rung.seconds


class Fitter:
    """The plans in the choice, for some ways to run the other passes.

    Args:
        bases: plans whose values all have memories of their own; ladders are built on each.
        finished: the best plan without recomputing in the main block.
        context: what the passes are told.
        seconds: extra time that a plan may take, loops' included; what takes longer is not looked for.
        exact: prove small programs' plans the cheapest, which takes seconds.
        reorder: what makes the plan of another order, if that needs less; clones move there, too, where no gradients follow.
    """

    def __init__(self,
                 bases: Sequence[Plan],
                 finished: Plan,
                 context: PassContext,
                 seconds: float = math.inf,
                 exact: bool = False,
                 reorder: Optional[Callable[[Plan], Plan]] = None) -> None:
        self._finished = finished
        self._context = context
        self._candidates: List[Candidate] = []
        self._untouched: List[Candidate] = []
        for base in different(bases):
            if _can_gain(base, context, seconds):
                problem = remat_problem(base.graph, context, base.after)
                rungs = (ladder(base.graph, problem) if math.isinf(seconds) else affordable(
                    problem, seconds - base.extra_seconds))
                self._candidates.extend(Candidate(base, problem, rung) for rung in rungs[1:])
                self._untouched.append(Candidate(base, problem, rungs[0]))
        self._candidates = front(self._candidates)
        if exact:
            self._candidates = front(self._candidates + _proofs(self._candidates))
        if reorder is not None:
            self._candidates = front([*self._candidates, *self._reordered(reorder)])

    def _reordered(self, reorder: Callable[[Plan], Plan]) -> Iterator[Candidate]:
        """What the lowest candidates lead to if all that they run is put into another order, and more of it is computed again."""
        for each in self._candidates[-_MOST_REORDERED:]:
            plan = self._apply(each)
            base = reorder(plan)
            if base.graph is not plan.graph:
                problem = remat_problem(base.graph, self._context, base.after)
                yield from (Candidate(base, problem, rung) for rung in ladder(base.graph, problem))

    @property
    def choice(self) -> Tuple[Candidate, ...]:
        """All plans that are picked from, by falling peak and rising time; those that compute nothing again, one of each base, are the
        first."""
        return (*self._untouched, *self._candidates)

    def cheapest(self, peak: int) -> Optional[Candidate]:
        """The plan that a budget of so many bytes gets, if all that it needs is its peak."""
        fitting = [c for c in self.choice if c.peak <= peak]
        chosen = min(fitting, key=lambda c: (c.seconds, c.peak), default=None)
        if chosen is None or not chosen.rung.plan.clones:
            return chosen
        return next(iter(self._searched(chosen)), chosen)

    def lowest(self) -> Plan:
        """The plan of the lowest peak, whatever its time."""
        lowest = min(self._candidates, key=lambda c: c.peak, default=None)
        if lowest is None or lowest.peak >= self._finished.needed_bytes:
            return self._finished
        return self._apply(lowest)

    def within_overhead(self, seconds: float) -> Plan:
        """The lowest peak that costs at most `seconds`, if that is worth it."""
        limit = self._finished.needed_bytes * _WORTH_IT
        fitting = [c for c in self._candidates if c.seconds <= seconds and c.peak < limit]
        if fitting:
            best = min(fitting, key=lambda c: (c.peak, c.seconds))
            if not math.isinf(seconds):
                rung = chosen_together(best.rung, seconds - best.seconds + best.rung.seconds)
                best = replace(best, rung=rung)
            highest = best.peak if math.isinf(seconds) else limit
            return self._apply(self._keeping_less(best, seconds, highest))
        for start in self._untouched:
            kept = self._keeping_less(start, seconds, start.peak)
            if kept is not start and kept.peak <= self._finished.needed_bytes:
                return self._apply(kept)
        return self._finished

    def _searched(self, chosen: Candidate) -> List[Candidate]:
        """What local search makes of `chosen`, and of the candidates of the next lower peaks, if it takes less time than `chosen`: the
        cheapest first.

        None is taken below the time that a candidate has so many steps above its own start: who chooses that one gets no slower
        plan from what is more budget.
        """
        order = sorted(self._candidates, key=lambda c: (c.seconds, c.peak))
        at = next(at for at, each in enumerate(order) if each is chosen)
        found = [
            _improved(order[number], order[number - _STARTS].seconds if number >= _STARTS else 0.0)
            for number in range(at, min(at + _STARTS, len(order)))
        ]
        return sorted((each for each in found if each.seconds < chosen.seconds),
                      key=lambda c: (c.seconds, c.peak))

    def _keeping_less(self, chosen: Candidate, seconds: float, highest: float) -> Candidate:
        """The same, but where the program runs in two parts the time that is left is for keeping less between them, at no more than
        `highest` bytes."""
        graph = chosen.base.graph
        between = boundary_of(graph)
        if between is None:
            return chosen
        at = chosen.problem.ops.index(between.id)
        rung = keeping_less(chosen.rung, at, seconds - chosen.base.extra_seconds, highest)
        return chosen if rung is chosen.rung else replace(chosen, rung=rung)

    def within_peak(self, peak: int, judge: Callable[[Plan], Plan]) -> Optional[Plan]:
        """The cheapest plan that needs at most `peak` bytes above resting, as `judge` makes it.

        A candidate's peak is an estimate: what its clones leave behind for a moment, and what the runtime frees late, can be
        missing. Whoever takes more time needs less, so the first that fits is found by halving.
        """
        finished = self._finished
        fits = judge(finished).budget_bytes <= peak
        candidates = sorted(
            (c for c in self._candidates
             if c.peak <= peak and not (fits and finished.extra_seconds <= c.seconds)),
            key=lambda c: (c.seconds, c.peak))
        found, low, high = None, 0, len(candidates)
        while low < high:
            middle = (low + high) // 2
            plan = self._apply(candidates[middle])
            if judge(plan).budget_bytes <= peak:
                found, high = plan, middle
            else:
                low = middle + 1
        if found is not None:
            better = map(self._apply, self._searched(candidates[high]))
            return next((plan for plan in better if judge(plan).budget_bytes <= peak), found)
        lowest = finished if fits else self.lowest()
        return lowest if judge(lowest).budget_bytes <= peak else None

    def _apply(self, chosen: Candidate) -> Plan:
        base, problem = chosen.base, chosen.rung.problem
        graph = apply_plan(base.graph.fork(), problem, chosen.rung.plan)
        after = Timeline(graph, self._context.runtime, self._context.dims)
        again = base.recomputed
        done = Recomputed(chosen.rung.plan.clones + (again.clones if again else 0),
                          chosen.rung.seconds + (again.seconds if again else 0.0),
                          partial(bound, problem, chosen.peak),
                          tuple((c.peak, c.seconds) for c in self._candidates), _by_origin(chosen))
        saved = base.after.peak_bytes - after.peak_bytes
        return replace(base,
                       graph=graph,
                       after=after,
                       left_alone=self._finished.left_alone,
                       savings=base.savings + [('recompute', saved)],
                       recomputed=done)


def _by_origin(chosen: Candidate) -> Dict[Optional[int], float]:
    """Seconds of the clones, by the op that was read which each is one of."""
    ops, problem = chosen.base.graph.ops, chosen.rung.problem
    found: Dict[Optional[int], float] = dict(
        chosen.base.recomputed.by_origin if chosen.base.recomputed is not None else {})
    for step in chosen.rung.plan.steps:
        if step.clone:
            origin = ops[problem.ops[step.op]].origin
            found[origin] = found.get(origin, 0.0) + problem.seconds[step.op]
    return found


def _improved(candidate: Candidate, least: float) -> Candidate:
    """`candidate`, or one of no higher peak that takes less time, but not less than `least`. It depends on nothing else."""
    rung = candidate.rung
    if rung.seconds <= _NEAR * least_seconds(rung.problem, rung.peak):
        return candidate
    plans = _PLANS_OF_CHAINS if is_chain(rung.problem) else _PLANS_EACH
    allowed = Allowance(min(_SEARCH_OPS // _STARTS, plans * len(rung.problem)))
    plan = improved(rung.problem, rung.plan, rung.peak, DISTANCE_POWERS, allowed,
                    least - (candidate.seconds - rung.seconds))
    if plan is rung.plan:
        return candidate
    peak = profile(rung.problem, plan).peak
    return replace(candidate, rung=Rung(peak, plan.seconds, plan, rung.problem))


def _proofs(candidates: List[Candidate]) -> List[Candidate]:
    """For the peaks of some of `candidates`, the cheapest plans from the same base."""
    chosen = candidates[::1 + len(candidates) // _MOST_PROOFS]
    found = ((each, proved(each.problem, each.peak)) for each in chosen)
    return [replace(each, rung=rung) for each, rung in found if rung is not None]


def different(bases: Sequence[Plan]) -> List[Plan]:
    """Without those whose graph is that of an earlier one: where an order changed nothing."""
    found: List[Plan] = []
    for base in bases:
        if not any(base.graph == other.graph for other in found):
            found.append(base)
    return found


def _can_gain(base: Plan, context: PassContext, seconds: float) -> bool:
    """Where no gradients wait for what is computed again, nobody asked for it unless by a budget, or by `recompute`."""
    allowed = context.runtime.collects and bool(context.recompute) and not context.parallel
    return allowed and (base.graph.trains or math.isinf(seconds))
