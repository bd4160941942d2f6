"""What a program that runs in two parts keeps from the first for the second."""

from __future__ import annotations

from typing import Dict, Optional

from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, Op


def boundary_of(graph: Graph) -> Optional[Op]:
    """The op between the parts; None for a program that runs as a whole."""
    return next((op for op in graph.region_ops(0) if op.facts.boundary), None)


def kept_bytes(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """By value: the bytes of what exists between the two parts, resting memory not counted; {} where there is one part."""
    boundary = boundary_of(graph)
    if boundary is None:
        return {}
    return {
        each.storage: timeline.evaluate(each.size) * timeline.evaluate(each.count)
        for each in timeline.residents(boundary.id)
        if each.storage not in boundary.results
    }


def given_bytes(graph: Graph, timeline: Timeline) -> int:
    """Bytes of what the caller gives the first part and gets from it, and so may hold when the second is through."""
    given = {v.storage: v.bound for v in graph.values if v.fed}
    for op in graph.region_ops(0):
        if op.facts.boundary:
            break
        made = (graph.values[v] for v in op.writes())
        given.update((v.storage, v.bound) for v in made if v.fetched and not v.persistable)
    return sum(timeline.evaluate(size) for size in given.values() if size is not None)
