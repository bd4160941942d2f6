"""Step counters of training loops, and arrays with one element a step: what a trip of the gradient finds in them.

A loop that counts in place adds `d` to its counter once a trip; its gradient takes `d` off once a trip, and runs the same
trips backwards. With c0 before the loop, trip t of the loop starts with c0 + t * d. The gradient of trip t starts with
c0 + (t + 1) * d, and behind its own subtraction it sees c0 + t * d: what the loop saw before it counted.

An array that the loop reads at the counter before it counts, and writes at the counter after it has counted, gets each
element before it is read and never again: trip t reads element c0 + t * d, and writes element c0 + (t + 1) * d. So behind
the subtraction, the gradient of trip t finds at the counter what trip t found there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Iterable, Iterator, List, Optional

from transpiler.analysis.positions import Positions
from transpiler.ir import ArrayAccess, Graph, Op, Region, RegionKind, ValueKind
from transpiler.ir.dtypes import WHOLE_NUMBERS


@dataclass(frozen=True)
class Counter:
    """A storage that `counts` (an op of the loop) adds to and `counts_back` (one of its gradient) takes off; `arrays` are
    storages with the element of each step."""

    storage: int
    counts: int
    counts_back: int
    arrays: FrozenSet[int]


def mirrored_counters(graph: Graph, gradient: Region) -> List[Counter]:
    """The counters of a loop, by its gradient region."""
    if gradient.kind is not RegionKind.LOOP_GRADIENT or gradient.forward < 0:
        return []
    loop = graph.regions[gradient.forward]
    if graph.ops[loop.op].region != graph.ops[gradient.op].region:
        return []
    positions = Positions(graph)
    if positions.of[loop.op] > positions.of[gradient.op]:
        return []
    found = []
    for op in graph.region_ops(loop.id):
        back = _counts_back(graph, op, loop, gradient, positions)
        if back is not None:
            storage = graph.values[op.results[0]].storage
            arrays = frozenset(a for a in _arrays(graph, loop)
                               if _one_element_a_step(graph, a, storage, op, loop, positions) and
                               not _writers(graph, a, graph.walk(gradient.id)) and
                               not _writers(graph, a, _between(graph, loop, gradient, positions)))
            found.append(Counter(storage, op.id, back, arrays))
    return found


def _counts_back(graph: Graph, op: Op, loop: Region, gradient: Region,
                 positions: Positions) -> Optional[int]:
    """The op of the gradient that takes off what `op` adds, if nobody else touches the counter."""
    if not op.facts.adds or len(op.results) != 1 or op.operands != op.results:
        return None
    value = graph.values[op.results[0]]
    inside = {loop.id, gradient.id, *_nested(graph, loop), *_nested(graph, gradient)}
    copies = {graph.values[v].storage for pair in loop.arguments for v in pair}
    if value.region in inside or value.dtype not in WHOLE_NUMBERS or value.storage in copies:
        return None
    if len(_writers(graph, value.storage, graph.walk(loop.id))) != 1:
        return None
    if _writers(graph, value.storage, _between(graph, loop, gradient, positions)):
        return None
    back = _writers(graph, value.storage, graph.walk(gradient.id))
    if len(back) != 1 or back[0].region != gradient.id or back[0].operands != back[0].results:
        return None
    return back[0].id if back[0].facts.adds == -op.facts.adds else None


def _arrays(graph: Graph, loop: Region) -> Iterable[int]:
    named = (v for op in graph.walk(loop.id) if not op.regions for v in op.reads() + op.writes())
    return sorted({
        graph.values[v].storage
        for v in named
        if graph.values[v].kind is ValueKind.ARRAY and graph.values[v].region < loop.id
    })


def _one_element_a_step(graph: Graph, array: int, counter: int, counts: Op, loop: Region,
                        positions: Positions) -> bool:
    """Whether the loop reads `array` only at the counter before it counts, and writes it only there after it has."""
    if counts.facts.adds < 1:
        return False
    for op in graph.walk(loop.id):
        named = {graph.values[v].storage for v in op.reads() + op.writes()}
        if array not in named:
            continue
        if op.region != loop.id or not at_index(graph, op, array, counter):
            return False
        if (op.facts.array is ArrayAccess.READS_ELEMENT) != (positions.of[op.id]
                                                             < positions.of[counts.id]):
            return False
    return True


def at_index(graph: Graph, op: Op, array: int, index: int) -> bool:
    """Whether `op` does nothing but read or write the element of `array` (a storage) at `index` (another).

    What else it names is told from the index by its type, which is no whole number: what it writes, or what a read that
    finds no element looks like.
    """
    operands = [graph.values[v] for v in op.reads()]
    storages = [v.storage for v in operands]
    written = [graph.values[v].storage for v in op.writes()]
    if index not in storages or len(op.operands) != len(storages):
        return False
    others = [v for v in operands if v.storage not in (array, index)]
    if not all(v.kind is ValueKind.DENSE and v.dtype not in WHOLE_NUMBERS for v in others):
        return False
    if op.facts.array is ArrayAccess.READS_ELEMENT:
        return array in storages and array not in written
    return (op.facts.array is ArrayAccess.WRITES_ELEMENT and written == [array] and
            array not in storages and len(storages) == 2)


def _writers(graph: Graph, storage: int, ops: Iterable[Op]) -> List[Op]:
    return [op for op in ops if any(graph.values[v].storage == storage for v in op.writes())]


def _between(graph: Graph, loop: Region, gradient: Region, positions: Positions) -> Iterator[Op]:
    """What runs after the loop and before its gradient."""
    around = graph.regions[graph.ops[loop.op].region]
    for op in around.ops[positions.of[loop.op] + 1:positions.of[gradient.op]]:
        yield graph.ops[op]
        yield from graph.inside(graph.ops[op])


def _nested(graph: Graph, region: Region) -> List[int]:
    return [r for op in graph.walk(region.id) for r in op.regions]
