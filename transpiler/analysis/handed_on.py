"""Arrays that hand a tensor from one trip of a loop's gradient to the next: only their newest element matters.

The gradient of trip t reads the array at the counter before it counts back, element c0 + t + 1, and writes it after that,
element c0 + t: what the next trip, that of t - 1, reads first. So between its read and its write, a trip needs no element
at all. The runtime takes over, after each trip, what the array of that name in the trip's scope has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Iterator, List, Optional

from transpiler.analysis.counters import Counter, at_index, mirrored_counters
from transpiler.analysis.positions import Positions
from transpiler.ir import RELEASE, ArrayAccess, Graph, Op, Region, ValueKind


@dataclass(frozen=True)
class HandedOn:
    """A value of a gradient region, an array, whose elements nobody needs after the op `last_read`.

    `emptied` are the RELEASE ops that empty it between that op and the write that follows.
    """

    value: int
    last_read: int
    emptied: FrozenSet[int]


def handed_on_arrays(graph: Graph, gradient: Region) -> List[HandedOn]:
    """Those of the gradient of a loop of the main region."""
    if gradient.parent != 0 or not gradient.arguments:
        return []
    handed_out = {inner: outer for inner, outer in gradient.results}
    found = []
    counters = mirrored_counters(graph, gradient)
    for outer, inner in gradient.arguments if counters else ():
        if graph.values[inner].kind is ValueKind.ARRAY and handed_out.get(inner) == outer:
            found += filter(None, (_handed_on(graph, gradient, c, inner, outer) for c in counters))
    return found


def _handed_on(graph: Graph, gradient: Region, counter: Counter, inner: int,
               outer: int) -> Optional[HandedOn]:
    # The runtime looks for the array to take over under the name that it has outside.
    if graph.values[inner].name != graph.values[outer].name:
        return None
    positions = Positions(graph)
    named = [op for op in graph.walk(gradient.id) if _names(graph, op, inner)]
    if any(op.region != gradient.id for op in named):
        return None
    emptied = [op for op in named if op.kind == RELEASE]
    reads = [op for op in named if op.facts.array is ArrayAccess.READS_ELEMENT]
    writes = [op for op in named if op.facts.array is ArrayAccess.WRITES_ELEMENT]
    if not reads or len(writes) != 1 or len(emptied) + len(reads) + 1 != len(named):
        return None
    storage = graph.values[inner].storage
    if not all(at_index(graph, op, storage, counter.storage) for op in reads + writes):
        return None
    last_read = max(positions.of[op.id] for op in reads)
    write, back = positions.of[writes[0].id], positions.of[counter.counts_back]
    if not last_read < back < write or any(
            not last_read < positions.of[op.id] < write for op in emptied):
        return None
    if not _only_the_newest_is_read(graph, gradient, counter, outer, positions):
        return None
    return HandedOn(inner, gradient.ops[last_read], frozenset(op.id for op in emptied))


def _only_the_newest_is_read(graph: Graph, gradient: Region, counter: Counter, outer: int,
                             positions: Positions) -> bool:
    """Whether those who come after the gradient read its last trip's element alone: the one at the counter's start."""
    start = _filled_with(graph, counter.storage, (counter.counts, counter.counts_back))
    after = graph.regions[0].ops[positions.of[gradient.op] + 1:]
    for op in _with_nested(graph, after):
        if op.kind == RELEASE or not _names(graph, op, outer):
            continue
        indices = {graph.values[v].storage for v in op.reads()} - {graph.values[outer].storage}
        if op.facts.array is not ArrayAccess.READS_ELEMENT or start is None or not any(
                at_index(graph, op, graph.values[outer].storage, index) and
                _filled_with(graph, index, ()) == start for index in indices):
            return False
    facts = graph.values[outer]
    return not (facts.fetched or facts.persistable or facts.skipped)


def _filled_with(graph: Graph, storage: int, but: tuple) -> Optional[float]:
    """The constant that the one op of the main region that writes `storage`, those of `but` left out, fills it with."""
    writers = [
        op for op in graph.walk()
        if op.id not in but and any(graph.values[v].storage == storage for v in op.writes())
    ]
    direct = [op for op in writers if not op.regions]
    if len(direct) != 1 or direct[0].region != 0 or not _write_inside(graph, storage, writers, but):
        return None
    return direct[0].facts.fills


def _write_inside(graph: Graph, storage: int, writers: List[Op], but: tuple) -> bool:
    """Whether ops with regions that name `storage` as written do so for the sake of the ops of `but` alone."""
    return all(
        any(inner.id in but for inner in graph.inside(op)) or op.regions == () for op in writers)


def _names(graph: Graph, op: Op, value: int) -> bool:
    storage = graph.values[value].storage
    return any(graph.values[v].storage == storage for v in op.reads() + op.writes())


def _with_nested(graph: Graph, ops: List[int]) -> Iterator[Op]:
    for op in map(graph.ops.__getitem__, ops):
        yield op
        yield from graph.inside(op)
