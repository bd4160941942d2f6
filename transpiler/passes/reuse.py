"""Storage reuse: values that are never alive together share one storage, through the MemoryPool.

Needs: nothing; in-place coalescing before it gives it longer chains. Keeps: the order of ops. Changes:
`storage` of values.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Dict, FrozenSet, Hashable, List, Optional, Tuple

from transpiler.analysis.lifetimes import largest
from transpiler.analysis.positions import Span, spans
from transpiler.ir import Graph, Size
from transpiler.passes.context import PassContext, Reuse
from transpiler.passes.eligibility import keeps_its_name, never_shared
from transpiler.passes.memory_pool import MemoryPool
from transpiler.passes.parallel import EveryOrder


@dataclass
class Tenant:
    """Values that share one storage already, as one: its live range in positions of its region.

    After `last` the data is dead; until `shape_last` somebody reads the shape. A `closed` tenant keeps its name
    and contents to the end: nobody moves in after it.
    """

    storage: int
    first: int
    last: int
    shape_last: int
    size: Size
    dtype: str
    shape: Hashable
    closed: bool
    values: Tuple[int, ...]


def reuse_storages(graph: Graph, context: PassContext) -> Graph:
    """Assigns storages region by region, in order of first definition."""
    found = spans(graph)
    alone = never_shared(graph, found)
    context.left_alone.update(alone)
    closed = keeps_its_name(graph, context.skip_grads)
    every_order = EveryOrder(graph) if context.parallel else None
    moved: Dict[int, int] = {}
    by_region = _tenants(graph, found, alone, closed)
    for tenants in by_region.values():
        moved.update(_assign(tenants, context, every_order))
    for value in graph.values:
        value.storage = moved.get(value.storage, value.storage)
    return graph


def _tenants(graph: Graph, found: Dict[int, Span], alone: Dict[int, str],
             closed: FrozenSet[int]) -> Dict[int, List[Tenant]]:
    """Tenants by region, in order of first definition."""
    members: Dict[int, List[int]] = {}
    for value in graph.values:
        members.setdefault(value.storage, []).append(value.id)
    tenants: Dict[int, List[Tenant]] = {}
    for storage, values in members.items():
        if not any(v in alone or v not in found for v in values):
            region = graph.values[values[0]].region
            tenants.setdefault(region, []).append(_tenant(graph, storage, values, found, closed))
    for same_region in tenants.values():
        same_region.sort(key=lambda t: (t.first, t.storage))
    return tenants


def _tenant(graph: Graph, storage: int, values: List[int], found: Dict[int, Span],
            closed: FrozenSet[int]) -> Tenant:
    value = graph.values[values[0]]
    is_closed = any(v in closed or found[v].kept for v in values)
    end = len(graph.regions[value.region].ops)
    return Tenant(storage,
                  first=min(found[v].first for v in values),
                  last=end if is_closed else max(found[v].last for v in values),
                  shape_last=max(found[v].shape_last for v in values),
                  size=largest([graph.values[v].size for v in values]),
                  dtype=value.dtype,
                  shape=value.shape,
                  closed=is_closed,
                  values=tuple(values))


def _assign(tenants: List[Tenant], context: PassContext,
            every_order: Optional[EveryOrder]) -> Dict[int, int]:
    """New storage by old storage, for every tenant that moves in with another."""
    pool = MemoryPool(context.dims, context.level)
    moved: Dict[int, int] = {}
    occupants: Dict[int, Tuple[int, ...]] = {}  # the last values in each storage
    running: List[Tuple[int, int, Tenant, int]] = []  # by last use
    for number, tenant in enumerate(tenants):
        while running and running[0][0] < tenant.first:
            _, _, dead, storage = heapq.heappop(running)
            pool.release(storage, dead.dtype, dead.shape, dead.shape_last)
        allowed = lambda storage, tenant=tenant: every_order is None or every_order.precedes(
            occupants[storage], tenant.values)
        lease = pool.acquire(tenant.storage, tenant.size, tenant.dtype, tenant.shape, tenant.first,
                             allowed)
        occupants[lease.storage] = tenant.values  # those before them precede them
        if lease.tier:
            moved[tenant.storage] = lease.storage
            context.reuses.append(
                Reuse(tenant.storage, lease.storage, lease.tier, lease.waste_bytes))
        if not tenant.closed:
            heapq.heappush(running, (tenant.last, number, tenant, lease.storage))
    return moved
