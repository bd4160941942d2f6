"""Which inputs the dims of a value follow: two values have the same dims in every run only if these are the same, too.

All dims that a program leaves open for the batch have one symbol, whatever is fed: of two inputs one may have a row where the other has
many, and ops keep them apart, or broadcast one.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterator, List, Optional, Set, Tuple

from transpiler.ir.graph import Graph, Op, Region, RegionKind, Value
from transpiler.ir.size import ONE

_Inputs = FrozenSet[str]
_NONE: _Inputs = frozenset()


def note_extents(graph: Graph, runs_as_declared: bool) -> None:
    """Sets `follows` of all values. `runs_as_declared`: no run has other dims than those that a program does not leave open."""
    noted = _Extents(graph, runs_as_declared)
    for value in graph.values:
        value.follows = noted.of(value)


def has_one_extent(graph: Graph, op: Op) -> bool:
    """Whether what it may work on has the dims of what it makes, in every run: one variable has one shape, and Paddle sets that of the
    result before the kernel reads the operand."""
    pairs = ((graph.values[op.operands[i]], graph.values[op.results[j]])
             for i, j in op.facts.in_place
             if min(op.operands[i], op.results[j]) >= 0)
    return all(a.extent is not None and a.extent == b.extent for a, b in pairs)


class _Extents:
    """By value: names of the inputs whose dims decide its own, or its own name where nobody knows how. From the assumption that nothing is
    known of what loops hand on, until nothing changes any more."""

    def __init__(self, graph: Graph, runs_as_declared: bool) -> None:
        self._graph, self._declared = graph, runs_as_declared
        self._found: Dict[int, _Inputs] = {}
        # Of several numbers, which the like may have in another order, or of such as nobody has said.
        self._mixed: Set[int] = set()
        for _ in range(2 + 2 * len(graph.regions)):
            before, self._found = self._found, {}
            self._pass(before)
            if before == self._found:
                return
        self._found = {}  # all have their own name

    def of(self, value: Value) -> _Inputs:
        """For what nobody makes whom the graph knows, its own name."""
        found = self._found.get(value.id)
        return found if found is not None else self._given(value)

    def _given(self, value: Value) -> _Inputs:
        if value.persistable or self._is_fixed(value):
            return _NONE
        return frozenset({value.name}) if value.fed else self._own(value)

    def _pass(self, before: Dict[int, _Inputs]) -> None:
        graph, known = self._graph, dict(before)
        for value in graph.values:
            if value.fed or value.persistable:
                self._found[value.id] = known[value.id] = self._given(value)
        for region in graph.regions:
            for outer, inner in region.arguments:
                self._merge(inner, outer, known)
        for op, through in self._in_turn():
            for inner, outer in (pair for region in through for pair in region.results):
                if inner in known:  # or what is nested would be found level by level, each by a pass
                    known.setdefault(outer, known[inner])
            for position, value in enumerate(op.results if not op.regions else ()):
                if value >= 0:
                    self._add(value, self._of_result(op, position, known), known)
        for region in graph.regions:
            for inner, outer in region.results:
                self._merge(outer, inner, known)
            if region.kind is RegionKind.OPAQUE:
                for value in graph.ops[region.op].writes():
                    self._add(value, self._own(graph.values[value]), known)

    def _in_turn(self) -> Iterator[Tuple[Op, List[Region]]]:
        """The ops in program order, each with the regions that are through since the one before it, inner ones first."""
        regions, around = self._graph.regions, [0]
        for op in self._graph.walk():
            through = []
            while around[-1] not in (op.region, regions[op.region].parent):
                through.append(regions[around.pop()])
            if around[-1] != op.region:
                around.append(op.region)
            yield op, through

    def _merge(self, value: int, source: int, known: Dict[int, _Inputs]) -> None:
        self._add(value, known.get(source), known)

    def _add(self, value: int, inputs: Optional[_Inputs], known: Dict[int, _Inputs]) -> None:
        facts = self._graph.values[value]
        had = self._found.get(value)
        if inputs is not None and not facts.persistable:
            known[value] = self._found[value] = inputs if had in (None,
                                                                  inputs) else self._own(facts)

    def _of_result(self, op: Op, position: int, known: Dict[int, _Inputs]) -> Optional[_Inputs]:
        """None as long as nothing is known of its operands."""
        value = self._graph.values[op.results[position]]
        operands = self._deciding(op, position)
        if value.guessed and not self._like(op, position):
            return self._own(value)
        if self._is_fixed(value) or not operands and not self._is_open(value):
            return _NONE
        if value.size is None or not self._mixed.isdisjoint(operands):
            return self._own(value)
        several = {known[v] for v in operands if v in known} - {_NONE}
        if op.facts.broadcasts is not None and not self._may_join(op, value):
            return self._own(value)
        if len(several) == 1:
            return several.pop()
        if several and op.facts.broadcasts is not None and self._is_plain(value):
            return frozenset().union(*several)
        if not several and not all(v in known for v in operands):
            return None
        return self._own(value) if several or self._is_open(value) else _NONE

    def _deciding(self, op: Op, position: int) -> List[int]:
        """Operands whose dims decide those of a result; a gradient has those of what it is the gradient of."""
        rest = [v for i, v in enumerate(op.operands) if i not in op.facts.gradients]
        return [v for v in self._like(op, position) or rest if v >= 0]

    def _like(self, op: Op, position: int) -> List[int]:
        """Operands that the operator gives the same dims."""
        like = [op.operands[i] for j, i in op.facts.alike if j == position]
        if like or op.facts.gradients or op.facts.broadcasts is not None:
            return like
        return [
            op.operands[i]
            for i, j in op.facts.in_place
            if j == position and self._look_alike(op.operands[i], op.results[j])
        ]

    def _look_alike(self, a: int, b: int) -> bool:
        return a >= 0 and self._graph.values[a].shape == self._graph.values[b].shape

    def _may_join(self, op: Op, result: Value) -> bool:
        """Whether each open dim of the result is that of each operand, or that of a row which is given as one."""
        inner = op.facts.broadcasts or 0
        outer = result.shape or ()
        for value in (self._graph.values[v] for v in op.operands if v >= 0):
            own = value.shape or ()
            pairs = zip(reversed(own[:len(own) - inner]), reversed(outer[:len(outer) - inner]))
            if any(not dim.is_constant and mine not in (dim, ONE) for mine, dim in pairs):
                return False
        return True

    def _own(self, value: Value) -> _Inputs:
        if value.guessed or not self._is_plain(value):
            self._mixed.add(value.id)
        return frozenset({f'{value.name} ({value.id})'})

    def _is_fixed(self, value: Value) -> bool:
        return self._declared and not self._is_open(value)

    def _is_open(self, value: Value) -> bool:
        return value.shape is None or not all(dim.is_constant for dim in value.shape)

    def _is_plain(self, value: Value) -> bool:
        """Whether each of its open dims is a number of its own."""
        symbols = [name for dim in value.shape or () for name in dim.dims]
        return value.shape is not None and len(symbols) == len(set(symbols))
