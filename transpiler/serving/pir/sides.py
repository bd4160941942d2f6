"""What a predictor of Paddle 3 does to values that are read more than once, whoever made them.

It computes once what is computed alike twice. And a kernel that is not oneDNN's reads what one of oneDNN's has made through a copy in the
same memory, which nobody else reads: the predictor lets it work in place there. Others that read that behind it get what it has made of
it, those ahead of it do not (measured, 3.3.1).
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Set, Tuple

from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.importer import ImportedProgram
from transpiler.ir import Graph, Op
from transpiler.serving.pir.in_parts import is_constant
from transpiler.serving.pir.row_operators import attributes_of

# It may leave them out, so that their result is their operand; and a product with one, too.
_LEFT_OUT = ('assign', 'dropout', 'cast')
_PRODUCT = 'scale'


def twins(read: ImportedProgram) -> Dict[int, int]:
    """By value of the main block that is computed as an earlier one is: the first of these."""
    first: Dict[str, Tuple[int, ...]] = {}
    found: Dict[int, int] = {}
    for op in read.graph.region_ops(0):
        handle = read.handles.get(op.id)
        if handle is None or op.regions or op.facts.ordered:
            continue
        operands = [found.get(v, v) for v in op.operands]
        look = f'{handle.op.name()} {operands} {attributes_of(handle.op)}'
        earlier = first.setdefault(look, op.results)
        if earlier is not op.results:
            found.update((v, like) for v, like in zip(op.results, earlier) if v >= 0)
    return found


def keep_sides(read: ImportedProgram) -> None:
    """Lets who reads a value stay on its side of each op that may work in place on that, or on what may be in one memory with it."""
    graph = read.graph
    one = _in_one_memory(read, twins(read))
    since: Dict[int, List[int]] = {}  # by memory: who reads it, from the last taker on
    taker: Dict[int, int] = {}
    for op in graph.region_ops(0):
        taken = {one.get(v, v) for v in _taken(graph, op)}
        behind: Set[int] = set()
        for memory in {one.get(v, v) for v in _read(graph, op)}:
            if memory in taken:
                behind.update(since.pop(memory, ()))
                taker[memory] = op.id
            elif memory in taker:
                behind.add(taker[memory])
            since.setdefault(memory, []).append(op.id)
        op.behind = tuple(sorted(behind))


def _in_one_memory(read: ImportedProgram, same: Dict[int, int]) -> Dict[int, int]:
    """By value: the first one of those that may be in one memory with it. What an op makes in place on a copy is where the value is that
    others read."""
    one, graph = dict(same), read.graph
    for op in graph.region_ops(0):
        if op.operands and op.results and _may_be_left_out(read, op):
            one[op.results[0]] = one.get(op.operands[0], op.operands[0])
    readers = Counter(
        m for op in graph.region_ops(0) for m in {one.get(v, v) for v in _read(graph, op)})
    for op in graph.region_ops(0):
        for i, j in op.facts.in_place:
            memory = one.get(op.operands[i], op.operands[i])
            if memory >= 0 and op.results[j] >= 0 and readers[memory] > 1:
                one[op.results[j]] = memory
    return one


def _may_be_left_out(read: ImportedProgram, op: Op) -> bool:
    if op.kind != _PRODUCT:
        return op.kind in _LEFT_OUT
    made = read.handles[op.id].op
    factor = made.operand_source(1).get_defining_op()
    known = factor is not None and is_constant(factor)
    return given_attributes(made)['bias'] == 0.0 and (not known or
                                                      given_attributes(factor)['value'] == 1.0)


def _read(graph: Graph, op: Op) -> Set[int]:
    return {v for each in (op, *graph.inside(op)) for v in each.reads()}


def _taken(graph: Graph, op: Op) -> Set[int]:
    """What it may work in place on, or an op inside it."""
    ops = (op, *graph.inside(op))
    return set().union(*(each.given_in_place() for each in ops))
