"""Which passes run, in which order, and whether their result is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List, Mapping, Optional, Tuple

from transpiler.analysis.runtime import RuntimeModel
from transpiler.errors import MemoryBudgetError
from transpiler.ir import Graph
from transpiler.passes.recompute import recompute_levels
from transpiler.planning.fitting import Fitter
from transpiler.planning.lag import in_order_and_in_time
from transpiler.planning.plans import Plan, PlanOptions
from transpiler.planning.runner import Runner
from transpiler.planning.sequences import (ARRAYS, COPIES, OPTIMIZE, RECOMPUTE, RECOMPUTE_LESS,
                                           SCHEDULE, SPACED, SUMS, UNREAD, UPDATES, NamedPass,
                                           Sequences, within_loops)

_MORE_FOR_SPEED = 1.005
_MOST_NAMED = 8


def plan(graph: Graph,
         model: RuntimeModel,
         dims: Mapping[str, int],
         options: PlanOptions = PlanOptions(),
         sequences: Sequences = OPTIMIZE) -> Plan:
    """The best of the pass sequences by the timeline of `model`; the original if none lowers the peak.

    With `options.parallel`, nothing is done that could keep two ops from running side by side: no op is moved or held
    back, and values share memory only if that adds no dependence.
    """
    runner = Runner(graph, model, dims, options)
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
    for candidate in _levels(runner, best, options, sequences):
        tried.append(candidate)
        if candidate.after.peak_bytes < best.after.peak_bytes:
            best = replace(candidate, left_alone=best.left_alone)
    best = _fit(runner, best, tried, options, sequences)
    if best.recomputed is not None or best.extra_seconds:
        best = replace(best, step_seconds=runner.step_seconds)
    if best.recomputed is not None:
        best = _space(runner, best, options.budget)
    if not options.parallel and any(SCHEDULE in sequence for sequence in sequences):
        best = in_order_and_in_time(runner, best, options.budget)
    if options.budget is not None and best.sure_bytes > options.budget:
        raise MemoryBudgetError(_over_budget(best, options.budget), best.sure_bytes)
    return best


def _levels(runner: Runner, best: Plan, options: PlanOptions,
            sequences: Sequences) -> Iterator[Plan]:
    """For budgets: `best` with more and less computed again inside loops and branches, and that in the order as it was."""
    graph = runner.run(()).graph
    inner = any(region.forward >= 0 for region in graph.regions)
    if options.budget is None or not inner or not any(RECOMPUTE in s for s in sequences):
        return
    sums = tuple(step for step in best.steps if step == SUMS)
    rest = tuple(step for step in best.steps if step not in sums + within_loops(best.steps))
    copies = runner.run(sums + (COPIES,))
    levels = [('recompute', level) for level in recompute_levels(copies.graph, runner.context)]
    tried = {
        (COPIES, level, UNREAD, ARRAYS) + after: None for level in levels for after in (rest, ())
    }
    for sequence in sequences:  # the lowest peak may need another way to go on
        if RECOMPUTE in sequence:
            tried[tuple(levels[-1] if step == RECOMPUTE else step for step in sequence)] = None
    for sequence in tried:
        if runner.may_help(sequence):
            yield runner.run(sums + sequence)


def _fit(runner: Runner, best: Plan, tried: List[Plan], options: PlanOptions,
         sequences: Sequences) -> Plan:
    """Recomputes in the main block: as much as the budget asks for or, without one, as the overhead allows. If no plan
    fits, the lowest: what is done against a late collector may lower it.

    Clones start as soon as they can unless their order is held, so that must be allowed too.
    """
    if options.budget is None:
        allowed_seconds = _allowed_seconds(runner, best, options)
        fitter = Fitter(_bases(runner, [best], options, sequences), best, runner.context,
                        allowed_seconds)
        return fitter.within_overhead(allowed_seconds)
    fitting = [plan for plan in (best, *tried) if plan.sure_bytes <= options.budget]
    cheapest = min(fitting, key=lambda plan: (plan.extra_seconds, plan.sure_bytes), default=best)
    if fitting and not cheapest.extra_seconds:
        return replace(cheapest, left_alone=best.left_alone)
    fitter = Fitter(_bases(runner, [best, *tried], options, sequences),
                    cheapest,
                    runner.context,
                    exact=True)
    return fitter.within_peak(options.budget) or fitter.lowest()


def _bases(runner: Runner, plans: List[Plan], options: PlanOptions,
           sequences: Sequences) -> List[Plan]:
    """What recomputing in the main block can start from: what `plans` do inside loops and branches, in some orders."""
    allowed = {step for sequence in sequences for step in sequence}
    gains = runner.context.model is RuntimeModel.COLLECTING and bool(options.recompute)
    if not gains or not {SCHEDULE, RECOMPUTE} <= allowed:
        return []
    sums = runner.run(_allowed_sums(sequences)).steps
    orders = ((UPDATES,),) + (((SCHEDULE,),) if SCHEDULE in plans[0].steps else ())
    inner = dict.fromkeys(within_loops(plan.steps) for plan in plans)
    for loops in tuple(inner):  # what loops do not take, the main block may
        inner[tuple(RECOMPUTE_LESS if step is RECOMPUTE else step for step in loops)] = None
    found = (runner.run(sums + loops + order) for loops in inner for order in orders)
    return list({id(base): base for base in found}.values())


def _space(runner: Runner, best: Plan, budget: Optional[int]) -> Plan:
    """Keeps updates apart from products where clones have come in between, if the budget bears it."""
    candidate = runner.run((SPACED,), best)
    limit = best.sure_bytes * _MORE_FOR_SPEED if budget is None else budget
    return candidate if candidate.sure_bytes <= limit else best


def _allowed_sums(sequences: Sequences) -> Tuple[NamedPass, ...]:
    return (SUMS,) if any(SCHEDULE in sequence for sequence in sequences) else ()


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
        f'{lowest.sure_bytes} bytes, at {op.kind} (op {op.id}). Largest there, in bytes: {largest}')


def _allowed_seconds(runner: Runner, best: Plan, options: PlanOptions) -> float:
    if options.recompute != 'auto':
        return float('inf')
    return options.max_overhead * runner.step_seconds + best.saved_seconds
