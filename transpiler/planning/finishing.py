"""What a plan gets once it is chosen: room between updates and products, orders that are held, releases in time, and a start
from which nothing of an earlier run is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator

from transpiler.planning.lag import in_order_and_in_time
from transpiler.planning.plans import Plan, PlanOptions
from transpiler.planning.runner import Runner
from transpiler.planning.sequences import FETCHES, FRESH, LET_GO, SCHEDULE, SPACED, Sequences
from transpiler.runtime import Can, Runtime

_MORE_FOR_SPEED = 1.005


def finish(runner: Runner, chosen: Plan, options: PlanOptions, sequences: Sequences) -> Plan:
    """`chosen` as it is to run. Under a budget the first way to go on that keeps it, or else the last."""
    if chosen.recomputed is not None or chosen.extra_seconds:
        chosen = replace(chosen, step_seconds=runner.step_seconds)
    holds = may_hold(runner.context.runtime, options, sequences)
    done = chosen
    for start in _starts(runner, chosen, options):
        done = in_order_and_in_time(runner, start, options.budget) if holds else start
        done = runner.run((LET_GO,), done)
        if done.changed:
            done = runner.run((FETCHES, FRESH), done)
        if options.budget is not None and not done.frees_in_time:
            # No release comes any more: what is left to the collector stays so.
            done = replace(done, loose=True)
        if options.budget is None or done.sure_bytes <= options.budget:
            break
    return done


def may_hold(runtime: Runtime, options: PlanOptions, sequences: Sequences) -> bool:
    """Whether orders may be held, and what is dead released in time: what moves no ops does it for a budget alone."""
    for_budget = options.budget is not None and runtime.collects and bool(sequences)
    may = Can.PIN in runtime.can and not options.parallel
    return may and (for_budget or any(SCHEDULE in each for each in sequences))


def _starts(runner: Runner, chosen: Plan, options: PlanOptions) -> Iterator[Plan]:
    """Updates kept apart from products where clones have come in between, if there is room for it; and `chosen`."""
    if chosen.recomputed is not None and runner.context.runtime.collects:
        spaced = runner.run((SPACED,), chosen)
        if options.budget is not None or spaced.timely_bytes <= chosen.timely_bytes * _MORE_FOR_SPEED:
            yield spaced
    yield chosen
