"""Which storages an op touches, those that its nested ops touch outside its regions included."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Dict, Iterable, List, Set, Tuple

from transpiler.ir import Graph, Op, Region, RegionKind


@dataclass
class _Outward:
    """Of a region, the ops inside its ops included: values of other regions that it reads, and that it writes."""

    inside: Set[int] = field(
        default_factory=set)  # regions, and the forward regions whose scope they continue
    reads: Set[int] = field(default_factory=set)
    writes: Set[int] = field(default_factory=set)
    copied: Set[int] = field(
        default_factory=set)  # of what it reads, what kernels with a layout of their own do
    taken: Set[int] = field(default_factory=set)  # and what ops may work in place on
    ordered: bool = False


class Accesses:
    """Of the ops of a graph, whatever their order. What a region does outside it is found once, from what those inside do.

    `memories`: for each storage that an op puts into the memory of another, or the other way round, one that stands for all in it.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.memories = _memories(graph)
        self._regions: List[_Outward] = [_Outward() for _ in graph.regions]
        # An inner region comes after the one around it, a gradient after its forward region.
        for region in reversed(graph.regions if len(graph.regions) > 1 else []):
            self._add_ops(region)
        for region in reversed(graph.regions if len(graph.regions) > 1 else []):
            self._add_links(region)

    def of(self, op: Op) -> Tuple[Set[int], Set[int]]:
        """Storages that `op` reads, and storages that it writes."""
        values = self._graph.values
        reads = {values[v].storage for v in op.reads()}
        writes = {values[v].storage for v in op.writes()}
        for region in op.regions:
            outward = self._regions[region]
            reads.update(values[v].storage for v in outward.reads)
            writes.update(values[v].storage for v in outward.writes)
        return reads, writes

    def copied_by(self, op: Op) -> Set[int]:
        """Storages that `op`, or one inside it, reads by a kernel with a layout of its own."""
        copied = op.reads() if op.facts.converts else ()
        return self._storages(copied, (self._regions[region].copied for region in op.regions))

    def taken_by(self, op: Op) -> Set[int]:
        """Storages that `op`, or one inside it, may work in place on."""
        return self._storages(op.given_in_place(),
                              (self._regions[region].taken for region in op.regions))

    def is_ordered(self, op: Op) -> bool:
        """Whether `op` is, or contains, an op that must keep its place among the ordered ones."""
        return op.facts.ordered or any(self._regions[region].ordered for region in op.regions)

    def _storages(self, values: Iterable[int], more: Iterable[Set[int]]) -> Set[int]:
        return {self._graph.values[v].storage for v in chain(values, *more)}

    def _add_ops(self, region: Region) -> None:
        found = self._regions[region.id]
        found.inside.add(region.id)
        if region.forward >= 0:
            found.inside.add(region.forward)
        for op in self._graph.region_ops(region.id):
            unknown = region.kind is RegionKind.OPAQUE or not op.facts.known
            (found.writes if unknown else found.reads).update(op.reads())
            found.writes.update(op.writes())
            found.copied.update(op.reads() if op.facts.converts else ())
            found.taken.update(op.given_in_place())
            found.ordered = found.ordered or op.facts.ordered
            for inner in map(self._regions.__getitem__, op.regions):
                found.inside |= inner.inside
                found.reads |= inner.reads
                found.writes |= inner.writes
                found.copied |= inner.copied
                found.taken |= inner.taken
                found.ordered = found.ordered or inner.ordered
        found.copied, found.taken = (
            self._outside(each, found) for each in (found.copied, found.taken))
        self._keep_outward(found)

    def _add_links(self, region: Region) -> None:
        """What the runtime hands in and out, and what the forward region writes outside: it counts as written again."""
        found = self._regions[region.id]
        for linked in map(self._graph.regions.__getitem__, {region.id, region.forward} - {-1}):
            found.reads.update(outer for outer, _ in linked.arguments)
            found.writes.update(outer for _, outer in linked.results)
        # A gradient that no op inside makes is handed out under its name, which is then that of a value around.
        found.reads.update(inner for inner, _ in region.results)
        if region.forward >= 0:
            found.writes |= self._regions[region.forward].writes
        for op in self._graph.region_ops(region.id):
            for inner in map(self._regions.__getitem__, op.regions):
                found.reads |= inner.reads
                found.writes |= inner.writes
        self._keep_outward(found)

    def _keep_outward(self, found: _Outward) -> None:
        found.reads, found.writes = (
            self._outside(each, found) for each in (found.reads, found.writes))

    def _outside(self, values: Set[int], found: _Outward) -> Set[int]:
        return {v for v in values if self._is_outside(v, found.inside)}

    def _is_outside(self, value: int, inside: Set[int]) -> bool:
        values = self._graph.values
        facts = values[value]
        return facts.region not in inside or values[facts.storage].region not in inside


def _memories(graph: Graph) -> Dict[int, int]:
    found: Dict[int, int] = {}
    for op in (each for each in graph.walk() if each.facts.aliases):
        for pair in zip(op.operands, op.results):
            one, other = (graph.values[v].storage for v in pair)
            kept, gone = found.setdefault(one, one), found.get(other, other)
            if other in found and gone != kept:
                found.update([(each, kept) for each, memory in found.items() if memory == gone])
            found[other] = kept
    return found
