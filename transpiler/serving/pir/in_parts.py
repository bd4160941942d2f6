"""Chains of operators whose rows are independent, run by a loop: a part of the rows with each trip.

A trip cuts its rows out of what the chain reads and writes what it makes of them into the place of these rows in the results, which are
made before the loop; all else that it makes is freed in it. Parts have ceil(n / parts) of n rows, the last one what is left, so that
there are fewer trips than parts where there are fewer rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Sequence, Set, Tuple

import paddle
from paddle import _C_ops, pir, static
from paddle.base.libpaddle import pir as bindings

from transpiler.analysis.writers import Writers
from transpiler.backends.paddle3.constants import constant_maker
from transpiler.backends.paddle3.importer import Handle, ImportedProgram, import_program
from transpiler.backends.paddle3.naming import COMBINE, DECLARATIONS, SLICE, SPLIT
from transpiler.backends.paddle3.marks import mark_rows
from transpiler.backends.paddle3.packing import load
from transpiler.ir import ONE, Value, ValueKind
from transpiler.serving.chains import Chain

Key = Tuple[str, ...]
_CONSTANTS = ('full', 'full_int_array')
_ALONE = (False, True, False)  # what Operation.clone takes along
_INDEX = 'int64'


@dataclass
class Parted:
    """A program with chains in parts; `names`, by id, are what its values were called before, whatever makes them now, and what parts
    of them are called."""

    program: Any
    names: Dict[str, str]


def key_of(read: ImportedProgram, handle: Handle) -> Key:
    """What an op writes: no other op writes that."""
    return tuple(read.graph.values[i].name for slot in handle.results for i in slot if i >= 0)


def constants_first(program: Any) -> None:
    """Moves numbers, and vectors that are made of these and of parameters alone (a bias in the shape of a map), ahead of all that
    computes, for chains not to end where one is made."""
    block, vectors = program.global_block(), _vectors(program)

    def rank(op: Any) -> int:
        if op.name() in DECLARATIONS:
            return 0
        return 1 if is_constant(op) else 2 if op.id() in vectors else 3

    for op in sorted(block.ops, key=rank):
        block.move_op_to_block_end(op)


def _vectors(program: Any) -> Set[int]:
    """Ids of the ops of the main block that make vectors, whatever the inputs are, and whenever they run."""
    read = import_program(program)
    graph, writers = read.graph, Writers(read.graph)
    found: Set[int] = set()
    same = {v.id for v in graph.values if v.persistable and not writers.count(v.id)}
    for op in graph.region_ops(0):
        handle = read.handles.get(op.id)
        if handle is None or op.regions or op.facts.ordered or not op.facts.known:
            continue
        if is_constant(handle.op):
            same.update(op.writes())
        elif (op.reads() and same.issuperset(op.reads()) and
              not any(map(_is_list, (*handle.op.operands_source(), *handle.op.results()))) and
              all(_is_vector(graph.values[v]) for v in op.writes())):
            found.add(handle.op.id())
            same.update(v for v in op.writes() if writers.count(v) == 1)
    return found


def _is_vector(value: Value) -> bool:
    """Whether it is a tensor with no more than one dim that is not one, the same in every run."""
    dims = value.shape
    return (value.kind is ValueKind.DENSE and not value.persistable and dims is not None and
            all(d.is_constant for d in dims) and sum(d != ONE for d in dims) <= 1)


def is_constant(op: Any) -> bool:
    """Whether it makes a number, or a list of them, of its attributes alone, and nobody writes over that."""
    made = op.result(0) if op.num_results() else None
    return constant_maker(made, *_CONSTANTS) is not None and len(made.shape) <= 1


def run_in_parts(serialized: bytes, chains: Sequence[Chain]) -> Parted:
    """The same program with `chains` in parts."""
    program = load(serialized)
    read = import_program(program)
    cutter = _Cutter(program, read)
    for chain in chains:
        cutter.cut(chain)
    return Parted(program, cutter.names)


class _Cutter:
    """Cuts one chain after the other out of a program, and puts a loop in its place."""

    def __init__(self, program: Any, read: ImportedProgram) -> None:
        self._program, self._block = program, program.global_block()
        self._ops = {key_of(read, handle): handle.op for handle in read.handles.values()}
        values = read.graph.values
        self.names = {value.id: values[i].name for i, value in read.values.items()}
        self._inputs = {values[i].name: value for i, value in read.values.items() if values[i].fed}

    def cut(self, chain: Chain) -> None:
        ops = [self._ops[key] for key in chain.ops]
        inside = {op.id() for op in ops}
        before = list(self._block.ops)
        first = next(at for at, op in enumerate(before) if op.id() in inside)
        handed_out = [v for op in ops for v in _made(op) if list(_readers(v, inside))]
        with static.program_guard(self._program):
            bindings.set_insertion_point_to_block_end(self._block)
            results = self._loop(chain, ops, handed_out)
        made = list(self._block.ops)[len(before):]
        for value, result in zip(handed_out, results):
            self._replace(value, result, inside)
        for op in (*made, *(op for op in before[first:] if op.id() not in inside)):
            self._block.move_op_to_block_end(op)
        self._remove(ops)

    def _loop(self, chain: Chain, ops: Sequence[Any], handed_out: Sequence[Any]) -> Sequence[Any]:
        """What the loop makes in place of what the chain hands out."""
        rows = _rows(self._inputs[chain.rows_of])
        size = paddle.floor_divide(rows + (chain.parts - 1), paddle.full([1], chain.parts, _INDEX))
        rooms = [_room(value, rows) for value in handed_out]

        def trip(start: Any, *places: Any) -> List[Any]:
            end = start + size
            part = _Part(self.names, chain, start, end)
            for op in ops:
                part.run(op)
            written = [
                _C_ops.set_value_with_tensor_(place, part.of(value), start, end, [1], [0], [], [])
                for place, value in zip(places, handed_out)
            ]
            return [end, *written]

        start = paddle.full([1], 0, _INDEX)
        made = static.nn.while_loop(lambda at, *_: paddle.less_than(at, rows), trip,
                                    [start, *rooms])
        return list(made)[1:]

    def _replace(self, value: Any, result: Any, inside: Set[int]) -> None:
        self.names[result.id] = self.names.pop(value.id)
        for reader in list(_readers(value, inside)):
            for slot in range(reader.num_operands()):
                if reader.operand_source(slot).is_same(value):
                    reader.operand(slot).set_source(result)

    def _remove(self, ops: Sequence[Any]) -> None:
        """The ops of a chain that has a loop now, and the lists that nobody else reads."""
        for op in reversed(ops):
            for taker in list(_takers(op)):
                self._block.remove_op(taker)
            lists = [v.get_defining_op() for v in op.operands_source() if _is_list(v)]
            self._block.remove_op(op)
            for maker in lists:
                if maker.result(0).use_empty():
                    self._block.remove_op(maker)


class _Part:
    """A trip, that is being written: what it calls the values of the chain."""

    def __init__(self, names: Dict[str, str], chain: Chain, start: Any, end: Any) -> None:
        self._names, self._chain = names, chain
        self._bounds = (start, end)
        self._mapping = pir.IrMapping()
        self._known: Dict[str, Any] = {}  # by id of a value

    def of(self, value: Any) -> Any:
        return self._known[value.id]

    def run(self, op: Any) -> None:
        for value in op.operands_source():
            if value.initialized():
                self._bring(value)
        self._clone(op)
        for taker in _takers(op):
            self._clone(taker)

    def _clone(self, op: Any) -> None:
        copy = op.clone(self._mapping, bindings.CloneOptions(*_ALONE))
        for value, made in zip(op.results(), copy.results()):
            if value.initialized():
                self._call(value, made)

    def _call(self, value: Any, here: Any) -> None:
        self._known[value.id] = here
        if here is not value and value.id in self._names:
            self._names[here.id] = f'{self._names[value.id]}@1/{self._chain.parts}'
        self._mapping.add(value, here)

    def _bring(self, value: Any) -> None:
        """Makes `value`, if nothing of the trip has, known in it."""
        if value.id in self._known:
            return
        maker = value.get_defining_op()
        if maker is not None and maker.name() == COMBINE:
            for member in maker.operands_source():
                self._bring(member)
            self._clone(maker)
        elif maker is not None and is_constant(maker):
            self._clone(maker)
        elif self._names.get(value.id) in self._chain.sliced:
            start, end = self._bounds
            rows = _C_ops.slice(value, [0], start, end, [-1], [])
            mark_rows(rows.get_defining_op(), self._chain.parts)
            self._call(value, rows)
        else:
            self._call(value, value)


def _is_list(value: Any) -> bool:
    return bool(value.initialized() and value.is_combine())


def _takers(op: Any) -> Iterator[Any]:
    """What takes the lists apart that `op` makes."""
    for value in op.results():
        if _is_list(value):
            yield from (user for user in value.all_used_ops() if user.name() in (SPLIT, SLICE))


def _made(op: Any) -> Iterator[Any]:
    """What `op` makes, the members of lists in place of these."""
    yield from (v for v in op.results() if v.initialized() and not _is_list(v))
    for taker in _takers(op):
        yield from (v for v in taker.results() if v.initialized())


def _readers(value: Any, inside: Set[int]) -> Iterator[Any]:
    """Ops that name `value`, but those of a chain and the lists that only they read."""
    for user in value.all_used_ops():
        lists = user.result(0).all_used_ops() if user.name() == COMBINE else [user]
        if any(op.id() not in inside for op in lists):
            yield user


def _rows(value: Any) -> Any:
    """How many rows it has, as a tensor."""
    count = _C_ops.slice(paddle.shape(value), [0], [0], [1], [1], [])
    return paddle.cast(count, _INDEX)


def _room(value: Any, rows: Any) -> Any:
    """A tensor like `value`, with nothing in it yet."""
    room = paddle.empty([rows, *value.shape[1:]], value.dtype)
    mark_rows(room.get_defining_op(), 1)
    return room
