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
