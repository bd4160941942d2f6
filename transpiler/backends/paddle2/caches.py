"""Results that hold more than their shape says.

`einsum` keeps the operands as it has turned them, for its gradient, in results without elements. Their names must stay
theirs alone: the gradient takes whatever tensor it finds there for such a copy. What it did not have to turn it keeps under
another name of the operand's own memory: a slice of it, that is all of it. So may be what it gives out of one operand
alone. `rnn` makes a mask like its result, a byte an element, whatever it drops; shape inference says nothing of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet, Iterator, List, Mapping, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.einsum import (EQUATION, GRADIENT, KIND, KINDS, OPERANDS, RESULT,
                                        gradient_is_given, plan_of, result_is_operand, turned)
from transpiler.backends.paddle2.workspaces import attributes_of, kernel_of, values_of
from transpiler.backends.second_names import (is_plain, names_in_one_memory, read_too,
                                              write_together)
from transpiler.ir import NOTHING, Graph, Op, Size, Value

_OF = '@GRAD'  # slots of gradients
_COPIES = 'InnerCache'  # of the operands of einsum, each
_BARE_SHAPES = 'XShape'  # of the operands of such an op, for its gradient: never allocated
_MASKS = {'rnn': ('Out', 'DropoutState')}  # a result, and what has a byte for each of its elements


def count_caches(graph: Graph, op: Op, desc: framework_pb2.OpDesc) -> None:
    """Gives such results of `op`, imported from `desc`, the size that they can have at the most."""
    if desc.type in _MASKS:
        like, masks = _MASKS[desc.type]
        results = values_of(graph, desc.outputs, op.results)
        for result, mask in zip(results.get(like, ()), results.get(masks, ())):
            mask.size = None if result.shape is None else Size.product(result.shape)
    if desc.type != KIND:
        return
    results = values_of(graph, desc.outputs, op.results)
    operands = values_of(graph, desc.inputs, op.operands).get(OPERANDS, ())
    for operand, copy in zip(operands, results.get(_COPIES, ())):
        copy.size, copy.skipped = operand.size, True
    for bare in results.get(_BARE_SHAPES, ()):
        bare.size = NOTHING


def link_caches(graph: Graph, descs: Mapping[int, framework_pb2.OpDesc]) -> None:
    """Takes caches of the main region that hold an operand itself for slices of it: who reads one reads the operand, too. The
    equation alone decides on that, since shapes are not known in each reading of a program."""
    made = [op for op in graph.region_ops(0) if op.kind == KIND]
    elsewhere = graph.touched_elsewhere() if made else frozenset()
    for op in made:
        _link(graph, op, descs[op.id], elsewhere)


def _link(graph: Graph, op: Op, desc: framework_pb2.OpDesc, elsewhere: FrozenSet[int]) -> None:
    kernel = kernel_of(graph, op, desc)
    copies = turned(kernel.attributes(EQUATION))
    if copies is None:
        return
    known = plan_of(kernel.attributes(EQUATION), kernel.slots.get(OPERANDS, ())) is not None
    operands = values_of(graph, desc.inputs, op.operands).get(OPERANDS, ())
    caches = values_of(graph, desc.outputs, op.results).get(_COPIES, ())
    for operand, cache, is_copy in zip(operands, caches, copies.operands):
        if not is_copy and is_plain(operand) and not elsewhere & {operand.id, cache.id}:
            cache.buffer, operand.buffer = operand.id, operand.id
            cache.size = NOTHING if known else cache.size
            read_too(graph, cache, operand)


def link_results(graph: Graph, descs: Mapping[int, framework_pb2.OpDesc]) -> None:
    """Where `einsum`, or its gradient, gives out what it is given, who writes that writes the other, too."""
    pairs: List[Tuple[Value, Value]] = []
    for op in graph.walk():
        found = list(_given_out(graph, op, descs[op.id])) if op.kind in KINDS else []
        if found:
            op.facts = replace(op.facts, side_effect=True)  # made again it would be one more name
        pairs += found
    named = names_in_one_memory(pairs)
    for op in graph.walk() if named else ():
        if not op.regions and op.kind not in KINDS:
            write_together(op, frozenset(op.given_in_place() & named.keys()), named)


def _given_out(graph: Graph, op: Op, desc: framework_pb2.OpDesc) -> Iterator[Tuple[Value, Value]]:
    """What is given, and what has its memory behind `op`."""
    equation = attributes_of(desc)(EQUATION)
    given = values_of(graph, desc.inputs, op.operands)
    made = values_of(graph, desc.outputs, op.results)
    if op.kind == KIND and result_is_operand(equation):
        yield from zip(given.get(OPERANDS, ()), made.get(RESULT, ()))
    elif op.kind == GRADIENT:
        for gradient in made.get(OPERANDS + _OF, ()):
            if gradient_is_given(equation, gradient):
                yield from ((each, gradient) for each in given.get(RESULT + _OF, ()))
