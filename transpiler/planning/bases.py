"""What recomputing in the main block can start from."""

from __future__ import annotations

from functools import partial
from typing import Callable, Container, Iterator, List, Optional, Sequence, Tuple

from transpiler.ir import Graph
from transpiler.planning.plans import Plan
from transpiler.planning.runner import Runner
from transpiler.planning.sequences import (FIRST, ORDERS, RECOMPUTE, RECOMPUTE_LESS, SCHEDULE,
                                           SPLIT, STAYS, UNKEPT, UPDATES, NamedPass, Sequences,
                                           within_loops)

_OPS_IN_ORDER = 4_000  # ops of all other orders together that are looked at


def bases(runner: Runner,
          plans: Sequence[Plan],
          sequences: Sequences,
          whole: bool = False,
          left_out: Container[NamedPass] = ()) -> List[Plan]:
    """What `plans` do inside loops and branches, in some orders of the main block.

    Clones start as soon as they can unless their order is held, so that must be allowed too. `whole`: with products that are one op,
    too: seldom is what they lead to cheaper, but where workers talk. `left_out`: passes that are not run.
    """
    allowed = {step for sequence in sequences for step in sequence}
    gains = runner.context.runtime.collects and bool(runner.context.recompute)
    if not gains or not {SCHEDULE, RECOMPUTE} <= allowed:
        return []
    first = runner.run(first_steps(sequences)).steps
    starts = dict.fromkeys((first, tuple(
        s for s in first if s is not SPLIT)) if whole or _talk(plans[0]) else (first,))
    orders = [order for order in _orders(plans[0]) if order not in left_out]
    inner = dict.fromkeys(within_loops(plan.steps) for plan in plans)
    for loops in tuple(inner):  # what loops do not take, the main block may
        inner[tuple(RECOMPUTE_LESS if step is RECOMPUTE else step for step in loops)] = None
    found = (runner.run((*start, *loops, order))
             for start in starts
             for loops in inner
             for order in orders)
    made = list({id(base): base for base in found}.values())
    return made if plans[0].original.trains else made + in_orders(runner, first)


def reordered(runner: Runner, graph: Graph) -> Optional[Callable[[Plan], Plan]]:
    """What puts clones and all into another order, where no gradients follow; there clones stand where they were found to be good."""
    return None if graph.trains else partial(runner.run, (SCHEDULE,))


def in_orders(runner: Runner, first: Sequence[NamedPass] = ()) -> List[Plan]:
    """Where no gradients follow, what an order needs that computes nothing again says little of what it needs if some of it does:
    those of the lowest peaks, as many as the work allows."""
    most = min(len(ORDERS) + 1, max(1, _OPS_IN_ORDER // max(1, len(runner.run(()).graph.ops))))
    orders = (SCHEDULE, *ORDERS) if most > 1 else (SCHEDULE,)
    found = [runner.run((*first, order)) for order in orders]
    return sorted(found, key=lambda base: base.after.peak_bytes)[:most]


def _orders(plan: Plan) -> Iterator[NamedPass]:
    """Updates early, the order that `plan` has, and where workers talk that of what stays."""
    yield UPDATES
    if SCHEDULE in plan.steps:
        yield SCHEDULE
    if _talk(plan):
        yield STAYS


def _talk(plan: Plan) -> bool:
    """Whether workers do, in the main block. What they send keeps its order: more of it may wait than an order without
    recomputation shows."""
    return any(op.facts.collective for op in plan.graph.region_ops(0))


def first_steps(sequences: Sequences) -> Tuple[NamedPass, ...]:
    """What every sequence begins with: where ops may not be moved, only what moves none, and lets recomputation gain something."""
    allowed = {step for sequence in sequences for step in sequence}
    if SCHEDULE in allowed:
        return FIRST
    return (UNKEPT,) if RECOMPUTE in allowed else ()
