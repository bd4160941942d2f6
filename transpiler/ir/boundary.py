"""Programs that are run in two parts: a forward part, and a backward part when its caller asks for gradients.

They are planned as one, with an op between the parts that nothing crosses: its results are what the caller gives the
backward part. What crosses it is kept from one part to the other, and both know it by its name alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet, Iterator

from transpiler.ir.graph import Graph, Op

BOUNDARY = 'boundary'


def divide(graph: Graph, kept: FrozenSet[str], others: FrozenSet[str] = frozenset()) -> None:
    """Marks what stands behind the boundary as backward, what the caller holds as there to the end, and what `others` may write
    before the backward part runs.

    What one part hands to the other is no buffer to work in place on: in the first it is an output, in the second an input.
    """
    behind, made_before = False, set()
    for op in graph.region_ops(0):
        op.backward = behind and not op.facts.boundary
        if behind:
            pairs = tuple((i, j) for i, j in op.facts.in_place if op.operands[i] not in made_before)
            op.facts = replace(op.facts, in_place=pairs)
        elif op.facts.boundary:
            behind = True  # nothing is made again ahead of it
        else:
            made_before.update(op.results)
    for value in graph.values:
        value.fetched = value.fetched or value.fed or value.name in kept
        value.written_between = value.name in others


def with_inputs_let_go(graph: Graph) -> Graph:
    """The same, as if the caller held none of its inputs for longer than the first part runs, or the program needs them."""
    fed = frozenset(v.id for v in graph.values if v.fed)
    values = [replace(v, fed=False, fetched=False) if v.id in fed else v for v in graph.values]
    first = graph.regions[0].ops[0]
    ops = [_holding(op, fed, op.id == first or op.facts.boundary) for op in graph.ops]
    return Graph(values, ops, list(graph.regions))


def _holding(op: Op, inputs: FrozenSet[int], reads: bool) -> Op:
    """`op`, which may not work in place on inputs, and `reads` them, or does not."""
    pairs = tuple(pair for pair in op.facts.in_place if op.operands[pair[0]] not in inputs)
    operands = op.operands + tuple(sorted(inputs)) if reads else op.operands
    return replace(op, operands=operands, facts=replace(op.facts, in_place=pairs))


def state_of_calls(graph: Graph) -> FrozenSet[int]:
    """Storages in which the backward part may find something else than the part in front of it had: those that this writes and that
    outlive the call, as the caller may call it once more before the backward part runs, and what others write. Empty if there is no
    boundary."""
    found = {value.storage for value in graph.values if value.written_between}
    for op in graph.region_ops(0):
        if op.facts.boundary:
            return frozenset(found)
        for value in (v for each in (op, *graph.inside(op)) for v in each.writes()):
            storage = graph.values[graph.values[value].storage]
            if storage.persistable or storage.fed:
                found.add(storage.id)
    return frozenset()


def read_again(graph: Graph, planned: Graph) -> FrozenSet[str]:
    """Names of the memory that the backward part of `planned`, a plan for `graph`, reads for more than that of `graph` does: that of
    inputs, state and outputs, which a caller may change, is among it."""
    had = {op.id: op.data_reads() for op in _backward(graph)}
    found = {
        planned.values[v].storage
        for op in _backward(planned)
        for v in op.data_reads()
        if v not in had.get(op.id, ())
    }
    return frozenset(v.name for v in planned.values if v.storage in found)


def _backward(graph: Graph) -> Iterator[Op]:
    return (each for op in graph.region_ops(0) if op.backward for each in (op, *graph.inside(op)))
