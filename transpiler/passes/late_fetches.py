"""Fetches put off: what the caller fetches is copied for him when nobody reads it any more.

Paddle's executor copies it as soon as the last op that writes it has run (in all runs but the first, whose order it keeps), so that
from there to its last use there are two of it. An UNCOPIED op behind all others seems to write it: the copy waits for that.

Needs: all other passes before it. Keeps: the order of ops. Changes: adds UNCOPIED ops to the main region.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence, Set

from transpiler.analysis.interference import LEAST_BYTES
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import bytes_with_workspaces
from transpiler.ir import UNCOPIED, Graph, OpFacts
from transpiler.passes.context import PassContext


class _Copied(NamedTuple):
    """A fetched value, its bytes, and the positions of the main region at which it and its copy are there."""

    value: int
    bytes: int
    positions: range


def put_off_fetches(graph: Graph, context: PassContext) -> Graph:
    """Adds an UNCOPIED op for each fetched value whose copy, made at once, would raise the peak."""
    if not context.runtime.collects:
        return graph  # it needs as much with the copies at the end
    timeline = context.timeline(graph)
    copied = _copied(graph, timeline)
    if copied:
        late = _above_the_peak(copied, timeline, timeline.live)
        late |= _above_the_peak(copied, timeline, bytes_with_workspaces(graph, timeline))
        for value in sorted(late):
            graph.new_op(UNCOPIED,
                         0,
                         operands=(value,),
                         results=(value,),
                         facts=OpFacts(),
                         origin=None)
    return graph


def _copied(graph: Graph, timeline: Timeline) -> List[_Copied]:
    """Those that are read behind the op that writes them last. What is small is worth no op."""
    fetched = {
        v.id: timeline.evaluate(v.bound)
        for v in graph.values
        if v.copied_out and not v.persistable and v.bound is not None
    }
    fetched = {v: size for v, size in fetched.items() if size >= LEAST_BYTES}
    position = timeline.lifetimes.positions.seen_from
    written: Dict[int, int] = {}
    used: Dict[int, int] = {}
    for op in graph.walk() if fetched else ():
        at, _ = position(op, 0)
        used.update((v, max(at, used.get(v, at))) for v in op.reads() if v in fetched)
        written.update((v, max(at, written.get(v, at))) for v in op.writes() if v in fetched)
    return [
        _Copied(v, fetched[v], range(at + 1, used[v] + 1))
        for v, at in written.items()
        if used.get(v, at) > at
    ]


def _above_the_peak(copied: List[_Copied], timeline: Timeline, live: Sequence[int]) -> Set[int]:
    """The values whose copies are there when there would be more than the most of the `live` bytes, by point of `timeline`."""
    graph, position = timeline.graph, timeline.lifetimes.positions.seen_from
    copies = [0] * len(graph.regions[0].ops)
    for each in copied:
        for at in each.positions:
            copies[at] += each.bytes
    places = [position(graph.ops[op], 0)[0] for op in timeline.order]
    above = {at for at, there in zip(places, live) if there + copies[at] > max(live)}
    return {each.value for each in copied if not above.isdisjoint(each.positions)}
