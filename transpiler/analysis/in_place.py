"""Where a runtime lets a result take over the buffer of an operand by itself: the rule that stands for all who count."""

from __future__ import annotations

from typing import Callable, FrozenSet, Iterator, List, Optional, Sequence, Set, Tuple

from transpiler.analysis.memory_profile import Pair
from transpiler.ir import FORGET, HANDS_ON, RELEASE, Graph, Op, Size, ValueKind

_BY_NAME = frozenset({*HANDS_ON, RELEASE, FORGET})


class InPlace:
    """Pairs of storages that ops may work in place on.

    Args:
        graph: the program.
        by_name: those of its ops that `act_by_name`.
        sharing: regions in which the runtime works in place; None for all. Paddle's executor does so in the main block
            (`buffer_shared_inplace_pass`). What an op hands on by itself, it hands on anywhere.
        lets_go: whether a loop lets go of what it begins with, in any region, once its first trip has it.
        size_of: bytes of a storage; None if it is not counted.
    """

    def __init__(self, graph: Graph, by_name: Sequence[Op], sharing: Optional[FrozenSet[int]],
                 lets_go: bool, size_of: Callable[[int], Optional[Size]]) -> None:
        self._graph = graph
        self._sharing = sharing
        self._lets_go = lets_go
        self._size_of = size_of
        self._given, self._taken = _handed_on_by_name(graph, by_name)

    def pairs(self, op: Op) -> Iterator[Pair]:
        """(storage of an operand, storage of a result) that share one buffer at `op`, if the operand is used for the last
        time there and the result for the first."""
        values = self._graph.values
        if hands_on(op):
            yield from ((values[a].storage, values[b].storage) for a, b in handed_on(op))
        elif op.facts.in_place and self._takes_over(op):
            for i, j in op.facts.in_place:
                source, target = op.operands[i], op.results[j]
                # What it needs the shape of alone may be gone before it.
                once = source >= 0 <= target and op.operands.count(source) == 1
                if not once or i in op.facts.shape_only:
                    continue
                pair = values[source].storage, values[target].storage
                if self._may_share(*pair):
                    yield pair

    def _takes_over(self, op: Op) -> bool:
        if op.regions:
            return self._lets_go
        return self._sharing is None or op.region in self._sharing

    def _may_share(self, source: int, target: int) -> bool:
        size = self._size_of(source)
        return (source != target and size is not None and self._size_of(target) == size and
                source not in self._given and target not in self._taken and
                self._graph.values[target].kind is ValueKind.DENSE and
                not self._protected(source) and not self._protected(target))

    def _protected(self, storage: int) -> bool:
        value = self._graph.values[storage]
        return value.known_outside


def hands_on(op: Op) -> bool:
    """Whether the results of `op` have the buffers of its operands, whoever uses these later."""
    return op.kind in HANDS_ON or op.facts.aliases or bool(op.facts.one_memory)


def handed_on(op: Op) -> Iterator[Tuple[int, int]]:
    """(operand, result) wherever that is so."""
    if op.kind in HANDS_ON or op.facts.aliases:
        yield from zip(op.operands, op.results)
    yield from op.in_one_memory()


def act_by_name(graph: Graph) -> List[Op]:
    """The ops that say of names what becomes of their buffers."""
    return [
        op for op in graph.walk() if op.kind in _BY_NAME or op.facts.aliases or op.facts.one_memory
    ]


def _handed_on_by_name(graph: Graph,
                       by_name: Sequence[Op]) -> Tuple[FrozenSet[int], FrozenSet[int]]:
    """Storages whose buffers an op gives to others, and those to which one does, or takes theirs away: the runtime does not
    do the one, or the other, with them by itself."""
    given: Set[int] = set()
    taken: Set[int] = set()
    for op in by_name:
        given.update(graph.values[giver].storage for giver, _ in handed_on(op))
        if op.kind in _BY_NAME or op.facts.aliases:
            taken.update(graph.values[v].storage for v in op.writes())
    return frozenset(given), frozenset(taken)
