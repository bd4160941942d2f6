"""Gradients of broadcasts: when their kernels work in place."""

from __future__ import annotations

from transpiler.backends.broadcasts import in_one_run
from transpiler.ir import Graph, Op


def works_in_place(graph: Graph, op: Op) -> bool:
    """Whether the kernel of `op` writes to its operand's memory where it finds its result there.

    Paddle's registry says so of all elementwise gradients, but that of a broadcast over any dims but the outermost or
    innermost of the other operand takes new memory instead (2.6.2, CPU).
    """
    if not (op.kind.startswith('elementwise_') and op.kind.endswith('_grad')):
        return True
    shapes = {graph.values[v].shape or () for v in op.operands if v >= 0}
    return in_one_run(shapes)
