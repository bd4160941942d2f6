"""Where an op stands, seen from the region that owns a value."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Dict, Tuple

from transpiler.ir import FORGET, Graph, Op
from transpiler.ir.slotted import slotted


class Positions:
    """Positions of ops in the op lists of their regions."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.of: Dict[int, int] = {op: i for r in graph.regions for i, op in enumerate(r.ops)}
        self._around: Dict[Tuple[int, int], Tuple[int, bool]] = {}  # by region within, and home

    def reordered(self, graph: Graph, region: int) -> Positions:
        """The same for `graph`, in which the ops of `region` stand in another order."""
        found = copy.copy(self)
        found._graph = graph
        found.of = {**self.of, **{op: i for i, op in enumerate(graph.regions[region].ops)}}
        found._around = {}
        return found

    def update(self, region: int) -> None:
        """After ops were added to `region`, or moved there."""
        self.of.update((op, i) for i, op in enumerate(self._graph.regions[region].ops))
        self._around.clear()

    def seen_from(self, op: Op, home: int) -> Tuple[int, bool]:
        """Position in region `home` of `op`, or of the op of `home` that contains it.

        Returns the end of `home`, and True, for an op of a gradient region that continues the scope of
        `home`: it runs after the trip, on what the trip left behind. (-1, False) if `op` is outside.
        """
        if op.region == home:
            return self.of[op.id], False
        key = op.region, home
        if key not in self._around:
            self._around[key] = self._find_around(*key)
        return self._around[key]

    def _find_around(self, region: int, home: int) -> Tuple[int, bool]:
        while True:
            facts = self._graph.regions[region]
            if facts.forward == home:
                return len(self._graph.regions[home].ops) - 1, True
            if facts.parent < 0:
                return -1, False
            if facts.parent == home:
                return self.of[facts.op], False
            region = facts.parent


@slotted
@dataclass
class Span:
    """First and last position of the uses of a value in its region, both included.

    `last` is the last use of its data or name, `shape_last` the last use of its shape. `kept`: a gradient
    region reads it after the trip. `defined`: the first use is a plain write in its own region.
    """

    first: int
    last: int
    shape_last: int
    kept: bool = False
    defined: bool = False


def spans(graph: Graph) -> Dict[int, Span]:
    """The span of every value that an op names."""
    positions = Positions(graph)
    of, values = positions.of, graph.values
    found: Dict[int, Span] = {}
    for op in graph.walk():
        reads, writes, data, inside = op.reads(), op.writes(), op.data_reads(), op.region
        here = of[op.id]
        for value in dict.fromkeys(reads + writes):
            home = values[value].region
            at, kept = (here, False) if home == inside else positions.seen_from(op, home)
            if at < 0:
                continue
            span = found.get(value)
            if span is None:
                plain_write = (inside == home and value not in reads and not op.regions and
                               op.kind != FORGET)
                found[value] = Span(at, at, at, kept, defined=plain_write)
                continue
            if at < span.first:
                span.first = at
            if at > span.shape_last:
                span.shape_last = at
            if at > span.last and (kept or value in data or value in writes):
                span.last = at
            span.kept = span.kept or kept
    return found
