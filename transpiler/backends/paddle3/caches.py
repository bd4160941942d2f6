"""Results of `einsum` that hold more, or less, than their shape says.

It keeps the operands as it has turned them, for its gradient, in results that are declared without elements. What it did not have
to turn it keeps under another name of the operand's own memory. What it gives out of one operand alone may be that, too. Of
the results that bear an operand's shape, for the gradient, it allocates none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, FrozenSet, Iterator, Mapping, Tuple

from transpiler.backends.einsum import (EQUATION, GRADIENT, KIND, KINDS, gradient_is_given, plan_of,
                                        result_is_operand, turned)
from transpiler.backends.formulas import Tensor
from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.blocks import YIELD, Unmodelled
from transpiler.backends.paddle3.naming import bare_kind
from transpiler.backends.paddle3.tensors import item_bytes
from transpiler.backends.second_names import is_plain, names_in_one_memory, read_too
from transpiler.ir import NOTHING, Graph, Value

_COPIES, _BARE_SHAPES, _GIVEN = 'inner_cache', 'xshape', 'out_grad'


def link_caches(graph: Graph, handles: Mapping[int, Any]) -> FrozenSet[int]:
    """Counts what `einsum` keeps. In the main region, who reads what is an operand under another name reads the operand, too; `handles`
    are of the ops. Gives the operands of which that is, or may be so: the executor does not know of it when it works in place on them."""
    doubled = set()
    found = [op for op in graph.ops if op.id in handles and bare_kind(handles[op.id].op) == KIND]
    elsewhere = graph.touched_elsewhere() if found else frozenset()
    for op in found:
        for operand, cache in _in_one_memory(graph, handles[op.id]):
            doubled.add(operand.id)
            operand.skipped = True  # let go of alone, it would still be there under its other name
            if op.region or elsewhere & {operand.id, cache.id}:
                continue
            read_too(graph, cache, operand)
            if is_plain(operand):
                cache.buffer, operand.buffer = operand.id, operand.id
    return frozenset(doubled)


def link_results(graph: Graph, handles: Mapping[int, Any]) -> Dict[int, FrozenSet[int]]:
    """By value: all that have its memory, where `einsum`, or its gradient, gives out what it is given. Raises Unmodelled where a loop or a
    branch goes on with one of them."""
    pairs = []
    for op in graph.ops:
        if op.id in handles and op.kind in KINDS:
            found = list(_given_out(graph, handles[op.id]))
            if found:  # made again it would be one more name
                op.facts = replace(op.facts, side_effect=True)
            pairs += found
    named = names_in_one_memory(pairs)
    goes_on = (op for op in graph.ops
               if op.regions or op.id in handles and handles[op.id].op.name() == YIELD)
    if named and any(v in named for op in goes_on for v in op.operands):
        raise Unmodelled('a loop or a branch that goes on with what einsum has given out as it was')
    return named


def _given_out(graph: Graph, handle: Any) -> Iterator[Tuple[Value, Value]]:
    """What is given, and what has its memory behind the op."""
    values, equation = graph.values, given_attributes(handle.op)[EQUATION]
    results = [values[i] for i in handle.results[0] if i >= 0]
    if bare_kind(handle.op) == KIND and result_is_operand(equation):
        yield from ((values[i], result) for i in handle.operands[0] for result in results)
    elif bare_kind(handle.op) == GRADIENT:
        given = values[handle.operands[handle.op.get_input_names().index(_GIVEN)][0]]
        yield from ((given, each) for each in results if gradient_is_given(equation, each))


def _in_one_memory(graph: Graph, handle: Any) -> Iterator[Tuple[Value, Value]]:
    """Operands, and what is or may be another name of them; the sizes of all that is kept."""
    names = handle.op.get_output_names()
    values = graph.values
    by_name = dict(zip(names, handle.results))
    operands = [values[i] for i in handle.operands[0]]
    equation = given_attributes(handle.op)[EQUATION]
    copies = turned(equation)
    known = plan_of(equation, [_tensor(each) for each in operands]) is not None
    for at, i in enumerate(by_name.get(_COPIES, ())):
        if i < 0 or at >= len(operands):
            continue
        operand, cache = operands[at], values[i]
        is_copy = copies is not None and copies.operands[at]
        cache.shape, cache.skipped = None, True
        cache.size = NOTHING if known and not is_copy else operand.size
        if not is_copy:
            yield operand, cache
    for i in by_name.get(_BARE_SHAPES, ()):
        if i >= 0:
            values[i].size = NOTHING


def _tensor(value: Value) -> Tensor:
    return Tensor(value.shape, item_bytes(value.dtype) if value.dtype else 1)
