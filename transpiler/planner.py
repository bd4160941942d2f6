"""Which passes run, in which order, and whether their result is kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Tuple

from transpiler.analysis.cost import CostModel
from transpiler.analysis.runtime import RuntimeModel
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import peak_with_workspaces
from transpiler.errors import MemoryBudgetError
from transpiler.fitting import Fitter, Recomputed
from transpiler.ir import RELEASE, SHARE, Graph
from transpiler.passes.arrays import empty_arrays
from transpiler.passes.context import PassContext, Reuse
from transpiler.passes.hold import regions_to_hold, was_moved
from transpiler.passes.hoist import hoist_storages
from transpiler.passes.inplace import coalesce_in_place
from transpiler.passes.loop_copies import drop_invariant_copies, drop_unread_copies
from transpiler.passes.recompute import (recompute_all_in_regions, recompute_in_regions,
                                         recompute_less_in_regions)
from transpiler.passes.prompt import hand_on_or_release, release_surely, sure_releases
from transpiler.passes.release import release_storages
from transpiler.passes.reuse import reuse_inside, reuse_storages
from transpiler.passes.schedule import (schedule, space_updates_in_main, updates_early_in_main)
from transpiler.passes.sums import sum_early

Pass = Callable[[Graph, PassContext], Graph]
NamedPass = Tuple[str, Pass]

_SCHEDULE: NamedPass = ('schedule', schedule)
_UPDATES: NamedPass = ('updates early', updates_early_in_main)
_SPACED: NamedPass = ('updates apart', space_updates_in_main)
_IN_PLACE: NamedPass = ('in-place', coalesce_in_place)
_REUSE: NamedPass = ('reuse', reuse_storages)
_REUSE_INSIDE: NamedPass = ('reuse inside', reuse_inside)
_HOIST: NamedPass = ('one storage for all trips', hoist_storages)
_COPIES: NamedPass = ('loop-invariant copies', drop_invariant_copies)
_UNREAD: NamedPass = ('unread loop copies', drop_unread_copies)
_RECOMPUTE: NamedPass = ('recompute', recompute_in_regions)
_RECOMPUTE_ALL: NamedPass = ('recompute all', recompute_all_in_regions)
_RECOMPUTE_LESS: NamedPass = ('recompute', recompute_less_in_regions)
_ARRAYS: NamedPass = ('emptied arrays', empty_arrays)
_RELEASE: NamedPass = ('release', release_storages)
_PROMPT: NamedPass = ('prompt release', hand_on_or_release)
_SURE: NamedPass = ('sure release', release_surely)
_SUMS: NamedPass = ('sums early', sum_early)
Sequences = Tuple[Tuple[NamedPass, ...], ...]
_WORTH_A_CHANGE = 1.02
_MORE_FOR_SPEED = 1.005
_MOST_NAMED = 8
# A share of the step's time that releases may take which only keep a late collector from mattering.
_MOST_FOR_RELEASES = 0.02
_LOOP_PASSES = (_COPIES, _RECOMPUTE, _RECOMPUTE_ALL, _RECOMPUTE_LESS, _UNREAD, _ARRAYS)
_FOR_INNER_REGIONS = frozenset({*_LOOP_PASSES, _REUSE_INSIDE, _HOIST})
_AFTER_ORDER = (_IN_PLACE, _REUSE, _REUSE_INSIDE, _HOIST, _RELEASE)
# Simplest first: a longer sequence must do strictly better to be chosen.
OPTIMIZE: Sequences = tuple(loops + order + rest
                            for loops in ((), (_COPIES, _UNREAD, _ARRAYS), (_COPIES, _RECOMPUTE,
                                                                            _UNREAD, _ARRAYS))
                            for order in ((_SCHEDULE,), ())
                            for rest in ((), (_IN_PLACE,), (_REUSE,), (_IN_PLACE, _REUSE),
                                         (_RELEASE,), (_IN_PLACE, _REUSE_INSIDE, _RELEASE),
                                         (_HOIST, _RELEASE), (_IN_PLACE, _REUSE_INSIDE, _HOIST,
                                                              _RELEASE))
                            if loops + order + rest)
RELEASE_ONLY: Sequences = ((_RELEASE,),)
# What keeps the peak of a held order where a late collector would raise it: sharing first, it costs nothing.
_AGAINST_LAG: Sequences = ((_REUSE,), (_IN_PLACE, _REUSE), (_PROMPT,), (_REUSE, _PROMPT))


def simpler_and_simpler(sequences: Sequences) -> Iterator[Sequences]:
    """`sequences`, then without the passes that move ops, then without those that add them, then none."""
    yield sequences
    yield tuple(s for s in sequences if _SCHEDULE not in s)
    yield tuple(s for s in sequences if not {_SCHEDULE, *_LOOP_PASSES}.intersection(s))
    yield ()


@dataclass
class Plan:
    """A graph that is at least as good as the original, and what was done to get there.

    `savings` lists (pass, bytes by which it lowered the predicted peak). `held` are the regions whose order must be
    pinned for the prediction to come true. Times are by the cost model.
    """

    original: Graph
    graph: Graph
    before: Timeline
    after: Timeline
    reuses: List[Reuse] = field(default_factory=list)
    left_alone: Dict[int, str] = field(default_factory=dict)
    savings: List[Tuple[str, int]] = field(default_factory=list)
    steps: Tuple[NamedPass, ...] = ()
    held: FrozenSet[int] = frozenset()
    saved_seconds: float = 0.0  # of a step, by loop passes
    extra_seconds: float = 0.0  # of a step, for recomputing inside loops and branches
    recomputed: Optional[Recomputed] = None  # in the main block
    step_seconds: float = 0.0  # of the original, where anything of it is computed again

    @property
    def changed(self) -> bool:
        return self.graph is not self.original or bool(self.held)

    @cached_property
    def needed_bytes(self) -> int:
        """The peak, with what kernels allocate for themselves: what a budget must bear."""
        return peak_with_workspaces(self.graph, self.after, self.after.dims)

    @property
    def frees_in_time(self) -> bool:
        """Whether it releases itself what a late collector would let pile up."""
        return _PROMPT in self.steps or _SURE in self.steps

    @property
    def order_changed(self) -> bool:
        regions = range(len(self.original.regions))
        return any(was_moved(self.original, self.graph, region) for region in regions)


@dataclass(frozen=True)
class PlanOptions:
    """What the caller allows; see memory_optimize."""

    level: int = 0
    skip_grads: bool = True
    recompute: str = 'auto'
    max_overhead: float = 0.10
    parallel: bool = False
    budget: Optional[int] = None  # bytes above resting
    cost: CostModel = CostModel()


def plan(graph: Graph,
         model: RuntimeModel,
         dims: Mapping[str, int],
         options: PlanOptions = PlanOptions(),
         sequences: Sequences = OPTIMIZE) -> Plan:
    """The best of the pass sequences by the timeline of `model`; the original if none lowers the peak.

    With `options.parallel`, nothing is done that could keep two ops from running side by side: no op is moved or held
    back, and values share memory only if that adds no dependence.
    """
    runner = _Runner(graph, model, dims, options)
    sequences = _with_all_recomputed(runner, sequences, options)
    best = runner.run(())
    sums = runner.run(_allowed_sums(sequences)).steps
    tried = [best]
    for sequence in (sums + sequence for sequence in sequences):
        if runner.may_help(sequence):
            candidate = runner.run(sequence)
            tried.append(candidate)
            best.left_alone.update(candidate.left_alone)
            if candidate.after.peak_bytes < best.after.peak_bytes:
                best = replace(candidate, left_alone=best.left_alone)
    if sums:
        candidate = runner.run([step for step in best.steps if step not in sums])
        best = candidate if candidate.after.peak_bytes <= best.after.peak_bytes else best
    best = _fit(runner, best, tried, options, sequences)
    if best.recomputed is not None or best.extra_seconds:
        best = replace(best, step_seconds=runner.step_seconds)
    if best.recomputed is not None:
        best = _space(runner, best, options.budget)
    if not options.parallel and any(_SCHEDULE in sequence for sequence in sequences):
        best = _in_order_and_in_time(runner, best, options.budget)
    return best


def _in_order_and_in_time(runner: _Runner, best: Plan, budget: Optional[int]) -> Plan:
    """Holds what must be held for the peak to be what is predicted, and frees in time what the collector may not."""
    lags = _lags(runner, best)
    held = _hold(runner, best, lags)
    # Releases in some places alone would hide buffers from those that release in all; storages that are shared do not.
    in_places = _PROMPT in held.steps and len(best.graph.regions) == 1
    start = replace(best, held=held.held) if in_places else held
    if held.held and budget is not None:
        return _make_sure(runner, start, held, budget)
    if lags or (held.held and best.recomputed is not None):
        return _free_in_time(runner, start, held)
    return held


def _with_all_recomputed(runner: _Runner, sequences: Sequences, options: PlanOptions) -> Sequences:
    """Under a budget, `max_overhead` is no limit inside loops and branches either."""
    inner = any(region.forward >= 0 for region in runner.run(()).graph.regions)
    if options.budget is None or options.recompute != 'auto' or not inner:
        return sequences
    return sequences + tuple(
        tuple(_RECOMPUTE_ALL if step == _RECOMPUTE else step
              for step in sequence)
        for sequence in sequences
        if _RECOMPUTE in sequence)


def _fit(runner: _Runner, best: Plan, tried: List[Plan], options: PlanOptions,
         sequences: Sequences) -> Plan:
    """Recomputes in the main block: as much as the budget asks for or, without one, as the overhead allows.

    Clones start as soon as they can unless their order is held, so that must be allowed too.
    """
    if options.budget is None:
        allowed_seconds = _allowed_seconds(runner, best, options)
        fitter = Fitter(_bases(runner, [best], options, sequences), best, runner.context,
                        allowed_seconds)
        return fitter.within_overhead(allowed_seconds)
    fitting = [plan for plan in (best, *tried) if plan.needed_bytes <= options.budget]
    cheapest = min(fitting, key=lambda plan: (plan.extra_seconds, plan.needed_bytes), default=best)
    if fitting and not cheapest.extra_seconds:
        return replace(cheapest, left_alone=best.left_alone)
    fitter = Fitter(_bases(runner, [best, *tried], options, sequences),
                    cheapest,
                    runner.context,
                    exact=True)
    found = fitter.within_peak(options.budget)
    if found is None:
        lowest = fitter.lowest()
        raise MemoryBudgetError(_over_budget(lowest, options.budget), lowest.needed_bytes)
    return found


def _bases(runner: _Runner, plans: List[Plan], options: PlanOptions,
           sequences: Sequences) -> List[Plan]:
    """What recomputing in the main block can start from: what `plans` do inside loops and branches, in some orders."""
    allowed = {step for sequence in sequences for step in sequence}
    gains = runner.context.model is RuntimeModel.COLLECTING and bool(options.recompute)
    if not gains or not {_SCHEDULE, _RECOMPUTE} <= allowed:
        return []
    sums = runner.run(_allowed_sums(sequences)).steps
    orders = ((_UPDATES,),) + (((_SCHEDULE,),) if _SCHEDULE in plans[0].steps else ())
    inner = dict.fromkeys(
        tuple(step for step in plan.steps if step in _LOOP_PASSES) for plan in plans)
    for loops in tuple(inner):  # what loops do not take, the main block may
        inner[tuple(_RECOMPUTE_LESS if step is _RECOMPUTE else step for step in loops)] = None
    found = (runner.run(sums + loops + order) for loops in inner for order in orders)
    return list({id(base): base for base in found}.values())


def _space(runner: _Runner, best: Plan, budget: Optional[int]) -> Plan:
    """Keeps updates apart from products where clones have come in between, if the budget bears it."""
    candidate = runner.run((_SPACED,), best)
    limit = best.needed_bytes * _MORE_FOR_SPEED if budget is None else budget
    return candidate if candidate.needed_bytes <= limit else best


def _allowed_sums(sequences: Sequences) -> Tuple[NamedPass, ...]:
    return (_SUMS,) if any(_SCHEDULE in sequence for sequence in sequences) else ()


def _over_budget(lowest: Plan, budget: int) -> str:
    residents = lowest.after.residents(lowest.after.peak.op)[:_MOST_NAMED]
    largest = ', '.join(f'{lowest.graph.values[r.storage].name} '
                        f'({lowest.after.evaluate(r.size) * lowest.after.evaluate(r.count)})'
                        for r in residents)
    op = lowest.graph.ops[lowest.after.peak.op]
    room = (f'no plan stays below {budget} bytes above resting memory'
            if budget > 0 else 'parameters and state alone need more than the budget')
    return (
        f'{room}; the lowest peak reached is '
        f'{lowest.needed_bytes} bytes, at {op.kind} (op {op.id}). Largest there, in bytes: {largest}'
    )


def _allowed_seconds(runner: _Runner, best: Plan, options: PlanOptions) -> float:
    if options.recompute != 'auto':
        return float('inf')
    return options.max_overhead * runner.step_seconds + best.saved_seconds


def _lags(runner: _Runner, best: Plan) -> bool:
    """Whether there is a collector, and it would raise the peak if it were late."""
    return (runner.context.model is RuntimeModel.COLLECTING and
            best.after.lagging_peak_bytes > best.after.peak_bytes * _WORTH_A_CHANGE)


def _hold(runner: _Runner, best: Plan, lags: bool) -> Plan:
    """Finds out which regions must be held; in a held order, memory is freed in time where that matters."""
    context = runner.context
    held = regions_to_hold(best.original, best.graph, context.model, context.dims,
                           best.after.peak_bytes)
    start = best  # each sequence on its own: in-place would not see who moved in by reuse
    for sequence in _AGAINST_LAG if held and lags else ():
        candidate = runner.run(sequence, start)
        late = candidate.after.lagging_peak_bytes
        if (candidate.after.peak_bytes <= best.after.peak_bytes * _WORTH_A_CHANGE and
                late * _WORTH_A_CHANGE < best.after.lagging_peak_bytes):
            best = candidate
    return replace(best, held=held | _ordered_by_position(best.graph))


def _ordered_by_position(graph: Graph) -> FrozenSet[int]:
    """Inner regions with ops that only the place where they stand orders."""
    return frozenset(op.region for op in graph.walk() if op.region and op.kind in (RELEASE, SHARE))


def _make_sure(runner: _Runner, start: Plan, best: Plan, budget: int) -> Plan:
    """Keeps to the budget without the runtime's collector, which may be late. From `start`; `best` where that needs more."""
    candidate = runner.run((_SURE,), start)
    return replace(candidate, held=best.held) if candidate.needed_bytes <= budget else best


