"""The most that a run needs where nothing is freed, whatever batches the runs before it had."""

from __future__ import annotations

import heapq
from itertools import accumulate
from typing import Dict, List

from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import bytes_besides, bytes_with_workspaces
from transpiler.ir import Graph


def retained_peak(graph: Graph, timeline: Timeline) -> int:
    """Bytes above resting of the peak if ops run in the order of `graph`, of which `timeline` is.

    If the batch is larger than that of the run before, a result's old memory is there until the new one is allocated; where names hold
    one buffer in turn, until each of them has been given that.
    """
    position = timeline.lifetimes.positions.seen_from
    outgrown = list(map(sum, zip(_outgrown(graph, timeline), _regrown(graph, timeline))))
    needed = zip(timeline.order, bytes_with_workspaces(graph, timeline))
    most = max((live + outgrown[position(graph.ops[op], 0)[0]] for op, live in needed), default=0)
    return most + _left_inside(timeline)


def retained_peak_in_any_order(graph: Graph, timeline: Timeline) -> int:
    """The same if the runtime starts ops of the main region as it finds them ready, several at a time: loops and branches, too."""
    points = timeline.points
    flat = max(
        (p.bytes for p in points if graph.ops[p.op].region == 0 and not graph.ops[p.op].regions),
        default=timeline.peak_bytes)
    regrown = _regrown(graph, timeline)
    own, rises = list(regrown), list(regrown)
    for point, besides in zip(points, bytes_besides(graph, timeline)):
        at = timeline.lifetimes.positions.seen_from(graph.ops[point.op], 0)[0]
        besides += regrown[at]
        own[at] = max(own[at], besides)
        rises[at] = max(rises[at], besides + max(0, point.bytes - flat))
    most = max(timeline.peak_bytes + _at_once(timeline, own), flat + _at_once(timeline, rises))
    chains = map(timeline.evaluate, (each.size for each in _in_turn(timeline)))
    return most + sum(chains) + _left_inside(timeline)


def _at_once(timeline: Timeline, needed: List[int]) -> int:
    """Of the ops that need most for themselves, as many as run side by side."""
    return sum(heapq.nlargest(timeline.lifetimes.runtime.threads, needed))


def _left_inside(timeline: Timeline) -> int:
    """What loops and branches leave when they are through, each as much as if it were not of those that the peak is in."""
    if not timeline.lifetimes.runtime.keeps_inner:
        return 0
    inner = (lifetimes for region, lifetimes in timeline.lifetimes.by_region.items() if region)
    return sum(
        timeline.evaluate(each.size)
        for lifetimes in inner
        for each in lifetimes.values()
        if not each.kept)


def _in_turn(timeline: Timeline) -> List[Lifetime]:
    """Buffers of the main region that several names hold in turn, as large as the batch has it."""
    return [
        each for each in timeline.lifetimes.by_region[0].values()
        if len(each.storages) > 1 and not each.size.is_constant
    ]


def _regrown(graph: Graph, timeline: Timeline) -> List[int]:
    """By position of the main region: the most bytes that a batch which is smaller by a row has left of a result. What its kernel
    makes in other memory anyway is counted with workspaces."""
    made, elsewhere = _first_made(graph), timeline.lifetimes.left_elsewhere
    found = [0] * len(graph.regions[0].ops)
    for storage, size in timeline.lifetimes.left_alone.items():
        if storage in made and not size.is_constant and storage not in elsewhere:
            found[made[storage]] = max(found[made[storage]], timeline.evaluate(size))
    return found


def _first_made(graph: Graph) -> Dict[int, int]:
    """By storage: the position of the main region where it is first written to."""
    made: Dict[int, int] = {}
    for at, op in reversed(list(enumerate(graph.region_ops(0)))):
        made.update((graph.values[v].storage, at) for v in op.writes())
    return made


def _outgrown(graph: Graph, timeline: Timeline) -> List[int]:
    """By position of the main region: the most bytes of the buffers that a smaller batch has left, and that some name still holds."""
    lifetimes = timeline.lifetimes
    given = {target: lifetimes.position[op] for op, _, target in lifetimes.shared}
    made = _first_made(graph)
    changed = [0] * (len(graph.regions[0].ops) + 1)
    for each in _in_turn(timeline):
        size = timeline.evaluate(each.size)
        changed[made.get(each.storages[0], 0)] += size
        changed[given[each.storages[-1]]] -= size
    return list(accumulate(changed))
