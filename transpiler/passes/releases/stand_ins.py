"""Shapes that are read of somebody else, where the runtime loses those of what is released.

Needs: nothing. Keeps: the order. Changes: operands of ops of the main region that read no more of them than the shape.

Who reads the shape alone of what is dead keeps it from being released. Any other value that has the same dims in every run does as
well: one that is there anyway, or else one that died later.
"""

from __future__ import annotations

import bisect
from dataclasses import replace
from typing import Dict, FrozenSet, Hashable, List, Optional, Tuple

from transpiler.analysis.positions import Span, spans
from transpiler.analysis.timeline import Timeline
from transpiler.ir import RELEASE, SHARE, Graph, Op, Value, ValueKind
from transpiler.passes.context import PassContext


def read_shapes_of_others(graph: Graph, context: PassContext) -> Graph:
    """Lets nothing wait for who reads its shape alone, where somebody else has the same."""
    _StandIns(graph, context.collecting(graph)).find()
    return graph


class _StandIns:

    def __init__(self, graph: Graph, timeline: Timeline) -> None:
        self._graph = graph
        self._spans: Dict[int, Span] = {
            v: span for v, span in spans(graph).items() if graph.values[v].region == 0
        }
        # Whose memory goes to another, or is let go of: its variable may have other dims then.
        self._gone: FrozenSet[int] = frozenset(
            source for _, source, _ in timeline.lifetimes.shared).union(
                graph.values[v].storage for op in graph.region_ops(0) if op.kind in (RELEASE, SHARE)
                for v in op.reads() + op.writes())
        self._alike: Dict[Hashable, List[Tuple[int, int]]] = {}  # last use and value, those so far

    def find(self) -> None:
        graph = self._graph
        made: Dict[int, List[int]] = {}
        for value, span in self._spans.items():
            if not graph.values[value].persistable:
                made.setdefault(span.first, []).append(value)
        for at, op in enumerate(list(graph.region_ops(0))):
            operands = tuple(
                self._stand_in(op, v, at) if i in op.facts.shape_only else v
                for i, v in enumerate(op.operands))
            if operands != op.operands:
                graph.ops[op.id] = replace(op, operands=operands)
            for value in made.get(at, ()):
                look = _look(graph.values[value])
                if look is not None:
                    bisect.insort(self._alike.setdefault(look, []),
                                  (self._spans[value].last, value))

    def _stand_in(self, op: Op, value: int, at: int) -> int:
        """What `op`, at position `at`, is to read the shape of in the place of `value`: that itself if nothing is better."""
        values = self._graph.values
        own = self._spans.get(value)
        if own is None or own.last >= at or value not in op.shape_reads():
            return value
        touched = {values[v].storage for v in op.touches()}
        for last, other in reversed(self._alike.get(_look(values[value]), ())):
            if last <= own.last:
                break
            storage = values[other].storage
            if storage not in touched and (last > at or storage not in self._gone):
                return other
        return value


def _look(value: Value) -> Optional[Hashable]:
    """The same for values that a reader of the shape can't tell apart; None if nobody knows, or it is no tensor."""
    if value.kind is not ValueKind.DENSE or value.extent is None:
        return None
    return value.extent, value.dtype, value.lod_level
