"""Shapes that are read of somebody else, where the runtime loses those of what is released.

Needs: nothing. Keeps: the order. Changes: operands that ops read no more of than the shape.

Who reads the shape alone of what is dead keeps it from being released. Any other value that has the same dims in every run does as
well: one that is there anyway, as what comes into a loop from outside, or else, in the main region, one that died later.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import replace
from typing import Dict, FrozenSet, Hashable, Iterator, List, Optional, Tuple

from transpiler.analysis.positions import Positions, Span, spans
from transpiler.analysis.timeline import Timeline
from transpiler.ir import RELEASE, SHARE, Graph, Op, Region, Value, ValueKind
from transpiler.passes.context import PassContext
from transpiler.passes.tenants import in_shared_storages


def read_shapes_of_others(graph: Graph, context: PassContext) -> Graph:
    """Lets nothing wait for who reads its shape alone, where somebody else has the same."""
    _StandIns(graph, context.collecting(graph)).find()
    return graph


class _StandIns:

    def __init__(self, graph: Graph, timeline: Timeline) -> None:
        self._graph = graph
        self._spans: Dict[int, Span] = spans(graph)
        self._positions = Positions(graph).of
        # Whose memory goes to another, or is let go of: its variable may have other dims then.
        self._gone: FrozenSet[int] = frozenset(
            source for _, source, _ in timeline.lifetimes.shared).union(
                (graph.values[v].storage for op in graph.walk() if op.kind in (RELEASE, SHARE)
                 for v in op.reads() + op.writes()),
                (graph.values[v].storage for v in in_shared_storages(graph)))
        # When the memory of a storage goes to another by the program: in one variable with that it has its dims from then on.
        self._handed_on: Dict[int, int] = {}
        for op in graph.walk():
            if op.kind == SHARE:
                for v in op.operands:
                    self._handed_on.setdefault(graph.values[v].storage, self._positions[op.id])
        # By region and look: last use and value, those so far.
        self._alike: Dict[int, Dict[Hashable, List[Tuple[int, int]]]] = {
            region.id: {} for region in graph.regions
        }
        self._from_outside = {r.id: _there_all_the_while(graph, r) for r in graph.regions}

    def find(self) -> None:
        made, position = self._made(), self._positions
        for op in list(self._graph.walk()):
            at = position[op.id]
            operands = tuple(
                self._stand_in(op, v, at) if i in op.facts.shape_only else v
                for i, v in enumerate(op.operands))
            if operands != op.operands:
                self._graph.ops[op.id] = replace(op, operands=operands)
            for value in made.get((op.region, at), ()):
                look = _look(self._graph.values[value])
                if look is not None:
                    alike = self._alike[op.region].setdefault(look, [])
                    bisect.insort(alike, (self._spans[value].last, value))

    def _made(self) -> Dict[Tuple[int, int], List[int]]:
        """Values by their region and first use there."""
        made: Dict[Tuple[int, int], List[int]] = {}
        for value, span in self._spans.items():
            facts = self._graph.values[value]
            if not facts.persistable:
                made.setdefault((facts.region, span.first), []).append(value)
        return made

    def _stand_in(self, op: Op, value: int, at: int) -> int:
        """What `op`, at position `at`, is to read the shape of in the place of `value`: that itself if nothing is better."""
        values = self._graph.values
        own = self._spans.get(value)
        if (own is None or values[value].region != op.region or own.last >= at or
                value not in op.shape_reads()):
            return value
        touched = {values[v].storage for v in op.touches()}
        for last, other in self._others(op, _look(values[value])):
            # In loops and branches what waits for a reader is not released at all.
            if last <= (at if op.region else own.last):
                break
            storage = values[other].storage
            intact = last > at or storage not in self._gone
            if intact and storage not in touched and self._handed_on.get(storage, at) >= at:
                return other
        return value

    def _others(self, op: Op, look: Hashable) -> Iterator[Tuple[float, int]]:
        """When values of that look are dead, seen from `op`, and they: who lives longest comes first."""
        yield from ((math.inf, v)
                    for v in self._from_outside[op.region]
                    if _look(self._graph.values[v]) == look)
        yield from reversed(self._alike[op.region].get(look, ()))


def _there_all_the_while(graph: Graph, region: Region) -> Tuple[int, ...]:
    """What comes into `region` from outside and has dims that inputs alone decide, but for what its op lets go of or changes: what a
    loop begins with. Whoever follows what a loop hands on has the dims of its last trip."""
    if region.op < 0:
        return ()
    op, fed = graph.ops[region.op], {v.name for v in graph.values if v.fed}
    given_up = set(op.writes())
    return tuple(
        v for v in op.reads()
        if v not in given_up and not graph.values[v].persistable and graph.values[v].follows <= fed)


def _look(value: Value) -> Optional[Hashable]:
    """The same for values that a reader of the shape can't tell apart; None if nobody knows, or it is no tensor."""
    if value.kind is not ValueKind.DENSE or value.extent is None:
        return None
    return value.extent, value.dtype, value.lod_level
