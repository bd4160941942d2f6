"""Gradients leave a branch without a copy.

When the gradient of a branch is through, the runtime copies what it hands out to the variables outside: for that moment
each gradient exists twice. A tensor that has the buffer already is not copied. So the region moves each buffer out itself.
The runtime finds the gradient inside by its name, which may be the name outside, too: the one outside gets a new value,
and a second MOVE, right behind, gives it its old name.

Needs: nothing. Keeps: the order of ops. Changes: adds MOVE ops, at the end of gradients of branches and behind them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Dict, Iterable, List, Tuple

from transpiler.analysis.interference import LEAST_BYTES, carry_lod
from transpiler.ir import HANDED_ON, MOVE, Graph, Region, RegionKind, ValueKind
from transpiler.passes.cloning import Cloner
from transpiler.passes.context import PassContext


def hand_out_of_branches(graph: Graph, context: PassContext) -> Graph:
    """Moves out of each gradient of a branch what can be moved."""
    gradients = [r for r in graph.regions if r.kind is RegionKind.BRANCH_GRADIENT]
    if gradients:
        rules, cloner = _Rules(graph, context), Cloner(graph, 0, HANDED_ON)
        for region in gradients:
            _hand_out(graph, region, cloner,
                      [pair for pair in region.results if rules.allow(region, *pair)])
    return graph


def _hand_out(graph: Graph, region: Region, cloner: Cloner, pairs: List[Tuple[int, int]]) -> None:
    if not pairs:
        return
    op = graph.ops[region.op]
    ways = {outer: cloner.of(op.region).value(outer) for _, outer in pairs}
    region.results = tuple((inner, ways.get(outer, outer)) for inner, outer in region.results)
    graph.ops[op.id] = replace(op, results=tuple(ways.get(v, v) for v in op.results))
    around = graph.regions[op.region]
    types = {outer: graph.values[outer].dtype for outer in ways}
    for dtype in dict.fromkeys(types.values()):  # Paddle's operator bears one type at a time
        inner = [inner for inner, outer in pairs if types[outer] == dtype]
        outer = [outer for outer in ways if types[outer] == dtype]
        through = [ways[v] for v in outer]
        _add_move(graph, region, len(region.ops), inner, through)
        _add_move(graph, around, around.ops.index(op.id) + 1, through, outer)


def _add_move(graph: Graph, region: Region, at: int, operands: Iterable[int],
              results: Iterable[int]) -> None:
    graph.new_op(MOVE,
                 region.id,
                 operands=tuple(operands),
                 results=tuple(results),
                 origin=None,
                 backward=True)
    region.ops.insert(at, region.ops.pop())


class _Rules:
    """Which gradients can be moved: dense ones, whose memory is theirs alone on both sides."""

    def __init__(self, graph: Graph, context: PassContext) -> None:
        self._graph = graph
        self._dims = context.dims
        self._lod = carry_lod(graph)
        self._writers: Dict[int, int] = Counter(v for op in graph.walk() for v in op.writes())
        self._shared = graph.storage_members()
        self._aliased = {
            v for op in graph.walk() if op.facts.aliases for v in op.operands + op.results
        }

    def allow(self, region: Region, inner: int, outer: int) -> bool:
        """Whether the buffer of `inner`, of `region`, may become that of `outer`."""
        inside, outside = self._graph.values[inner], self._graph.values[outer]
        if outside.may_be_asked_for:
            return False
        if inside.region != region.id or outside.region != self._graph.ops[region.op].region:
            return False
        if not self._writers[inner] or self._writers[outer] != 1:
            return False
        return self._is_plain(inner) and self._is_plain(outer) and inside.dtype == outside.dtype

    def _is_plain(self, value: int) -> bool:
        facts = self._graph.values[value]
        return (facts.kind is ValueKind.DENSE and facts.storage == value and
                value not in self._shared and value not in self._aliased and
                value not in self._lod and facts.size is not None and
                facts.size.evaluate(self._dims) >= LEAST_BYTES)
