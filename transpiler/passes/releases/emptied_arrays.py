"""Tensor arrays of loops: emptied when nobody needs their tensors any more.

Needs: nothing. Keeps: the order of ops. Changes: adds RELEASE ops to the main region and to gradients of loops.

A loop's gradient names every output of the loop, although it looks at none: so an array of outputs, a copy of the whole
sequence, stays through the backward pass. And an array that hands a gradient from trip to trip keeps those of all trips.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Tuple

from transpiler.analysis.handed_on import handed_on_arrays
from transpiler.analysis.positions import Positions
from transpiler.ir import Graph, ValueKind
from transpiler.passes.context import PassContext
from transpiler.passes.releases.release_ops import write_releases


def empty_arrays(graph: Graph, _context: PassContext) -> Graph:
    """Empties each array of the main region after its last use, if an op names it later on; and each array that hands
    a tensor from trip to trip, when the trip has read it."""
    for region in graph.regions:
        dead: Dict[int, List[Tuple[int]]] = {}
        for each in handed_on_arrays(graph, region):
            if not each.emptied:
                dead.setdefault(region.ops.index(each.last_read), []).append((each.value,))
        write_releases(graph, region, dead, {})
    used, named = _last_positions(graph)
    kept = _in_lasting_memory(graph)
    dead = {}
    for value, at in used.items():
        if named[value] > at and not (graph.values[value].may_be_asked_for or value in kept):
            dead.setdefault(at, []).append((value,))
    write_releases(graph, graph.regions[0], dead, {})
    return graph


def _last_positions(graph: Graph) -> Tuple[Dict[int, int], Dict[int, int]]:
    """Positions in the main region at which each of its arrays is last used, and last named."""
    positions = Positions(graph)
    used: Dict[int, int] = {}
    named: Dict[int, int] = {}
    for op in graph.walk():
        at = positions.seen_from(op, 0)[0]
        for value in (v for v in op.reads() + op.writes() if _is_main_array(graph, v)):
            named[value] = max(named.get(value, at), at)
        read = {v for i, v in enumerate(op.operands) if i not in op.facts.unread}
        for value in (v for v in read.union(op.writes()) if _is_main_array(graph, v)):
            used[value] = max(used.get(value, at), at)
    return used, named


def _in_lasting_memory(graph: Graph) -> FrozenSet[int]:
    """Values of which nothing is freed if they are emptied: they would be made anew in the next run, beside what lasts."""
    pairs = (pair for op in graph.walk() for pair in op.in_one_memory())
    return frozenset(v for pair in pairs
                     if any(graph.values[p].lasting for p in pair) for v in pair)


def _is_main_array(graph: Graph, value: int) -> bool:
    return (value >= 0 and graph.values[value].kind is ValueKind.ARRAY and
            graph.values[value].region == 0)
