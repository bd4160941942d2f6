"""Which ops of a region must stay behind which, whatever their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Set, Tuple

from transpiler.analysis.accesses import Accesses
from transpiler.ir import SHARE, Graph, Op


@dataclass
class Dependences:
    """Direct dependences among the ops of one region, by index in its op list at the time of the call.

    `before[i]` are the ops that must run before op i, `after[i]` those that must run after it; both sorted. The given
    order is always one of the valid orders: `before[i]` holds indices below i only.
    """

    ops: List[int]
    before: List[List[int]]
    after: List[List[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.after = successors(self.before)


def dependences(graph: Graph, region: int, accesses: Optional[Accesses] = None) -> Dependences:
    """The dependences among the ops of `region`; `accesses` are those of `graph`, in whatever order.

    - by storage: a read stays behind the write before it, a write behind the reads and the write before it. A read of
      the shape alone is a read: the writer after it may change the shape;
    - an op with regions reads and writes what its nested ops read and write outside them;
    - a read by a kernel with a layout of its own stays behind an op before it that may work in place on what it reads, also where the
      one or the other is nested: it reads a copy which has another name, and the executor, which orders by names, does not see that
      both are one memory;
    - names that an op puts into one memory are one storage, which ops that may work in place on it write;
    - ordered ops (random, communicating, with side effects, or unknown), and ops that contain one, keep their order;
    - nothing moves across an op whose rules are unknown, or which cuts the program in two;
    - the op of a gradient region stays behind the op of its forward region, and counts as writing what that writes
      outside: what the loop left there is the last trip's, and no other trip's gradient may take it for its own.
    """
    ops = list(graph.regions[region].ops)
    # Two names in one memory of which the executor, which tracks names, does not know: an order that respects all names may
    # still be wrong.
    if any(_shares_unsaid(graph.ops[op]) for op in ops):
        return Dependences(ops, [[i - 1] if i else [] for i in range(len(ops))])
    hazards = _Hazards(graph, accesses or Accesses(graph))
    return Dependences(ops, hazards.before([graph.ops[op] for op in ops]))


def _shares_unsaid(op: Op) -> bool:
    """Whether it puts names into one memory, and which are in it for how long is not looked at here."""
    return op.kind == SHARE or op.facts.shares_unsaid and not op.facts.aliases


def successors(before: List[List[int]]) -> List[List[int]]:
    after: List[List[int]] = [[] for _ in before]
    for op, earlier in enumerate(before):
        for other in earlier:
            after[other].append(op)
    return after


def ancestors(before: List[List[int]]) -> List[int]:
    """All that must run before each op, as bit sets. O(edges * ops / 64)."""
    found: List[int] = []
    for earlier in before:
        mask = 0
        for other in earlier:
            mask |= found[other] | 1 << other
        found.append(mask)
    return found


class _Hazards:
    """One walk over the ops of a region in the given order."""

    def __init__(self, graph: Graph, accesses: Accesses) -> None:
        self._graph = graph
        self._accesses = accesses
        self._memories = accesses.memories
        self._writer: Dict[int, int] = {}  # storage -> the last op that wrote it
        self._readers: Dict[int, List[int]] = {}  # storage -> ops that read it since
        self._takers: Dict[int,
                           List[int]] = {}  # storage -> those of them that may work in place on it

    def before(self, ops: List[Op]) -> List[List[int]]:
        found: List[List[int]] = []
        index = {op.id: i for i, op in enumerate(ops)}
        last_ordered = last_stop = -1
        for i, op in enumerate(ops):
            earlier = self._by_storage(i, op)
            earlier.update(self._forward_ops(op, index))
            earlier.update(index.get(other, -1) for other in op.behind)
            if self._accesses.is_ordered(op):
                earlier.add(last_ordered)
                last_ordered = i
            earlier.add(last_stop)
            if op.facts.stops:
                earlier.update(range(last_stop + 1, i))
                last_stop = i
            earlier.discard(-1)
            found.append(sorted(earlier))
        return found

    def _by_storage(self, i: int, op: Op) -> Set[int]:
        reads, writes = self._accesses.of(op)
        if self._memories:
            reads, writes = self._in_memory(op, reads, writes)
        earlier = {self._writer.get(s, -1) for s in reads | writes}
        for storage in writes:
            earlier.update(self._readers.pop(storage, ()))
            self._takers.pop(storage, None)
            self._writer[storage] = i
        for storage in reads - writes:
            self._readers.setdefault(storage, []).append(i)
        for storage in self._accesses.copied_by(op):
            earlier.update(self._takers.get(storage, ()))
        for storage in self._accesses.taken_by(op):
            self._takers.setdefault(storage, []).append(i)
        return earlier

    def _in_memory(self, op: Op, reads: Set[int], writes: Set[int]) -> Tuple[Set[int], Set[int]]:
        """The same of what is in memories of several names. Whoever may work in place there writes it: for others it is still read."""
        writes = writes | (self._accesses.taken_by(op) & self._memories.keys())
        return tuple({self._memories.get(s, s) for s in each} for each in (reads, writes))

    def _forward_ops(self, op: Op, index: Dict[int, int]) -> Iterable[int]:
        for region in op.regions:
            forward = self._graph.regions[region].forward
            if forward >= 0:
                yield index.get(self._graph.regions[forward].op, -1)
