"""Products that make one of their gradients and no other: what they read then."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Set

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.registry import unread_when_released
from transpiler.ir import RELEASE, Graph, Op

_MATRIX = 2  # dims


def makes_separately(graph: Graph, op: Op) -> bool:
    """Whether what `op` multiplies are matrices, or as many on both sides: for a vector, and where one is repeated, Paddle's
    kernel goes other ways, on which it looks at more."""
    shapes = [graph.values[v].shape for v in op.operands if v >= 0]
    if any(shape is None or len(shape) < _MATRIX for shape in shapes):
        return False
    if not op.kind.startswith(('matmul', 'bmm')):
        return True
    stacks = {shape[:-_MATRIX] for shape in shapes if shape is not None}
    return len(stacks) == 1 or any(len(shape) == _MATRIX for shape in shapes if shape is not None)


def spare_released(graph: Graph, descs: Mapping[int, framework_pb2.OpDesc]) -> None:
    """Of what the program has released the shape is left, and ops that make one gradient alone read no more of it."""
    for region in graph.regions:
        empty: Set[int] = set()
        for op in graph.region_ops(region.id):
            unread = unread_when_released(descs[op.id]) if empty and op.id in descs else ()
            gone = frozenset(p for p in unread if op.operands[p] in empty)
            if gone:
                facts = replace(op.facts, shape_only=op.facts.shape_only | gone)
                graph.ops[op.id] = op = replace(op, facts=facts)
            if empty:
                empty.difference_update(op.writes(), *(each.writes() for each in graph.inside(op)))
            if op.kind == RELEASE:
                empty.update(op.writes())
