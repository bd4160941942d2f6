"""Adds a large term some rows at a time: what a weight's decay makes is not there as a whole next to the gradient.

A sum of two whose second term is made of one value, element by element, becomes for each part of the rows: those rows of the
value, the ops that made the term of it, and an op that adds them to the first term, in place.

Needs: nothing. Keeps: the bytes, as each element comes of the same additions. Changes: such sums of the main block, where the
term is large; the ops that made it are cloned, and run where the sum did.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Dict, List, Optional, Sequence, Tuple

from transpiler.analysis.accesses import Accesses
from transpiler.ir import ADD_ROWS, ROW_NUMBERS, ROWS, Graph, Meaning, Op, OpFacts, Size, ValueKind
from transpiler.ir.dtypes import ROW_NUMBER, SINGLE_AND_DOUBLE
from transpiler.passes.cloning import Cloner
from transpiler.passes.context import PassContext
from transpiler.runtime import Can

_MAIN = 0
# Of the largest term, at the least; those of smaller ones are as large, as what is there of the largest one decides.
_PARTS = 21
# Of the most that one op touches. What is smaller is there as a whole.
_LARGE = 1 / 16
_AROUND = 3  # ops of a part, but for those that make its term
_ADDS = OpFacts(in_place=((0, 0),), same_name=True, means=Meaning.ROWS_ADDED)


def sum_by_rows(graph: Graph, context: PassContext) -> Graph:
    """Splits every such sum whose term is large for this program."""
    if not context.parallel and any(op.facts.elementwise for op in graph.region_ops(_MAIN)):
        _Splitter(graph, context).run()
    return graph


class _Splitter:

    def __init__(self, graph: Graph, context: PassContext) -> None:
        self._graph = graph
        self._dims = context.dims
        upkeep = context.runtime.upkeep
        self._op_bytes = (upkeep.segment_op_bytes
                          if Can.SEGMENT in context.runtime.can else upkeep.op_bytes)
        self._cloner = Cloner(graph, _MAIN, '@ROWS')
        self._position = {op: at for at, op in enumerate(graph.regions[_MAIN].ops)}
        self._writers: Dict[int, List[int]] = {}  # storage -> positions of the ops that write it
        self._readers: Dict[int, List[int]] = {}
        accesses = Accesses(graph)
        for op in graph.region_ops(_MAIN):
            for storages, users in zip(accesses.of(op)[:2], (self._readers, self._writers)):
                for storage in storages:
                    users.setdefault(storage, []).append(self._position[op.id])
        self._closed = graph.touched_elsewhere()

    def run(self) -> None:
        """Each sum that it splits, and what made its term, gives way to the parts."""
        large = _LARGE * max(map(self._touched, self._graph.region_ops(_MAIN)), default=0)
        found = [(op, self._made_by(op)) for op in self._graph.region_ops(_MAIN)]
        sums = [(op, made_by) for op, made_by in found if made_by and self._bytes(op) >= large]
        largest = max(sums, key=lambda each: self._bytes(each[0]), default=None)
        there = self._there(*largest) if largest else 0
        instead: Dict[int, List[int]] = {}
        for op, made_by in sums:
            parts = self._parts(op, made_by, there)
            if len(parts) > 1:
                instead.update((maker.id, []) for maker in made_by)
                instead[op.id] = self._split(op, made_by, parts)
        region = self._graph.regions[_MAIN]
        region.ops = [new for op in region.ops for new in instead.get(op, (op,))]

    def _touched(self, op: Op) -> int:
        values = {*op.reads(), *op.writes()}
        sizes = (
            self._graph.values[v].size for v in values if not self._graph.values[v].persistable)
        return sum(size.evaluate(self._dims) for size in sizes if size is not None)

    def _bytes(self, op: Op) -> int:
        """Of the term, or the sum, of `op`."""
        return self._graph.values[op.results[0]].size.evaluate({})

    def _there(self, op: Op, made_by: Sequence[Op]) -> int:
        """Bytes that are to be there at a time of `op`'s term, the largest: so many that they and what the executor keeps for the ops
        of all parts are least together, but no more than a `_PARTS`th of it."""
        least = math.isqrt(self._bytes(op) * _held(made_by) * self._upkeep(made_by))
        return max(1, min(self._bytes(op) // _PARTS, least))

    def _parts(self, op: Op, made_by: Sequence[Op], there: int) -> List[Tuple[int, int]]:
        """From which row to which each part goes, if so many bytes are to be there at a time; it is one if no number of them saves
        more than the executor keeps for their ops."""
        rows = self._graph.values[op.results[0]].shape[0].evaluate({})
        wanted = -(-self._bytes(op) * _held(made_by) // there)
        step = -(-rows // max(1, min(wanted, self._most(op, made_by))))
        return [(first, min(first + step, rows)) for first in range(0, rows, step)]

    def _most(self, op: Op, made_by: Sequence[Op]) -> int:
        """In how many parts the term saves more than the executor keeps for them: term - held * term / parts > parts * upkeep."""
        term, upkeep = self._bytes(op), self._upkeep(made_by)
        root = term * term - 4 * upkeep * _held(made_by) * term
        return (term + math.isqrt(root)) // (2 * upkeep) if root > 0 else 0

    def _upkeep(self, made_by: Sequence[Op]) -> int:
        """What the executor keeps for the ops of a part."""
        return max(1, (len(made_by) + _AROUND) * self._op_bytes)

    def _made_by(self, op: Op) -> List[Op]:
        """The ops that make the second term of `op`, the last one first; none if it cannot be split."""
        if not (op.facts.left_fold and len(op.operands) == 2 and op.id == op.origin and
                self._is_plain(op.results[0]) and self._fits(op.operands[0], op.results[0])):
            return []
        found: List[Op] = []
        value, reader = op.operands[1], op
        while True:
            maker = self._maker(value, reader)
            if maker is None:
                break
            found.append(maker)
            value, reader = maker.operands[0], maker
        first = found[-1] if found else op
        return found if self._stays(value, self._position[first.id], self._position[op.id]) else []

    def _maker(self, value: int, reader: Op) -> Optional[Op]:
        """What makes `value` element by element, for `reader` alone."""
        writers, readers = self._writers.get(value, []), self._readers.get(value, [])
        if not (self._is_plain(value) and len(writers) == 1 and
                readers == [self._position[reader.id]]):
            return None
        maker = self._graph.ops[self._graph.regions[_MAIN].ops[writers[0]]]
        plain = maker.facts.elementwise and maker.id == maker.origin and not maker.facts.ordered
        return maker if plain and self._fits(value, maker.operands[0]) else None

    def _is_plain(self, value: int) -> bool:
        facts = self._graph.values[value]
        return (facts.kind is ValueKind.DENSE and facts.region == _MAIN and
                facts.storage == value and value not in self._closed and not facts.known_outside)

    def _fits(self, a: int, b: int) -> bool:
        """Whether the two are tensors of one type, and of one shape that is known whatever is fed."""
        x, y = self._graph.values[a], self._graph.values[b]
        return (x.kind is y.kind is ValueKind.DENSE and x.dtype == y.dtype and
                x.dtype in SINGLE_AND_DOUBLE and x.shape == y.shape and bool(x.shape) and
                all(dim.is_constant for dim in x.shape))

    def _stays(self, value: int, first: int, last: int) -> bool:
        """Whether nobody writes `value` from position `first` to `last`."""
        storage = self._graph.values[value].storage
        return not any(first <= at <= last for at in self._writers.get(storage, ()))

    def _split(self, op: Op, made_by: List[Op], parts: List[Tuple[int, int]]) -> List[int]:
        """Ids of the ops that stand for `op` and for `made_by`; the first, and the last, keep theirs."""
        total, source, ops = op.operands[0], made_by[-1].operands[0], []
        for rows in parts:
            part = self._value(source, rows)
            ops.append(
                self._cloner.added(ROWS, (source,), part, OpFacts(means=Meaning.ROWS, rows=rows)))
            for maker in reversed(made_by):
                made = self._value(maker.results[0], rows)
                if _works_onto(maker):
                    self._graph.change(made, storage=self._graph.values[part].storage)
                ops.append(self._again(maker, (part,), made, first=rows[0] == 0))
                part = made
            numbers = self._numbers(source, rows)
            facts = OpFacts(means=Meaning.ROW_NUMBERS, rows=rows)
            ops.append(self._cloner.added(ROW_NUMBERS, (), numbers, facts))
            adds = replace(op, kind=ADD_ROWS, facts=_ADDS)
            ops.append(
                self._again(adds, (total, part, numbers), op.results[0], first=rows == parts[-1]))
            total = op.results[0]
        return ops

    def _again(self, op: Op, operands: Tuple[int, ...], result: int, first: bool) -> int:
        """`op` itself with these arguments, or else a clone."""
        if not first:
            return self._cloner.op(op, operands, (result,))
        self._graph.ops[op.id] = replace(op, operands=operands, results=(result,))
        return op.id

    def _value(self, like: int, rows: Tuple[int, int]) -> int:
        value = self._graph.values[self._cloner.value(like)]
        value.shape = (Size.of(rows[1] - rows[0]), *value.shape[1:])
        value.size = Size.product(value.shape) * SINGLE_AND_DOUBLE[value.dtype]
        return value.id

    def _numbers(self, like: int, rows: Tuple[int, int]) -> int:
        value = self._graph.values[self._cloner.value(like)]
        value.dtype, element = ROW_NUMBER
        value.shape = (Size.of(rows[1] - rows[0]),)
        value.size = value.shape[0] * element
        return value.id


def _held(made_by: Sequence[Op]) -> int:
    """How many parts are there at a time, which these ops make one of the other."""
    return 1 if all(map(_works_onto, made_by)) else 2


def _works_onto(maker: Op) -> bool:
    return (0, 0) in maker.facts.onto
