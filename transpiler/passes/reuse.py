"""Storage reuse: values that are never alive together share one storage.

Needs: nothing; in-place coalescing before it gives it longer chains. Keeps: the order of ops. Changes:
`storage` of values.
"""

from __future__ import annotations

import bisect
import heapq
from functools import partial
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from transpiler.analysis.interference import shape_forbids
from transpiler.analysis.timeline import Timeline
from transpiler.assignment import Fits, assign
from transpiler.assignment.sharing import MayShare
from transpiler.ir import Graph, Size
from transpiler.passes.context import SMALL_SHARE, PassContext, Reuse
from transpiler.passes.memory_pool import LARGER, SAME, SMALLER, MemoryPool
from transpiler.passes.side_by_side import EveryOrder
from transpiler.passes.tenants import Tenant, tenants_by_region

# Of more than these the pool alone decides: the others look at pairs.
_MOST_FOR_PORTFOLIO = 3_000

# (tenants of one dtype, what the caller allows, the orders to be safe in) -> for each the first tenant of its storage
Strategy = Callable[[List[Tenant], PassContext, Optional[EveryOrder]], List[int]]


def reuse_storages(graph: Graph, context: PassContext) -> Graph:
    """Assigns storages region by region, the best of the pool's way, the assignment portfolio's, and nothing.

    A runtime that frees a name after its last use holds a shared one through the gap between two tenants. There, few
    storages are no aim, and the pool, which prefers what was freed last, is the one in use.
    """
    return _reused(graph, context, range(len(graph.regions)))


def reuse_inside(graph: Graph, context: PassContext) -> Graph:
    """The same for all regions but the main one, where RELEASE ops do better."""
    return _reused(graph, context, range(1, len(graph.regions)))


def reuse_small_inside(graph: Graph, context: PassContext) -> Graph:
    """The same for what is small, and stays in its region, in loops: a runtime makes each variable anew in each trip, which takes longer
    than small kernels do (Paddle 2.6.2: 2.4 microseconds, and 5 nanoseconds for each pair of them), and so does what frees it."""
    most = int(context.collecting(graph).peak_bytes * SMALL_SHARE)
    return _reused(graph, context, sorted(graph.in_loops()), most)


def _reused(graph: Graph,
            context: PassContext,
            regions: Iterable[int],
            most: Optional[int] = None) -> Graph:
    """`most`: bytes of what shares, of which nothing keeps its name to the end; None for all."""
    every_order = EveryOrder(graph) if context.parallel else None
    found = tenants_by_region(graph, context)
    shares = lambda t: most is None or not t.closed and t.size.evaluate(context.dims) <= most
    groups = [
        group for region in regions for group in _by_dtype(filter(shares, found.get(region, [])))
    ]
    strategies = [pool_tiers]
    if not context.runtime.collects:
        strategies.append(smallest_assignment)
        strategies.append(_alone)
    plans = [_moves_by(strategy, groups, context, every_order) for strategy in strategies]
    best = plans[0]
    if any(plan != best for plan in plans):
        best, context.after = _lowest(graph, plans, context)
    context.reuses.extend(best)
    return _moved(graph, best)


def _lowest(graph: Graph, plans: List[List[Reuse]],
            context: PassContext) -> Tuple[List[Reuse], Timeline]:
    """The plan of the lowest peak, and the timeline of what it makes of `graph`."""
    judged: List[Tuple[List[Reuse], Timeline]] = []
    for moves in plans:
        if any(moves == other for other, _ in judged):
            continue
        measure = partial(Timeline, _moved(graph.fork(), moves), context.runtime, context.dims)
        # Of a graph in which nothing moves, it is known from before.
        judged.append((moves, measure() if moves else context.once('timeline', measure)))
    return min(judged, key=lambda each: each[1].peak_bytes)


def pool_tiers(tenants: List[Tenant], context: PassContext,
               every_order: Optional[EveryOrder]) -> List[int]:
    """Each tenant into the storage that the MemoryPool has for it, in order of first definition."""
    pool = MemoryPool(context.dims, context.level)
    number = {tenant.storage: i for i, tenant in enumerate(tenants)}
    chosen: List[int] = []
    occupants: Dict[int, Tuple[int, ...]] = {}  # the last values in each storage
    running: List[Tuple[int, int, int]] = []  # (last use, tenant, storage)
    for i, tenant in enumerate(tenants):
        while running and running[0][0] < tenant.first:
            _, dead, storage = heapq.heappop(running)
            pool.release(storage, tenants[dead].dtype, tenants[dead].shape,
                         tenants[dead].shape_last)
        allowed = lambda storage, tenant=tenant: every_order is None or every_order.precedes(
            occupants[storage], tenant.values)
        lease = pool.acquire(tenant.storage, tenant.size, tenant.dtype, tenant.shape, tenant.first,
                             allowed)
        occupants[lease.storage] = tenant.values  # those before them precede them
        chosen.append(number[lease.storage])
        if not tenant.closed:
            heapq.heappush(running, (tenant.last, i, lease.storage))
    return chosen


