"""The cheapest plan that keeps to a budget, over all passes together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Callable, Dict, Iterator, List, Sequence

from transpiler.errors import MemoryBudgetError
from transpiler.passes.recompute import recompute_levels
from transpiler.planning.bases import bases, reordered
from transpiler.planning.fitting import Fitter
from transpiler.planning.lag import without_waiting
from transpiler.planning.plans import Plan
from transpiler.planning.runner import Runner
from transpiler.planning.sequences import (ARRAYS, COPIES, FIRST, RECOMPUTE, UNREAD, NamedPass,
                                           Sequences, within_loops)

_MOST_NAMED = 8
# Before a budget is refused.
_MOST_FINISHED = 6


def levels(runner: Runner, best: Plan, sequences: Sequences) -> Iterator[Plan]:
    """`best` with more and less computed again inside loops and branches, and that in the order as it was."""
    graph = runner.run(()).graph
    inner = any(region.forward >= 0 for region in graph.regions)
    allowed = runner.context.recompute and any(RECOMPUTE in sequence for sequence in sequences)
    if not inner or not allowed:
        return
    first = tuple(step for step in best.steps if step in FIRST)
    rest = tuple(step for step in best.steps if step not in first + within_loops(best.steps))
    copies = runner.run(first + (COPIES,))
    found = [
        NamedPass('recompute', level) for level in recompute_levels(copies.graph, runner.context)
    ]
    tried = {
        (COPIES, level, UNREAD, ARRAYS) + after: None for level in found for after in (rest, ())
    }
    for sequence in sequences:  # the lowest peak may need another way to go on
        if RECOMPUTE in sequence:
            tried[tuple(found[-1] if step == RECOMPUTE else step for step in sequence)] = None
    for sequence in tried:
        if runner.may_help(sequence):
            yield runner.run(first + sequence)


def fitter_of(runner: Runner, tried: Sequence[Plan], best: Plan, finished: Plan,
              sequences: Sequences) -> Fitter:
    """What every budget picks from in the main block: `tried` recompute nothing there, `best` has the lowest peak of them, `finished` is
    taken where nothing is gained."""
    return Fitter(bases(runner, [best, *tried], sequences, whole=True),
                  finished,
                  runner.context,
                  exact=True,
                  reorder=reordered(runner, best.original))


def within_budget(runner: Runner, tried: Sequence[Plan], best: Plan, budget: int,
                  sequences: Sequences, finish: Callable[[Plan], Plan]) -> Plan:
    """The cheapest plan that needs at most `budget` bytes above resting when it is finished.

    Args:
        tried: plans that recompute nothing in the main block.
        best: of these, that of the lowest peak.
        finish: what is done to a plan that is chosen.

    Raises:
        MemoryBudgetError: there is none.
    """
    # The main block alone: what finishing adds there mostly keeps to the budget that the choice kept to.
    flat = len(best.graph.regions) == 1 and runner.context.runtime.collects
    judge = partial(without_waiting, runner) if flat else finish
    chosen = next((plan for plan in _cheapest_first([best, *tried])
                   if plan.timely_bytes <= budget and judge(plan).budget_bytes <= budget), None)
    fitter = None
    if chosen is None or chosen.extra_seconds:
        fitter = fitter_of(runner, tried, best, chosen or best, sequences)
        chosen = fitter.within_peak(budget, judge)
    done = finish(replace(chosen or fitter.lowest(), left_alone=best.left_alone))
    if chosen is not None and flat and done.sure_bytes > budget:
        # What no release can give back, as selected rows, is there from the run before: only a finished plan tells how much.
        fitter = fitter or fitter_of(runner, tried, best, best, sequences)
        chosen = fitter.within_peak(budget, finish) or fitter.lowest()
        done = min([done, finish(replace(chosen, left_alone=best.left_alone))],
                   key=lambda plan: plan.sure_bytes)
    if done.sure_bytes > budget:
        done = min([done, *map(finish, _nearest([best, *tried]))], key=lambda plan: plan.sure_bytes)
    if done.sure_bytes > budget:
        raise over_budget(done, budget)
    return replace(done, left_alone=best.left_alone)


def _cheapest_first(plans: Sequence[Plan]) -> Iterator[Plan]:
    """Of those that take the same time the one of the lowest peak; none that is worse than no plan if the runtime is in time."""
    lowest: Dict[float, Plan] = {}
    for plan in (each for each in plans if each.needed_bytes <= each.needed_before):
        other = lowest.get(plan.extra_seconds)
        if other is None or plan.timely_bytes < other.timely_bytes:
            lowest[plan.extra_seconds] = plan
    yield from (lowest[seconds] for seconds in sorted(lowest))


def _nearest(plans: Sequence[Plan]) -> List[Plan]:
    """Those that would need least if they were finished for a budget, which is more than the peak that they were chosen by; none that
    is worse than no plan."""
    found = {id(plan.graph): plan for plan in plans if plan.needed_bytes <= plan.needed_before}
    return sorted(found.values(), key=lambda plan: plan.budget_bytes)[:_MOST_FINISHED]


def over_budget(lowest: Plan, budget: int) -> MemoryBudgetError:
    """What is raised where even `lowest` needs more than `budget` bytes above resting."""
    residents = lowest.after.residents(lowest.after.peak.op)[:_MOST_NAMED]
    largest = ', '.join(f'{lowest.graph.values[r.storage].name} '
                        f'({lowest.after.evaluate(r.size) * lowest.after.evaluate(r.count)})'
                        for r in residents)
    op = lowest.graph.ops[lowest.after.peak.op]
    room = (f'no plan stays below {budget} bytes above resting memory'
            if budget > 0 else 'parameters and state alone need more than the budget')
    return MemoryBudgetError(
        f'{room}; the lowest peak reached is '
        f'{lowest.sure_bytes} bytes, at {op.kind} (op {op.id}). Largest there, in bytes: {largest}',
        lowest.sure_bytes)
