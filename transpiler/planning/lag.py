"""What a plan needs where the runtime's collector frees late: orders that are held, and releases of the program's own."""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet, Optional, Sequence

from transpiler.ir import RELEASE, SHARE, Graph, ValueKind
from transpiler.passes.hold import regions_to_hold
from transpiler.planning.plans import Plan
from transpiler.planning.runner import Runner
from transpiler.planning.sequences import IN_PLACE, PROMPT, RECENT, REUSE, REUSE_SMALL, STAND_INS, SURE, Sequences
from transpiler.runtime import Can

_WORTH_A_CHANGE = 1.02
# What more is taken for nothing: the names of an order, of releases.
_NOTHING = 1.001
# A share of the step's time that releases may take which only keep a late collector from mattering.
_MOST_FOR_RELEASES = 0.02
# What keeps the peak of a held order where a late collector would raise it: sharing first, it costs nothing. Releases take less
# time where there is less to release.
_AGAINST_LAG: Sequences = ((REUSE,), (IN_PLACE, REUSE), (REUSE_SMALL, PROMPT), (PROMPT,), (REUSE,
                                                                                           PROMPT))


def in_order_and_in_time(runner: Runner, best: Plan, budget: Optional[int]) -> Plan:
    """Holds what must be held for the peak to be what is predicted, and frees in time what the collector may not."""
    if not runner.context.runtime.collects and (budget is not None or best.recomputed is not None):
        releases = any(op.kind == RELEASE for op in best.graph.region_ops(0))
        return replace(best, held=best.held | {0}) if releases else best
    lags = _lags(runner, best)
    held = _hold(runner, best, lags, budget)
    # Releases in some places alone would hide buffers from those that release in all; storages that are shared do not.
    in_places = PROMPT in held.steps and len(best.graph.regions) == 1
    start = replace(best, held=held.held) if in_places else held
    if budget is not None and held.loose_bytes > budget:
        return _make_sure(runner, (start, replace(best, held=held.held)), held, budget)
    if lags or (held.held and best.recomputed is not None):
        return _free_in_time(runner, start, held)
    return held


def _lags(runner: Runner, best: Plan) -> bool:
    """Whether there is a collector, and it would raise the peak if it were late."""
    return (runner.context.runtime.collects and
            best.after.lagging_peak_bytes > best.after.peak_bytes * _WORTH_A_CHANGE)


def _hold(runner: Runner, best: Plan, lags: bool, budget: Optional[int]) -> Plan:
    """Finds out which regions must be held; in a held order, memory is freed in time where that matters and fits."""
    held = regions_to_hold(best.original, best.graph, best.after)
    start = best  # each sequence on its own: in-place would not see who moved in by reuse
    for sequence in _AGAINST_LAG if lags and (held or len(best.graph.regions) > 1) else ():
        for_time = REUSE_SMALL in sequence  # up to 1 % of the peak for it: not if bytes alone were asked for, or are short
        if for_time and runner.context.recompute == 'max':
            continue
        if not _lags(runner, best):
            break
        candidate = runner.run(sequence,
                               without_waiting(runner, start) if PROMPT in sequence else start)
        late = candidate.after.lagging_peak_bytes
        if (candidate.after.peak_bytes <= best.after.peak_bytes * _WORTH_A_CHANGE and
                _needs_no_more(candidate, best) and
                late * _WORTH_A_CHANGE < best.after.lagging_peak_bytes and
            (budget is None or
             candidate.budget_bytes <= (budget if for_time else max(budget, best.budget_bytes)))):
            best = candidate
    return replace(best, held=held | _ordered_by_position(best.graph))


def _needs_no_more(candidate: Plan, best: Plan) -> bool:
    """Whether `candidate` needs hardly more than `best` with what kernels allocate, and no more than the untouched program."""
    allowed = min(best.needed_bytes * _WORTH_A_CHANGE, best.needed_before * _NOTHING)
    return candidate.needed_bytes <= max(best.needed_bytes, allowed)


def _ordered_by_position(graph: Graph) -> FrozenSet[int]:
    """Inner regions with ops that only the place where they stand orders."""
    return frozenset(op.region for op in graph.walk() if op.region and op.kind in (RELEASE, SHARE))


def without_waiting(runner: Runner, plan: Plan) -> Plan:
    """`plan`, in which what could be released does not wait for who reads its shape, where the runtime would lose that."""
    keeps = Can.SHAPES in runner.context.runtime.can
    return plan if keeps else runner.run((STAND_INS,), plan)


def _make_sure(runner: Runner, starts: Sequence[Plan], otherwise: Plan, budget: int) -> Plan:
    """Keeps to the budget without the runtime's collector, which may be late: from the first of `starts` from which that
    fits, or else what comes closest."""
    made = []
    for start in starts:
        candidate = runner.run((SURE,), without_waiting(runner, start))
        made.append(replace(candidate, held=otherwise.held | {0}))
        if candidate.sure_bytes <= budget:
            break
    return min(made, key=lambda plan: plan.sure_bytes)


def _free_in_time(runner: Runner, start: Plan, otherwise: Plan) -> Plan:
    """`start`, with releases in the main region of what a late collector would let pile up, if they take next to no time;
    `otherwise` where they do not pay.

    They need the order that they were made for: it is held. They come as late as the predicted peak allows. Of chosen rows
    only a bound is known, as of what the data decides, most of which may not be there: then they could come later than the
    collector.
    """
    rows = any(v.kind is ValueKind.SELECTED_ROWS and v.size is not None for v in start.graph.values)
    if rows or start.graph.has_bounds:
        return otherwise
    candidate = runner.run((RECENT,), start)
    added = len(candidate.graph.regions[0].ops) - len(start.graph.regions[0].ops)
    allowed = _MOST_FOR_RELEASES * runner.step_seconds / runner.context.cost.seconds_per_op
    if (added <= allowed and candidate.after.peak_bytes <= otherwise.after.peak_bytes * _NOTHING and
            candidate.needed_bytes <= otherwise.needed_bytes and
            candidate.after.lagging_peak_bytes * _WORTH_A_CHANGE < start.before.lagging_peak_bytes):
        return replace(candidate, held=otherwise.held | {0})
    return otherwise
