"""What a runtime keeps for a gradient that nobody there reads.

Needs: nothing. Keeps: the order of ops. Changes: drops KEEP ops. What is read of a trip is kept for its readers.
"""

from __future__ import annotations

from transpiler.ir import KEEP, Graph
from transpiler.passes.context import PassContext


def drop_unread_keeps(graph: Graph, _context: PassContext) -> Graph:
    """Comes before recomputation, which takes what a KEEP op names for needed."""
    for region in graph.regions:
        region.ops = [op for op in region.ops if graph.ops[op].kind != KEEP]
    return graph
