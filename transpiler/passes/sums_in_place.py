"""Sums that a loop carries on are added up where they are.

A runtime that frees late still holds the sums of trips before; these it need not free.

Needs: a runtime in which two names can be one variable. Keeps: the order of ops. Changes: storages of what loops hand on.
"""

from __future__ import annotations

from transpiler.analysis.carried_sums import carried_sums
from transpiler.ir import Graph
from transpiler.passes.context import PassContext


def add_up_in_place(graph: Graph, _context: PassContext) -> Graph:
    """Has each sum take the memory of the one before."""
    for argument, result in carried_sums(graph):
        graph.change(result, storage=graph.values[argument].storage)
    return graph
