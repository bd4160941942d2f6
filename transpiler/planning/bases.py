"""What recomputing in the main block can start from."""

from __future__ import annotations

from typing import Container, Iterator, List, Sequence

from transpiler.planning.plans import Plan
from transpiler.planning.runner import Runner
from transpiler.planning.sequences import (FIRST, RECOMPUTE, RECOMPUTE_LESS, SCHEDULE, SPLIT, STAYS,
                                           UPDATES, NamedPass, Sequences, within_loops)


def bases(runner: Runner,
          plans: Sequence[Plan],
          sequences: Sequences,
          whole: bool = False,
          left_out: Container[NamedPass] = ()) -> List[Plan]:
    """What `plans` do inside loops and branches, in some orders of the main block.

    Clones start as soon as they can unless their order is held, so that must be allowed too. `whole`: with products that are one op,
    too: seldom is what they lead to cheaper. `left_out`: passes that are not run.
    """
    allowed = {step for sequence in sequences for step in sequence}
    gains = runner.context.runtime.collects and bool(runner.context.recompute)
    if not gains or not {SCHEDULE, RECOMPUTE} <= allowed:
        return []
    first = runner.run(first_steps(sequences)).steps
    starts = dict.fromkeys((first,
                            tuple(s for s in first if s is not SPLIT)) if whole else (first,))
    orders = [order for order in _orders(plans[0]) if order not in left_out]
    inner = dict.fromkeys(within_loops(plan.steps) for plan in plans)
    for loops in tuple(inner):  # what loops do not take, the main block may
        inner[tuple(RECOMPUTE_LESS if step is RECOMPUTE else step for step in loops)] = None
    found = (runner.run((*start, *loops, order))
             for start in starts
             for loops in inner
             for order in orders)
    return list({id(base): base for base in found}.values())


def _orders(plan: Plan) -> Iterator[NamedPass]:
    """Updates early, the order that `plan` has, and where workers talk that of what stays."""
    yield UPDATES
    if SCHEDULE in plan.steps:
        yield SCHEDULE
    if any(op.facts.collective for op in plan.graph.region_ops(0)):
        yield STAYS


def first_steps(sequences: Sequences) -> Tuple[NamedPass, ...]:
    """What every sequence begins with, where ops may be moved."""
    return FIRST if any(SCHEDULE in sequence for sequence in sequences) else ()
