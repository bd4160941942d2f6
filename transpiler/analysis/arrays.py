"""How many bytes the tensors of an array have, all together."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from transpiler.analysis.handed_on import handed_on_arrays
from transpiler.ir import ONE, ArrayAccess, Graph, Op, Size, ValueKind

_WRITES = (ArrayAccess.WRITES_ELEMENT, ArrayAccess.WRITES_ALL)


def array_parts(graph: Graph) -> Dict[int, List[Size]]:
    """By storage, sizes that an array may have when all is in it. Arrays of unknown size are missing.

    An array takes a whole sequence at once, or an element a trip of the loops between it and the op that writes.
    """
    found: Dict[int, List[Size]] = {}
    if not any(v.kind is ValueKind.ARRAY for v in graph.values):
        return found
    for op in graph.walk():
        for array, size in _written(graph, op):
            found.setdefault(graph.values[array].storage, []).append(size)
    for region in graph.regions:
        newest = {h.value for h in handed_on_arrays(graph, region) if h.emptied}
        for inner, outer in region.results:
            elements = found.get(graph.values[inner].storage, ())
            if graph.values[inner].kind is ValueKind.ARRAY and elements:
                trips = ONE if inner in newest else region.trips
                sizes = found.setdefault(graph.values[outer].storage, [])
                sizes.extend(size * trips for size in elements)
    return found


def _written(graph: Graph, op: Op) -> Iterator[Tuple[int, Size]]:
    """(array, bytes in it after all trips) for what `op` puts into arrays."""
    if op.facts.array not in _WRITES:
        return
    size = _largest_operand(graph, op)
    for array in (v for v in op.writes() if graph.values[v].kind is ValueKind.ARRAY):
        if size is not None:
            yield array, size * graph.runs_of(op.region, graph.values[array].region)


def _largest_operand(graph: Graph, op: Op) -> Optional[Size]:
    """The tensor that is written; the other operand is a rank table, or an index of one element."""
    sizes = [graph.values[v].bound for v in op.reads() if graph.values[v].kind is ValueKind.DENSE]
    if not sizes or None in sizes:
        return None
    return max(sizes, key=lambda s: s.evaluate(dict.fromkeys(s.dims, 1 << 16)))