def smallest_assignment(tenants: List[Tenant], context: PassContext,
                        every_order: Optional[EveryOrder]) -> List[int]:
    """The fewest bytes in all storages together, as `transpiler.assignment` finds them, for the hinted dims.

    For every other value of the dims the storages are as safe: who fits into whom is decided on polynomials. At level 0
    the first tenant of a storage is its largest.
    """
    if len(tenants) > _MOST_FOR_PORTFOLIO:
        return pool_tiers(tenants, context, every_order)
    if every_order is not None:
        return _smallest(tenants, context, every_order)
    # Passes in other places leave most tenants as they are: the same question comes again and again.
    asked = [(t.first, t.last, t.shape_last, t.size, t.shape) for t in tenants]
    return context.answer((_smallest, *asked), lambda: _smallest(tenants, context, None))


def _smallest(tenants: List[Tenant], context: PassContext,
              every_order: Optional[EveryOrder]) -> List[int]:
    ranges = np.array([(t.first, t.last) for t in tenants], dtype=np.int64)
    sizes = np.array([t.size.evaluate(context.dims) for t in tenants], dtype=np.int64)
    fits = Fits.of_sizes([t.size for t in tenants], None if context.level else ranges[:, 0])
    found = assign(ranges, sizes, _may_share(tenants, every_order), seconds=0, fits=fits)
    first: Dict[int, int] = {}  # by storage: tenants come in order of definition
    return [first.setdefault(storage, i) for i, storage in enumerate(found.storages.tolist())]


def _alone(tenants: List[Tenant], _: PassContext, __: Optional[EveryOrder]) -> List[int]:
    """Nobody moves in with another: a name that is shared may cost more by what the executor can't do in place then."""
    return list(range(len(tenants)))


def _may_share(tenants: List[Tenant], every_order: Optional[EveryOrder]) -> MayShare:
    """While the shape of a dead tenant is read, only one of the same shape moves in."""
    pairs = list(_apart(tenants))
    if every_order is None:
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)
    apart = set(pairs)

    def allowed(i: int, j: int) -> bool:
        i, j = min(i, j), max(i, j)
        return (i, j) not in apart and every_order.precedes(tenants[i].values, tenants[j].values)

    return allowed


def _apart(tenants: List[Tenant]) -> Iterator[Tuple[int, int]]:
    """Each whose shape is read when it is dead, and those that begin before that is through and may not take its place."""
    by_first = sorted(range(len(tenants)), key=lambda i: tenants[i].first)
    firsts = [tenants[i].first for i in by_first]
    for i, tenant in enumerate(tenants):
        if tenant.shape_last > tenant.last:
            begin = bisect.bisect_right(firsts, tenant.last)
            end = bisect.bisect_right(firsts, tenant.shape_last)
            for other in by_first[begin:end]:
                facts = tenants[other]
                if shape_forbids(tenant.shape, tenant.shape_last, facts.shape, facts.first):
                    yield i, other


def _by_dtype(tenants: Iterable[Tenant]) -> Iterable[List[Tenant]]:
    groups: Dict[str, List[Tenant]] = {}
    for tenant in tenants:
        groups.setdefault(tenant.dtype, []).append(tenant)
    return groups.values()


def _moves_by(strategy: Strategy, groups: List[List[Tenant]], context: PassContext,
              every_order: Optional[EveryOrder]) -> List[Reuse]:
    return [
        move for tenants in groups
        for move in _moves(tenants, strategy(tenants, context, every_order), context.dims)
    ]


def _moves(tenants: List[Tenant], chosen: List[int], dims: Mapping[str, int]) -> Iterator[Reuse]:
    """Who takes over whose memory, and in which tier of the pool it would have been found."""
    has: Dict[int, Size] = {}  # by storage
    for i, tenant in enumerate(tenants):
        size = has.setdefault(chosen[i], tenant.size)
        if chosen[i] == i:
            continue
        tier = SAME if size == tenant.size else LARGER if size >= tenant.size else SMALLER
        waste = max(0, size.evaluate(dims) - tenant.size.evaluate(dims))
        if tier == SMALLER:
            has[chosen[i]] = tenant.size
        yield Reuse(tenant.storage, tenants[chosen[i]].storage, tier, waste)


def _moved(graph: Graph, moves: List[Reuse]) -> Graph:
    storage = {move.value: move.storage for move in moves}
    for value in list(graph.values):
        if value.storage in storage:
            graph.change(value.id, storage=storage[value.storage])
    return graph
