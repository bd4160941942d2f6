"""How many bytes the tensors of an array have, all together."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from transpiler.analysis.handed_on import handed_on_arrays
from transpiler.ir import ONE, ArrayAccess, Graph, Op, Size, ValueKind

_TAKES_ALL = (ArrayAccess.WRITES_ALL, ArrayAccess.APPENDS)


def array_parts(graph: Graph) -> Dict[int, List[Size]]:
    """By storage, sizes that an array may have when all is in it. Arrays of unknown size are missing.

    An array takes a whole sequence at once, or elements: of each op that writes one, as many as there are trips of the loops
    between the two.
    """
    found: Dict[int, List[Size]] = {}
    if not any(v.kind is ValueKind.ARRAY for v in graph.values):
        return found
    elements: Dict[int, List[Size]] = {}
    for op in graph.walk():
        by_storage = found if op.facts.array in _TAKES_ALL else elements
        for array, size in _written(graph, op):
            by_storage.setdefault(graph.values[array].storage, []).append(size)
    for storage, sizes in elements.items():
        found.setdefault(storage, []).append(Size.total(sizes))
    for region in graph.regions:
        newest = {h.value for h in handed_on_arrays(graph, region) if h.emptied}
        for inner, outer in region.results:
            made = found.get(graph.values[inner].storage, ())
            if graph.values[inner].kind is ValueKind.ARRAY and made:
                trips = ONE if inner in newest else region.trips
                sizes = found.setdefault(graph.values[outer].storage, [])
                sizes.extend([size * trips for size in made])
    for op in graph.walk():
        for array in _made_of_arrays(graph, op):
            read = (graph.values[v].storage for v in op.reads())
            parts = [size for storage in read for size in found.get(storage, ())]
            if parts:
                found.setdefault(graph.values[array].storage, []).extend(parts)
    for giver, taker in _in_one_memory(graph):
        most = [*found.get(giver, ()), *found.get(taker, ())]
        if most:
            found[giver] = found[taker] = most
    return found


def _made_of_arrays(graph: Graph, op: Op) -> List[int]:
    """Arrays that `op` makes of others, as a copy or a sum: none has more elements, or larger ones, than the largest."""
    if op.regions or op.facts.array not in (None, ArrayAccess.WRITES_ALL):
        return []
    made = set(op.writes()) - set(op.reads())
    return [v for v in sorted(made) if graph.values[v].kind is ValueKind.ARRAY]


def _in_one_memory(graph: Graph) -> Iterator[Tuple[int, int]]:
    """Storages of two arrays that have the same tensors."""
    for op in graph.walk():
        for giver, taker in (map(graph.values.__getitem__, pair) for pair in op.in_one_memory()):
            if giver.kind is taker.kind is ValueKind.ARRAY:
                yield giver.storage, taker.storage


def _written(graph: Graph, op: Op) -> Iterator[Tuple[int, Size]]:
    """(array, bytes in it after all trips) for what `op` puts into arrays."""
    if op.facts.array not in (ArrayAccess.WRITES_ELEMENT, *_TAKES_ALL):
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
