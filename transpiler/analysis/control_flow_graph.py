"""Control flow over nested regions, and liveness of values to a fixed point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Iterable, List, Tuple

from transpiler.ir import Graph, Op, RegionKind


@dataclass
class Node:
    """A point of execution: a plain op, or the entry or the exit of a region or of the op that runs it.

    `uses` and `defs` are value ids; a def overwrites the whole value, for certain.
    """

    op: int
    uses: FrozenSet[int]
    defs: FrozenSet[int]
    successors: List[int] = field(default_factory=list)


class ControlFlowGraph:
    """Nodes, edges, and for each node the values live before and after it.

    A loop has an edge back from its end to its start and one around it (no trip at all); a branch may be
    passed by. A region whose rules are not modelled uses all that it names, at the op that runs it.
    Liveness is the classical backward data flow, kept in integers as bit sets.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes: List[Node] = []
        self.entry_of: Dict[int, int] = {}  # region -> node at its entry
        self.exit_of: Dict[int, int] = {}  # region -> node at its end
        self.node_of: Dict[int, int] = {}  # op -> its node; for an op with regions, its start
        start = self._add(-1, (), ())
        self._build_region(0, [start])
        self._live_in, self._live_out = self._solve()

    def live_in(self, node: int) -> FrozenSet[int]:
        """Ids of the values whose data may be read after the start of `node`, before a new def."""
        return _members(self._live_in[node])

    def live_out(self, node: int) -> FrozenSet[int]:
        """Ids of the values whose data may be read after the end of `node`, before a new def."""
        return _members(self._live_out[node])

    def carried(self) -> FrozenSet[int]:
        """Values of inner regions that are read before they are written there: they outlive a trip."""
        own: Dict[int, List[int]] = {}
        for value in self._graph.values:
            own.setdefault(value.region, []).append(value.id)
        return frozenset(v for region, node in self.entry_of.items() if region
                         for v in _members(self._live_in[node] & bit_set(own.get(region, ()))))

    def _add(self, op: int, uses: Iterable[int], defs: Iterable[int],
             after: Iterable[int] = ()) -> int:
        self.nodes.append(Node(op, frozenset(uses), frozenset(defs)))
        index = len(self.nodes) - 1
        for previous in after:
            self.nodes[previous].successors.append(index)
        return index

    def _build_region(self, region: int, after: List[int]) -> int:
        """Appends the nodes of `region`; returns the node at its end."""
        facts = self._graph.regions[region]
        entry = self._add(facts.op, (outer for outer, _ in facts.arguments),
                          (inner for _, inner in facts.arguments), after)
        self.entry_of[region] = entry
        last = entry
        for op in self._graph.region_ops(region):
            last = self._build_op(op, last)
        end = self._add(facts.op, (inner for inner, _ in facts.results), (), [last])
        self.exit_of[region] = end
        if facts.kind.is_loop:
            self.nodes[end].successors.append(entry)
        return end

    def _build_op(self, op: Op, after: int) -> int:
        kinds = {self._graph.regions[r].kind for r in op.regions}
        if not kinds:
            self.node_of[op.id] = self._add(op.id, op.data_reads(), op.writes(), [after])
            return self.node_of[op.id]
        if RegionKind.OPAQUE in kinds:
            named = {v for inner in self._graph.inside(op) for v in inner.reads() + inner.writes()}
            self.node_of[op.id] = self._add(op.id, named.union(op.reads(), op.writes()), (),
                                            [after])
            return self.node_of[op.id]
        start = self.node_of[op.id] = self._add(op.id, op.reads(), (), [after])
        ends = [self._build_region(region, [start]) for region in op.regions]
        return self._add(op.id, (), (), ends + [start])

    def _solve(self) -> Tuple[List[int], List[int]]:
        uses = [bit_set(n.uses) for n in self.nodes]
        kept = [~bit_set(n.defs) for n in self.nodes]
        live_in, live_out = [0] * len(self.nodes), [0] * len(self.nodes)
        changed = True
        while changed:  # backward order settles straight-line code in one sweep; a sweep more per loop level
            changed = False
            for i in range(len(self.nodes) - 1, -1, -1):
                out = 0
                for successor in self.nodes[i].successors:
                    out |= live_in[successor]
                before = uses[i] | (out & kept[i])
                if before != live_in[i] or out != live_out[i]:
                    live_in[i], live_out[i], changed = before, out, True
        return live_in, live_out


def bit_set(values: Iterable[int]) -> int:
    """A number with these bits set."""
    mask = 0
    for v in values:
        mask |= 1 << v
    return mask


def _members(mask: int) -> FrozenSet[int]:
    bits, found = bin(mask)[:1:-1], []
    at = bits.find('1')
    while at >= 0:
        found.append(at)
        at = bits.find('1', at + 1)
    return frozenset(found)
