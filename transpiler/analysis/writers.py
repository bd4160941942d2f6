"""What regions write, those inside them included, and where ops stand."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import AbstractSet, Dict, Iterable, List, Sequence, Set

from transpiler.analysis.positions import Positions
from transpiler.ir import Graph, Op, Region
from transpiler.ir.boundary import state_of_calls


class Writers:
    """Of a graph as it is: found once, asked for often."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._state = state_of_calls(graph)
        self.positions = Positions(graph)
        self._inside: List[Set[int]] = [set() for _ in graph.regions]
        for region in reversed(graph.regions):  # inner ones come after those around them
            found = self._inside[region.id]
            for op in graph.region_ops(region.id):
                found.update(self._written_by(op))
        self._gradients: Dict[int, List[Region]] = {}
        for region in graph.regions:
            self._gradients.setdefault(region.forward, []).append(region)

    def gradients(self, region: int) -> Sequence[Region]:
        """The regions that are the gradient of `region`."""
        return self._gradients.get(region, ())

    def inside(self, region: int) -> AbstractSet[int]:
        """Storages that some op of `region` writes, at any depth."""
        return self._inside[region]

    def count(self, value: int) -> int:
        """How many ops write `value`."""
        return self._counts[value]

    @cached_property
    def _counts(self) -> Dict[int, int]:
        return Counter(v for op in self._graph.walk() for v in op.writes())

    def update(self, region: int) -> None:
        """After ops were added to `region` that write no storage that was there before."""
        self.positions.update(region)

    def written(self, storage: int, ops: Iterable[int]) -> bool:
        """Whether one of `ops` writes `storage`, or an op inside it does, or another call while it stands for one."""
        return any(storage in self._written_by(op) for op in map(self._graph.ops.__getitem__, ops))

    def _written_by(self, op: Op) -> AbstractSet[int]:
        if op.facts.boundary:
            return self._state
        values = self._graph.values
        own = {values[v].storage for v in op.writes()}
        return own.union(*(self._inside[region] for region in op.regions))
