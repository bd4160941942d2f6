"""What loops and branches hand out that has the memory of another name of the region around.

A branch hands on the tensor itself, and so does a trip of a loop. A loop that makes no trip gives what it began with.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, FrozenSet, Iterable, List, Set, Tuple

from transpiler.ir import Graph, Op, Region

_Origins = FrozenSet[int]

_Mates = Dict[int, Set[int]]  # by value: all that may be in one memory with it


def handed_out(graph: Graph, mates: _Mates) -> List[Op]:
    """The loops and branches of which a result may be in one memory with another name of the region around; `mates` gets these. Regions of
    `graph` end with the op that hands on."""
    return _Search(graph, mates).run() if len(graph.regions) > 1 else []


def join(mates: _Mates, values: Iterable[int]) -> None:
    """Notes that `values` may be in one memory, and with them whatever may be in it with one of them."""
    joined = {other for value in values for other in mates.get(value, {value})}
    mates.update(dict.fromkeys(joined, joined))


class _Search:
    """One walk, in which the end of a region comes before whatever reads what it hands on.

    The origins of a value are those that have made the memory that it may have: what a branch hands on has none of its own.
    """

    def __init__(self, graph: Graph, mates: _Mates) -> None:
        self._graph, self._mates = graph, mates
        self._found: Dict[int, Op] = {}
        self._origins: Dict[int, _Origins] = {}
        self._ends = _last_inside(graph)
        self._readers: Dict[int, Set[int]] = {}  # ops, by value

    def run(self) -> List[Op]:
        for op in self._graph.walk():
            for value in op.reads():
                self._readers.setdefault(value, set()).add(op.id)
        for op in self._graph.walk():
            region = self._graph.regions[op.region]
            if region.op >= 0 and region.ops[-1] == op.id:
                self._end(op, region)
            elif op.facts.shares_unsaid and not op.regions:  # another name of what it reads
                shared = frozenset().union(*map(self._of, op.operands))
                self._origins.update(dict.fromkeys(op.results, shared))
        return list(self._found.values())

    def _of(self, value: int) -> _Origins:
        return self._origins.get(value) or frozenset({value})

    def _end(self, end: Op, region: Region) -> None:
        around = self._graph.ops[region.op]
        handed = end.operands[region.kind.is_loop:]  # first, if there is another trip
        pairs = list(zip(handed, end.results))
        for value, result in pairs:
            outer = {v for v in self._of(value) if not self._is_inside(v, around)}
            if outer:
                self._note(around, {result, *outer})
        self._note_twice(around, pairs)
        if region.kind.is_loop:
            begun = list(zip(around.operands[1:], end.results))
            self._note_twice(around, begun)
            for value, result in begun:
                if self._is_read_elsewhere(value, around):
                    self._note(around, {value, result})
            self._hand_out_of_loop(region, begun, handed)
        else:
            for value, result in pairs:
                self._origins[result] = self._origins.get(result, frozenset()) | self._of(value)

    def _note(self, op: Op, values: Iterable[int]) -> None:
        self._found[op.id] = op
        join(self._mates, values)

    def _note_twice(self, op: Op, pairs: List[Tuple[int, int]]) -> None:
        """Results that may be in the memory of one value."""
        times = Counter(v for value, _ in pairs for v in self._of(value))
        twice = {v for v, number in times.items() if number > 1}
        shared = {result for value, result in pairs if not twice.isdisjoint(self._of(value))}
        if shared:
            self._note(op, shared)

    def _is_read_elsewhere(self, value: int, loop: Op) -> bool:
        """Whether others than `loop` have a use for what it begins with, and it is not the loop's to write over."""
        if value in loop.results:
            return False
        others = (self._graph.ops[i] for i in self._readers[value] if i != loop.id)
        return self._graph.values[value].known_outside or any(
            not self._is_within(op.region, loop) for op in others)

    def _hand_out_of_loop(self, region: Region, begun: List[Tuple[int, int]],
                          handed: Tuple[int, ...]) -> None:
        """A trip may hand on what it was given, in the same place or in another."""
        slots = {inner: at for at, (_, inner) in enumerate(region.arguments)}
        for first, (_, result) in enumerate(begun):
            reached, found, due = {first}, set(), [first]
            while due:
                at = due.pop()
                origins = self._of(begun[at][0]) | self._of(handed[at])
                found |= origins - slots.keys()
                more = {slots[v] for v in origins & slots.keys()} - reached
                reached |= more
                due.extend(more)
            self._origins[result] = frozenset(found)

    def _is_inside(self, value: int, op: Op) -> bool:
        return self._is_within(self._graph.values[value].region, op)

    def _is_within(self, region: int, op: Op) -> bool:
        return any(inner <= region <= self._ends[inner] for inner in op.regions)


def _last_inside(graph: Graph) -> List[int]:
    """By region, the last one in it: they are numbered as they begin, those inside right behind the one around."""
    found = [region.id for region in graph.regions]
    for region in reversed(graph.regions):
        if region.parent >= 0:
            found[region.parent] = max(found[region.parent], found[region.id])
    return found
