"""Plans where a hint is missing: good at all sizes of a range, rather than the best at one of them.

Where weights rule the peak at a few rows, activations rule it at many; and what is cheap to compute again at many rows may take long
at a few. So plans are made for several sizes, each is looked at at all sizes of the range, and the one is taken whose peak is
nowhere much above the lowest that any of them reaches there (the least maximum regret, Savage 1951).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

from transpiler.ir import Graph
from transpiler.planning.bases import first_steps
from transpiler.planning.finishing import finish, may_hold
from transpiler.planning.overhead import overhead
from transpiler.planning.planner import lowest_few, plan, tried_plans
from transpiler.planning.plans import Plan, PlanOptions
from transpiler.planning.runner import Runner
from transpiler.planning.sequences import OPTIMIZE, Sequences
from transpiler.planning.work import Met, Work
from transpiler.runtime import Runtime

Dims = Mapping[str, int]
# So far above the lowest peak a plan may be for keeping the overhead at the smallest size, too.
_MUCH = 1.10
# Sequences of passes that are tried for all sizes but the first.
_MOST_TRIED = 6
# Sizes for which plans are made in any case.
_ALWAYS = 3


@dataclass(frozen=True)
class Sizes:
    """Values of the symbolic dims: `made` are those that plans are made for, `judged` those at which they are compared, from the
    smallest on. One of each where all hints are given."""

    made: Tuple[Dims, ...]
    judged: Tuple[Dims, ...]

    @cached_property
    def works(self) -> Tuple[Work, ...]:
        """What has been done for each of `made`."""
        met = Met()
        return tuple(Work(also=self.judged, everywhere=met) for _ in self.made)


def plan_for(graph: Graph,
             runtime: Runtime,
             sizes: Sizes,
             options: PlanOptions = PlanOptions(),
             sequences: Sequences = OPTIMIZE) -> Plan:
    """The plan of the least worst peak over `sizes`; for one size that of the lowest peak.

    It needs nowhere more than no plan does, as far as that is looked at for each of the sizes, and keeps `options.max_overhead` at
    all of them; at the smallest it need not where each plan that does needs over a tenth more somewhere.

    Raises:
        MemoryBudgetError: no plan keeps to `options.budget`, which is for one size.
    """
    if len(sizes.made) == 1:
        return plan(graph, runtime, sizes.made[0], options, sequences, sizes.works[0])
    return _Chooser(graph, runtime, sizes, options, sequences).plan()


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan as it is before it is finished, and what made it.

    `needed`: bytes above resting by size, the peaks of values alone, then those with what kernels allocate for themselves. `overhead`: by
    size the extra time of a step, as a share of it; `keeps`: whether that is allowed. `others`: the next ones for the same size.
    """

    runner: Runner
    plan: Plan
    needed: Tuple[int, ...]
    overhead: Tuple[float, ...]
    keeps: Tuple[bool, ...]
    others: Iterator[Candidate] = field(default_factory=lambda: iter(()))


