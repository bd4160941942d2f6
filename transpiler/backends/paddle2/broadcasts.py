"""Gradients of broadcasts: when their kernels work in place."""

from __future__ import annotations

from typing import Tuple

from transpiler.ir import ONE, Graph, Op, Size


def works_in_place(graph: Graph, op: Op) -> bool:
    """Whether the kernel of `op` writes to its operand's memory where it finds its result there.

    Paddle's registry says so of all elementwise gradients, but that of a broadcast over any dims but the outermost or
    innermost of the other operand takes new memory instead (2.6.2, CPU).
    """
    if not (op.kind.startswith('elementwise_') and op.kind.endswith('_grad')):
        return True
    shapes = {graph.values[v].shape or () for v in op.operands if v >= 0}
    whole = max(shapes, key=lambda shape: (len(shape), sum(dim != ONE for dim in shape)))
    return all(_covers(whole, shape) for shape in shapes)


def _covers(whole: Tuple[Size, ...], shape: Tuple[Size, ...]) -> bool:
    """Whether `shape`, its innermost dims of 1 left out, is a run of the dims of `whole`."""
    start, last = len(whole) - len(shape), len(shape)
    while last and shape[last - 1] == ONE:
        last -= 1
    return whole[start:start + last] == shape[:last]
