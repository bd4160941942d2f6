"""A fresh start: what an earlier run has left behind is forgotten before a loop's gradient, or a kernel that goes on with its
result as it is, takes it for its own.

Needs: all other passes before it. Keeps: the order of ops. Changes: adds FORGET ops to the main region.
"""

from __future__ import annotations

from transpiler.analysis.leftovers import left_by_earlier_runs
from transpiler.ir import FORGET, Graph
from transpiler.passes.context import PassContext
from transpiler.passes.releases.release_ops import add_op


def forget_earlier_runs(graph: Graph, context: PassContext) -> Graph:
    """Adds FORGET ops before each op that would find what an earlier run left, where the runtime retains that."""
    if context.runtime.collects:
        return graph
    left, main = left_by_earlier_runs(graph), graph.regions[0]
    done = {v for op in graph.region_ops(0) if op.kind == FORGET for v in op.writes()}
    old_ops, main.ops = main.ops, []
    for op in old_ops:
        for value in (v for v in left.get(op, ()) if v not in done):
            add_op(graph, 0, FORGET, (), (value,))
        main.ops.append(op)
    return graph