class _Chooser:

    def __init__(self, graph: Graph, runtime: Runtime, sizes: Sizes, options: PlanOptions,
                 sequences: Sequences) -> None:
        self._sizes, self._options, self._sequences = sizes, options, sequences
        loose = not may_hold(runtime, options, sequences)
        self._runner = partial(Runner, graph, runtime, loose=loose)
        self._runners = [
            self._runner(dims, options, work=work) for dims, work in zip(sizes.made, sizes.works)
        ]

    def plan(self) -> Plan:
        """The first that needs nowhere more than no plan when it is finished, the best first, each followed by the next lowest for its
        size; or else no plan."""
        left = self.candidates()
        while True:
            best = chosen(left)
            left = [each for each in left if each is not best] + [self._first(best.others)]
            done = finish(best.runner, best.plan, self._options, self._sequences)
            grows = self._grows(best.runner, done)
            if not grows or not best.plan.changed:
                sizes = (best.runner.context.dims, *self._sizes.judged)
                return replace(done, grows_elsewhere=grows, sizes=sizes)

    def candidates(self) -> List[Candidate]:
        """No plan, those of the lowest peak for each size, and what they leave if they take less time; in the order of `made`, of which
        the later sizes come in where none of the plans so far is within a tenth."""
        found = [self._nothing]
        for at, runner in enumerate(self._runners):
            if at < _ALWAYS or self._is_far(found):
                found += self._for(runner)
        return found + (self._less_in_loops(found) if self._is_far(found) else [])

    def _is_far(self, found: Sequence[Candidate]) -> bool:
        return worst_ratio(chosen(found), found) > _MUCH

    def _for(self, runner: Runner) -> List[Candidate]:
        some = self._promising(runner)
        lowest = self._lowest(runner, some, self._options)
        if all(lowest.keeps) or lowest.plan.recomputed is None:
            return [lowest]
        return [lowest, self._lowest(runner, some, self._less(lowest))]

    def _less_in_loops(self, found: Sequence[Candidate]) -> List[Candidate]:
        """One more plan for the size of the one that breaks the overhead by least, and not at the smallest size alone: with less time for
        loops, which passes spend that decide anew."""
        breaking = [c for c in found if c.plan.extra_seconds and not all(c.keeps[1:])]
        if not breaking:
            return []
        nearest = min(breaking, key=lambda each: max(each.overhead))
        options, dims = self._less(nearest), nearest.runner.context.dims
        runner = self._runner(dims, options, work=Work(also=self._sizes.judged))
        return [self._lowest(runner, self._promising(runner), options)]

    @cached_property
    def _nothing(self) -> Candidate:
        return self._candidate(self._runners[0], self._runners[0].run(()))

    def _promising(self, runner: Runner) -> Sequences:
        """Those of the sequences to try for the size of `runner`: all for the first, and for others those whose plans for the first need
        least at their size. What moves ops decides by the size, so they are run again."""
        first = self._runners[0]
        if runner is first:
            return self._sequences
        start = first_steps(self._sequences)
        peaks: Dict[int, int] = {}  # many lead to the same
        for plan in (first.run(start + each) for each in self._helping):
            if id(plan.graph) not in peaks:
                peaks[id(plan.graph)] = plan.after.at(runner.context.dims).peak_bytes
        ranked = sorted(self._helping, key=lambda each: peaks[id(first.run(start + each).graph)])
        best = ranked[:_MOST_TRIED]
        return tuple(each for each in self._sequences if each in best)

    @cached_property
    def _helping(self) -> Sequences:
        """Those that may bring anything for the first size."""
        first, start = self._runners[0], first_steps(self._sequences)
        return tuple(each for each in self._sequences if first.may_help(start + each))

    def _lowest(self, runner: Runner, some: Sequences, options: PlanOptions) -> Candidate:
        """The lowest at the size of `runner` that is nowhere above no plan."""
        tried = tried_plans(runner, self._sequences, some)
        found = (self._candidate(runner, plan)
                 for plan in lowest_few(runner, tried, options, self._sequences))
        least = self._nothing.needed
        return self._first(each for each in found if all(map(operator.le, each.needed, least)))

    def _first(self, candidates: Iterator[Candidate]) -> Candidate:
        """The first of them, with the others behind it; or no plan."""
        found = next(candidates, self._nothing)
        return found if found is self._nothing else replace(found, others=candidates)

    def _less(self, candidate: Candidate) -> PlanOptions:
        """Options with which it takes no more than the overhead where it takes most, if its time falls alike at all sizes."""
        most = self._options.max_overhead
        own = overhead(candidate.plan, self._options.cost, candidate.runner.context.dims)
        worst = max(own, *candidate.overhead)
        return replace(self._options, max_overhead=max(0.0, most * own / worst))

    def _candidate(self, runner: Runner, made: Plan) -> Candidate:
        limited, cost = self._options.recompute == 'auto', self._options.cost
        there = [replace(made, after=made.after.at(dims)) for dims in self._sizes.judged]
        shares = [overhead(made, cost, dims) for dims in self._sizes.judged]
        keeps = (not limited or share <= self._options.max_overhead for share in shares)
        needed = [each.after.peak_bytes for each in there] + [each.needed_bytes for each in there]
        return Candidate(runner, made, tuple(needed), tuple(shares), tuple(keeps))

    def _grows(self, runner: Runner, done: Plan) -> bool:
        """Whether the finished plan needs more than no plan at any of the sizes, or anywhere else that is looked at."""
        there = (done.at(dims) for dims in self._sizes.judged)
        return (runner.grows_elsewhere(done) or
                any(each.after.peak_bytes > each.before.peak_bytes for each in there))


def chosen(candidates: Sequence[Candidate]) -> Candidate:
    """The one of the least worst ratio of those that keep the overhead; the smallest size left out where all that do need much more
    than others. The first of several."""
    for first in (0, 1):
        keeping = [each for each in candidates if all(each.keeps[first:])]
        best = min(keeping, key=lambda each: worst_ratio(each, candidates))
        if worst_ratio(best, candidates) <= _MUCH:
            break
    return best


def worst_ratio(candidate: Candidate, among: Sequence[Candidate]) -> float:
    """The most that it needs as a multiple of the least that any of `among` needs there, which keeps the overhead there, over all
    sizes."""
    keeps = (each.keeps + each.keeps for each in among)
    allowed = zip(*(zip(each.needed, kept) for each, kept in zip(among, keeps)))
    least = (max(1, min(needed for needed, kept in there if kept)) for there in allowed)
    return max(needed / each for needed, each in zip(candidate.needed, least))
