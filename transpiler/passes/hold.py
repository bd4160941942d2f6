"""Which regions need their order held: the runtime starts whatever is ready, not what stands first.

Needs: the planned graph. Keeps and changes nothing: it answers a question. Holding an order costs what its branches could
have gained by running side by side, so only regions are held where another order would need more memory.
"""

from __future__ import annotations

from collections import deque
from typing import FrozenSet, Iterable, List

from transpiler.analysis.accesses import Accesses
from transpiler.analysis.dependences import Dependences, dependences
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph

# Peaks closer than this are the same: the runtime's collector is not that exact.
_TOLERANCE = 1.01


def regions_to_hold(original: Graph, planned: Graph, timeline: Timeline) -> FrozenSet[int]:
    """Regions whose planned order is another than the original, or hoisting would raise the peak of all.

    `timeline` is of the planned graph. A runtime that retains everything needs the same in every order.
    """
    if not timeline.lifetimes.runtime.collects:
        return frozenset()
    limit = timeline.peak_bytes * _TOLERANCE
    accesses = Accesses(planned)
    held = {r.id for r in planned.regions if was_moved(original, planned, r.id)}
    for region in planned.regions:
        if region.id not in held and _hoisted_peak(dependences(planned, region.id, accesses),
                                                   region.id, timeline) > limit:
            held.add(region.id)
    return frozenset(held)


def was_moved(original: Graph, planned: Graph, region: int) -> bool:
    """Whether the ops of `region` that the original has stand in another order."""
    origins = [planned.ops[op].origin for op in planned.regions[region].ops]
    return [o for o in origins if o is not None] != original.regions[region].ops


def hoisted_orders(found: Dependences) -> Iterable[List[int]]:
    """Two orders that a runtime may fall into that knows dependences alone: first come first served, and last come."""
    for take in (deque.popleft, deque.pop):
        missing = [len(ops) for ops in found.before]
        ready = deque(op for op, count in enumerate(missing) if not count)
        order: List[int] = []
        while ready:
            op = take(ready)
            order.append(op)
            for other in found.after[op]:
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
        yield order


def _hoisted_peak(found: Dependences, region: int, timeline: Timeline) -> int:
    orders = (order for order in hoisted_orders(found) if order != sorted(order))
    return max((timeline.peak_within(region, [found.ops[i] for i in order]) for order in orders),
               default=0)
