"""Which passes run, in which order, and whether their result is kept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import List, Mapping, Optional, Tuple

from transpiler.ir import Graph
from transpiler.planning.bases import bases, first_steps
from transpiler.planning.budget import levels, within_budget
from transpiler.planning.finishing import finish, may_hold
from transpiler.planning.fitting import Fitter
from transpiler.planning.plans import Plan, PlanOptions
from transpiler.planning.runner import Runner
from transpiler.planning.sequences import OPTIMIZE, SUMS, Sequences
from transpiler.planning.work import Work
from transpiler.runtime import Runtime


def plan(graph: Graph,
         runtime: Runtime,
         dims: Mapping[str, int],
         options: PlanOptions = PlanOptions(),
         sequences: Sequences = OPTIMIZE,
         work: Optional[Work] = None) -> Plan:
    """The best of the pass sequences by the timeline of `runtime`; the original if none lowers the peak.

    With `options.parallel`, nothing is done that could keep two ops from running side by side: no op is moved or held
    back, and values share memory only if that adds no dependence. `work` is what earlier calls for the same graph, runtime,
    dims and options have done: this one goes on from there.

    Raises:
        MemoryBudgetError: no plan keeps to `options.budget`.
    """
    loose = not may_hold(runtime, options, sequences)
    runner = Runner(graph, runtime, dims, options, loose, work)
    best, tried = _try_all(runner, sequences)
    if options.budget is None:
        return finish(runner, _within_overhead(runner, best, options, sequences), options,
                      sequences)
    for candidate in levels(runner, best, sequences):
        tried.append(candidate)
        best = _lower(best, candidate)
    return within_budget(runner, tried, best, options.budget, sequences,
                         partial(finish, runner, options=options, sequences=sequences))


def _try_all(runner: Runner, sequences: Sequences) -> Tuple[Plan, List[Plan]]:
    """The plan of the lowest peak, and all."""
    best = runner.run(())
    first = runner.run(first_steps(sequences)).steps
    tried = [best, runner.run(first)]
    for sequence in (first + sequence for sequence in sequences):
        if runner.may_help(sequence):
            candidate = runner.run(sequence)
            tried.append(candidate)
            best.left_alone.update(candidate.left_alone)
            best = _lower(best, candidate)
    if SUMS in first:
        candidate = runner.run([step for step in best.steps if step != SUMS])
        best = candidate if candidate.after.peak_bytes <= best.after.peak_bytes else best
    return best, tried


def _lower(best: Plan, candidate: Plan) -> Plan:
    """The better one by the sizes of values; but a kernel's own memory, which no order was made for, may not spoil it."""
    if (candidate.after.peak_bytes >= best.after.peak_bytes or
            candidate.needed_bytes > best.needed_bytes):
        return best
    return replace(candidate, left_alone=best.left_alone)


def _within_overhead(runner: Runner, best: Plan, options: PlanOptions,
                     sequences: Sequences) -> Plan:
    """`best` with as much computed again in the main block as the overhead allows."""
    seconds = float('inf')
    if options.recompute == 'auto':
        seconds = options.max_overhead * runner.step_seconds + best.saved_seconds
    fitter = Fitter(bases(runner, [best], sequences), best, runner.context, seconds)
    return fitter.within_overhead(seconds)
