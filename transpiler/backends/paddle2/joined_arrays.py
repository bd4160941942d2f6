"""Tensors of arrays that operators have under names of their own, too.

`tensor_array_to_tensor` has another operator join the tensors, which takes a list of variables. So it makes variables in its scope,
called after the array, that share the tensors' memory; its gradient does the same again, and makes the array of gradients of variables
more. Paddle's executor knows of none of them: nobody lets go of that memory before the operator next runs in that scope, which is in
the next run, or before the scope ends. By then the first have got the memory of other tensors, in which others may have been written
meanwhile, while the gradient's take what they had.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Mapping, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.workspaces import values_of
from transpiler.ir import Graph, Op, Value, ValueKind

JOIN = 'tensor_array_to_tensor'
_GRADIENT = f'{JOIN}_grad'
_ARRAY, _ARRAY_GRADIENT = 'X', 'X@GRAD'  # slots
_SHARED, _MADE = '@JOINED', '@JOINED@GRAD'  # what an array's name ends in for those variables, all together


def link_joined(graph: Graph, descs: Mapping[int, framework_pb2.OpDesc]) -> None:
    """Gives such operators results more: those variables, as one array."""
    found: Dict[Tuple[int, str], Value] = {}  # by region and name

    def variables(op: Op, array: Value, suffix: str) -> Value:
        key = op.region, array.name + suffix
        if key not in found:
            found[key] = graph.new_value(key[1], op.region, kind=ValueKind.ARRAY, lasting=True)
        return found[key]

    for op in [each for each in graph.walk() if each.kind in (JOIN, _GRADIENT)]:
        desc = descs[op.id]
        arrays = values_of(graph, desc.inputs, op.operands).get(_ARRAY, ())
        for array in arrays:
            _shares(op, array.id, variables(op, array, _SHARED).id)
            for gradient in values_of(graph, desc.outputs, op.results).get(_ARRAY_GRADIENT, ()):
                _is_made_of(op, variables(op, array, _MADE).id, gradient.id)


def _shares(op: Op, array: int, variables: int) -> None:
    """The variables get the memory that the array's tensors have."""
    op.results += (variables,)
    pair = op.operands.index(array), len(op.results) - 1
    op.facts = replace(op.facts, one_memory=op.facts.one_memory + (pair,))


def _is_made_of(op: Op, variables: int, array: int) -> None:
    """The array's tensors are made in the memory that the variables have."""
    op.operands += (variables,)
    op.results += (variables,)
    pair = len(op.operands) - 1, op.results.index(array)
    op.facts = replace(op.facts, one_memory=op.facts.one_memory + (pair,))
