"""Tenants: what moves into a storage as one, and when it lives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Dict, Hashable, List, Set, Tuple

from transpiler.analysis.interference import Interference
from transpiler.analysis.lifetimes import largest
from transpiler.ir import Graph, Size
from transpiler.passes.context import PassContext


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


def tenants_by_region(graph: Graph, context: PassContext) -> Dict[int, List[Tenant]]:
    """Everything that may share, by region, in order of first definition."""
    rules = context.interference(graph)
    context.left_alone.update(rules.alone)
    tenants: Dict[int, List[Tenant]] = {}
    for storage, values in graph.by_storage().items():
        if not any(v in rules.alone or v not in rules.spans for v in values):
            region = graph.values[values[0]].region
            tenants.setdefault(region, []).append(_tenant(graph, storage, values, rules))
    for same_region in tenants.values():
        same_region.sort(key=lambda t: (t.first, t.storage))
    return tenants


def _tenant(graph: Graph, storage: int, values: List[int], rules: Interference) -> Tenant:
    value, found = graph.values[values[0]], rules.spans
    is_closed = not all(map(rules.outlived, values))
    end = len(graph.regions[value.region].ops)
    return Tenant(storage,
                  first=min(found[v].first for v in values),
                  last=end if is_closed else max(found[v].last for v in values),
                  shape_last=max(found[v].shape_last for v in values),
                  size=largest([graph.values[v].size for v in values]),
                  dtype=value.dtype,
                  shape=value.extent,
                  closed=is_closed,
                  values=tuple(values))


def in_shared_storages(graph: Graph) -> Set[int]:
    """Values whose storage others have, too."""
    tenants = Counter(value.storage for value in graph.values)
    return {value.id for value in graph.values if tenants[value.storage] > 1}