def _free_in_time(runner: _Runner, start: Plan, otherwise: Plan) -> Plan:
    """`start`, with releases in the main region of what a late collector would let pile up, if they take next to no time;
    `otherwise` where they do not pay.

    They need the order that they were made for: it is held.
    """
    allowed = _MOST_FOR_RELEASES * runner.step_seconds / runner.context.cost.seconds_per_op
    if sure_releases(start.after) > allowed:
        return otherwise
    candidate = runner.run((_SURE,), start)
    if (candidate.after.peak_bytes <= otherwise.after.peak_bytes and
            candidate.after.lagging_peak_bytes * _WORTH_A_CHANGE < start.before.lagging_peak_bytes):
        return replace(candidate, held=otherwise.held | {0})
    return otherwise


class _Runner:
    """Runs sequences of passes. What several of them begin with is run once; a pass that changes nothing is as if it
    had not been."""

    def __init__(self, graph: Graph, model: RuntimeModel, dims: Mapping[str, int],
                 options: PlanOptions) -> None:
        self.context = PassContext(model,
                                   dims,
                                   options.level,
                                   options.skip_grads,
                                   options.recompute,
                                   options.max_overhead,
                                   options.cost,
                                   parallel=options.parallel)
        before = Timeline(graph, model, dims)
        self._start = Plan(graph, graph, before, before)
        # (id of the plan to start from, pass, by name and function) -> that plan, which keeps its id, and the one it leads to
        self._steps: Dict[Tuple[int, str, Pass], Tuple[Plan, Plan]] = {}
        # by id of the plan, which keeps its id
        self._known: Dict[int, Tuple[Plan, Dict[str, Any]]] = {}

    @cached_property
    def step_seconds(self) -> float:
        """Of the program as it is."""
        context = self.context
        return context.cost.region_seconds(self._start.graph, 0, context.dims)

    def may_help(self, sequence: Sequence[NamedPass]) -> bool:
        """False for what this runtime does by itself, for what the caller forbids, and for a given order that is
        known to need more."""
        flat = len(self._start.graph.regions) == 1
        if flat and _FOR_INNER_REGIONS.intersection(sequence):
            return False
        if self.context.model is RuntimeModel.COLLECTING:
            if _RELEASE in sequence:
                return False
            # In the main block it frees after the last use and works in place by itself: fewer names are no gain.
            if flat and {_IN_PLACE, _REUSE}.intersection(sequence):
                return False
        if _SCHEDULE in sequence:
            return not self.context.parallel
        given = self.run([s for s in sequence if s not in _AFTER_ORDER])
        ordered = self._steps.get((id(given), *_SCHEDULE))
        return ordered is None or ordered[1].after.peak_bytes >= given.after.peak_bytes

    def run(self, sequence: Sequence[NamedPass], start: Optional[Plan] = None) -> Plan:
        """The plan after the passes of `sequence`, on top of `start`."""
        plan = start or self._start
        for name, rewrite in sequence:
            key = (id(plan), name, rewrite)
            if key not in self._steps:
                self._steps[key] = (plan, self._step(plan, name, rewrite))
            plan = self._steps[key][1]
        return plan

    def _known_of(self, plan: Plan) -> Dict[str, Any]:
        if id(plan) not in self._known:
            known: Dict[str, Any] = {'timeline': plan.after}
            if self.context.model is RuntimeModel.COLLECTING:
                known['collecting'] = plan.after
            self._known[id(plan)] = (plan, known)
        return self._known[id(plan)][1]

    def _step(self, start: Plan, name: str, rewrite: Pass) -> Plan:
        context = replace(self.context,
                          known=self._known_of(start),
                          reuses=list(start.reuses),
                          left_alone=dict(start.left_alone),
                          saved_seconds=start.saved_seconds,
                          spent_seconds=start.extra_seconds)
        graph = rewrite(start.graph.copy(), context)
        start.left_alone.update(context.left_alone)
        if start.graph == graph:
            return start
        after = Timeline(graph, context.model, context.dims)
        saved = start.after.peak_bytes - after.peak_bytes
        return replace(start,
                       graph=graph,
                       after=after,
                       reuses=context.reuses,
                       left_alone=context.left_alone,
                       savings=start.savings + [(name, saved)],
                       steps=start.steps + ((name, rewrite),),
                       saved_seconds=context.saved_seconds,
                       extra_seconds=context.spent_seconds)
