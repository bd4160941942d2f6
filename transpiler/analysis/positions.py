"""Where an op stands, seen from the region that owns a value."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Dict, Tuple

from transpiler.ir import FORGET, Graph, Op
from transpiler.ir.slotted import slotted

OUTSIDE, AFTER = -1, -2  # of a region, in place of an op of another that has it inside


class Positions:
    """Positions of ops in the op lists of their regions."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.of: Dict[int, int] = {op: i for r in graph.regions for i, op in enumerate(r.ops)}
        self._within: Dict[Tuple[int, int], int] = {}  # by region and home, see `within`

    def reordered(self, graph: Graph, region: int) -> Positions:
        """The same for `graph`, in which the ops of `region` stand in another order."""
        found = copy.copy(self)
        found._graph = graph
        found.of = {**self.of, **{op: i for i, op in enumerate(graph.regions[region].ops)}}
        return found

    def update(self, region: int) -> None:
        """After ops were added to `region`, or moved there."""
        self.of.update((op, i) for i, op in enumerate(self._graph.regions[region].ops))

    def seen_from(self, op: Op, home: int) -> Tuple[int, bool]:
        """Position in region `home` of `op`, or of the op of `home` that contains it.

        Returns the end of `home`, and True, for an op of a gradient region that continues the scope of
        `home`: it runs after the trip, on what the trip left behind. (-1, False) if `op` is outside.
        """
        if op.region == home:
            return self.of[op.id], False
        # As `within` does: it is asked too often for another call.
        within = self._within.get((op.region, home))
        if within is None:
            within = self._find_within(op.region, home)
        if within >= 0:
            return self.of[within], False
        return (len(self._graph.regions[home].ops) - 1, True) if within == AFTER else (-1, False)

    def within(self, region: int, home: int) -> int:
        """The op of `home` that `region` is in, wherever that stands; `AFTER` if it continues the scope of `home`, `OUTSIDE` if neither."""
        found = self._within.get((region, home))
        return self._find_within(region, home) if found is None else found

    def _find_within(self, region: int, home: int) -> int:
        regions, known, passed = self._graph.regions, self._within, []
        found = None
        while found is None:
            passed.append(region)
            facts = regions[region]
            if facts.forward == home:
                found = AFTER
            elif facts.parent < 0:
                found = OUTSIDE
            elif facts.parent == home:
                found = facts.op
            else:
                region = facts.parent
                found = known.get((region, home))
        known.update(((each, home), found) for each in passed)
        return found


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
        reads, writes, inside, here = op.reads(), op.writes(), op.region, of[op.id]
        shapes = op.facts.shape_only and set(op.shape_reads()).difference(writes)
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
            if at > span.last and (kept or not shapes or value not in shapes):
                span.last = at
            span.kept = span.kept or kept
    return found
