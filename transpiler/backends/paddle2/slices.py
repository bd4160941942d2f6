"""Tensors that are slices of one buffer.

Fleet fuses gradients for communication: `coalesce_tensor` makes one buffer, and slices of it under the gradients' names; the
collective works on the buffer, and `depend` ops, which copy nothing, say so to the executor. In the graph the memory is that of
the buffer, and whoever touches a slice touches the buffer, too: a write changes what it holds, which all that read any slice
of it see. So its writers keep their order, it lives from the first touch to the last, and is proved like any other value. It is
let go of with all its slices.

`paddle.nn.LSTM` and its like have one flat parameter for all of a network's, which the startup program makes slices of it. The main
program says nothing of that: there the flat one is a parameter that may be trained, and is not, of the size of all that the
network's op is given in one list, which are. Who reads it, as a moving average of all parameters does, reads what optimizers have written to
the others.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Dict, List, Mapping, Set, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import read_by
from transpiler.backends.paddle2.workspaces import values_of
from transpiler.ir import NOTHING, Graph, Op, Size, Value, ValueKind

_MAKER = 'coalesce_tensor'
# Says that what it names comes behind what was done to the buffer: which all do that touch the buffer, too.
_ORDERS = 'depend'
_BUFFER, _SLICES = 'FusedOutput', 'Output'
_OUTLIVES = 'persist_output'  # an attribute: the buffer is that of the run before
# Paddle's smallest allocation on a CPU, to which the kernel rounds each slice up.
_CHUNK = 4096


def link_slices(graph: Graph, descs: Mapping[int, framework_pb2.OpDesc]) -> None:
    """Lets who touches a slice touch its buffer. Where that is not all there is to it, which the main region alone would have to
    know, the ops stay such as share memory unsaid."""
    made = [op for op in graph.region_ops(0) if op.kind == _MAKER]
    elsewhere = graph.touched_elsewhere() if made else frozenset()
    buffer_of: Dict[int, int] = {}
    for op in made:
        values = _buffer_and_slices(graph, op, descs[op.id])
        if not values or any(v.id in elsewhere or v.id in buffer_of for v in values):
            return
        buffer_of.update((v.id, values[0].id) for v in values)
    for op in made:
        _measure(_buffer_and_slices(graph, op, descs[op.id]))
        op.facts, op.workspace = replace(op.facts, shares_unsaid=False), NOTHING
    for op in graph.region_ops(0) if made else ():
        if op.kind != _MAKER:
            _touch_buffers(op, buffer_of)


def _buffer_and_slices(graph: Graph, op: Op, desc: framework_pb2.OpDesc) -> List[Value]:
    """The buffer, and its slices; nothing if one of them is more than that."""
    results = values_of(graph, desc.outputs, op.results)
    found = [*results.get(_BUFFER, ()), *results.get(_SLICES, ())]
    lasts = any(a.b for a in desc.attrs if a.name == _OUTLIVES)
    if lasts or len(results.get(_BUFFER, ())) != 1 or len(found) != len(op.writes()):
        return []
    plain = all(v.kind is ValueKind.DENSE and not v.known_outside for v in found)
    return found if plain else []


def _measure(values: List[Value]) -> None:
    buffer, *slices = values
    sizes = [each.size for each in slices]
    buffer.size = None
    if all(size is not None and size.is_constant for size in sizes):
        chunks = (-(-size.evaluate({}) // _CHUNK) for size in sizes if size is not None)
        buffer.size = Size.of(_CHUNK * sum(chunks))
    for value in slices:
        value.size = NOTHING
    skipped = any(value.skipped for value in values)
    for value in values:
        value.buffer, value.skipped = buffer.id, skipped


def link_flat_parameters(graph: Graph, main: framework_pb2.BlockDesc,
                         descs: Mapping[int, framework_pb2.OpDesc]) -> None:
    """Lets who reads a flat parameter read the parameters that may be slices of it, by what `main` declares."""
    declared = {v.name: v for v in main.vars if v.is_parameter}
    found = {v.id: declared[v.name] for v in graph.values if v.parameter and v.name in declared}
    shapes = {v: tuple(desc.type.lod_tensor.tensor.dims) for v, desc in found.items()}
    written = {v for op in graph.walk() for v in op.writes() if v in shapes}
    flat: Dict[int, List[int]] = {}  # by elements
    for value, shape in shapes.items() if written else ():
        if len(shape) == 1 and value not in written and not found[value].stop_gradient:
            flat.setdefault(shape[0], []).append(value)
    slices: Dict[int, Set[int]] = {}
    for op in graph.walk() if flat else ():
        for listed in values_of(graph, descs[op.id].inputs, op.operands).values():
            given = {v.id for v in listed if v.id in shapes}
            if len(given) > 1 and given <= written:
                for whole in flat.get(sum(math.prod(shapes[v]) for v in given), ()):
                    slices.setdefault(whole, set()).update(given)
    for op in graph.walk() if slices else ():
        more = {v for whole in op.reads() for v in slices.get(whole, ())}.difference(op.reads())
        if more:
            _touch_more(op, more, set())


def touch_flat_parameters(graph: Graph, descs: Mapping[int, framework_pb2.OpDesc]) -> Set[int]:
    """The ops of the main region that read a flat parameter, or write a slice of one: no name that they have in common tells
    an executor that one waits for the other."""
    readers: Set[int] = set()
    slices: Set[int] = set()
    for op in graph.region_ops(0):
        parameters = [v for v in op.reads() if graph.values[v].parameter]
        named = read_by(descs[op.id]) if parameters else ()
        more = {v for v in parameters if graph.values[v].name not in named}
        if more and not op.regions:
            readers.add(op.id)
            slices |= more
    writers = (op.id for op in graph.region_ops(0) if not slices.isdisjoint(op.writes()))
    return readers.union(writers)


def _touch_buffers(op: Op, buffer_of: Mapping[int, int]) -> None:
    read, written = (_added(values, buffer_of) for values in (op.reads(), op.writes()))
    read |= written  # the rest of the buffer stays
    if not read:
        return
    _touch_more(op, read, written)
    if op.kind == _ORDERS and len({buffer_of.get(v) for v in op.reads() + op.writes()}) == 1:
        op.facts = replace(op.facts, side_effect=False)


def _touch_more(op: Op, read: Set[int], written: Set[int]) -> None:
    """Operands and results more, behind those that its description names."""
    # What it computes of all its operands is not a sum, or one element after the other, of these.
    op.facts = replace(op.facts, left_fold=False, elementwise=False, rows=None, means=None)
    op.operands += tuple(sorted(read))
    op.results += tuple(sorted(written))


def _added(values: Tuple[int, ...], buffer_of: Mapping[int, int]) -> Set[int]:
    return {buffer_of[v] for v in values if v in buffer_of} - set(values)
