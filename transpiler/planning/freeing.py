"""What runs again in the main block where the runtime holds all to the end: chosen as if what is dead were freed, which the program
then does by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, List

from transpiler.analysis.timeline import Timeline
from transpiler.planning.plans import Plan, PlanOptions
from transpiler.planning.runner import Runner
from transpiler.planning.sequences import RELEASE, SCHEDULE, Sequences

Choose = Callable[[Runner, PlanOptions, Sequences], Plan]


def computed_again(runner: Runner, options: PlanOptions, sequences: Sequences,
                   choose: Choose) -> List[Plan]:
    """The plan that `choose` makes for a runtime that frees, with releases; none where that is the runtime, where nothing would
    run again, and with loops and branches, which this runtime frees otherwise."""
    runtime, start = runner.context.runtime, runner.run(())
    allowed = {step for sequence in sequences for step in sequence}
    possible = not start.loose and {RELEASE, SCHEDULE} <= allowed and RELEASE.needs <= runtime.can
    if runtime.collects or len(start.graph.regions) > 1 or not (possible and options.recompute):
        return []
    freeing = Runner(start.graph,
                     runtime.freeing(),
                     runner.context.dims,
                     options,
                     work=runner.work_if_freed)
    made = choose(freeing, options, sequences)
    return [] if made.recomputed is None else [released(runner, made)]


def released(runner: Runner, made: Plan) -> Plan:
    """A plan for a runtime that frees, with releases, for the one of `runner`."""
    start, context = runner.run(()), runner.context
    after = Timeline(made.graph, context.runtime, context.dims)
    return runner.run((RELEASE,), replace(made, before=start.before, after=after,
                                          loose=start.loose))
