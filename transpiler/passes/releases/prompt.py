"""Against a collector that frees late: buffers that are handed on, and releases that the program makes itself.

Needs: an order that is held. Keeps: that order. Changes: adds SHARE and RELEASE ops.

Paddle's collector runs in a thread of its own and loses the race against the next ops often: what these need then comes on
top of what the ones before left behind. In a loop's body the ops are short, and it may be whole trips behind: there
nothing is left to it that is large enough to matter.
"""

from __future__ import annotations

import math
from typing import Dict, FrozenSet, List, Mapping, Tuple

from transpiler.analysis.interference import MOVED, OUTGROWN, PASSED_BY_NAME, Interference
from transpiler.analysis.lifetimes import Lifetime, Lifetimes
from transpiler.analysis.positions import Span, spans
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, Region
from transpiler.passes.context import SMALL_SHARE, PassContext
from transpiler.passes.releases.in_time import release_in_time
from transpiler.passes.releases.release_ops import (handing_on, in_place_by_op, last_uses,
                                                    unreleasable, write_releases)


def hand_on_or_release(graph: Graph, context: PassContext) -> Graph:
    """Lets ops of loops and branches work in place, under two names, wherever Paddle does so in the main block; what is
    left, and would raise the peak if it were freed late, is released at once."""
    # Before there are SHARE ops: what those name looks like the business of others.
    rules = context.interference(graph)
    _share_in_inner_regions(graph, context, rules)
    timeline = Timeline(graph, context.runtime, context.dims)
    found = _spans_by_region(graph)
    bound, left = rules.unreleased(), unreleasable(graph, timeline.lifetimes)
    loops, live = graph.in_loops(), dict(timeline.points)
    for region in graph.regions[1:]:
        dying = _dying(graph, region, timeline, found.get(region.id, {}), bound, left)
        _release_in_inner_region(graph, region, dying, timeline, {} if region.id in loops else live)
    # Anew, as the inner regions have more ops now.
    release_in_time(graph, Timeline(graph, context.runtime, context.dims))
    return graph


def _share_in_inner_regions(graph: Graph, context: PassContext, rules: Interference) -> None:
    timeline = context.collecting(graph)
    least = timeline.peak_bytes * SMALL_SHARE
    may = handing_on(graph, context.runtime)
    everywhere = Lifetimes(graph, context.runtime, frozenset(r.id for r in graph.regions))
    shared = {
        op: [(source, target) for source, target in pairs if _may_hand_on(source, target, rules) and
             may(graph.ops[op], graph.values[source].storage) and
             _bytes(graph, target, timeline) >= least
            ] for op, pairs in in_place_by_op(graph, everywhere, inner=True).items()
    }
    for region in graph.regions[1:]:
        write_releases(graph, region, {}, shared)


def _spans_by_region(graph: Graph) -> Dict[int, Dict[int, Span]]:
    found: Dict[int, Dict[int, Span]] = {}
    for value, span in spans(graph).items():
        found.setdefault(graph.values[value].region, {})[value] = span
    return found


def _dying(graph: Graph, region: Region, timeline: Timeline, found: Dict[int, Span],
           alone: Dict[int, str], left: FrozenSet[int]) -> Dict[int, List[int]]:
    """What the collector would free after each op of the inner `region`, by position, but for what is `left` to it."""
    ending = {
        l.storages[-1]: l
        for l in timeline.lifetimes.by_region[region.id].values()
        if not l.kept and left.isdisjoint(l.storages)
    }
    return {
        at: [holder for v in values for holder in _holders(graph, v, at, ending)]
        for at, values in last_uses(graph, region.id, found, alone).items()
    }


def _holders(graph: Graph, value: int, at: int, ending: Dict[int, Lifetime]) -> Tuple[int, ...]:
    """What to release to free the memory of `value` after position `at`: all that held it in turn still do, until the
    collector comes. Nothing if it lives on."""
    lifetime = ending.get(graph.values[value].storage)
    if lifetime is None or lifetime.last != at:
        return ()
    return (*lifetime.storages[:-1], value)


def _release_in_inner_region(graph: Graph, region: Region, dying: Dict[int, List[int]],
                             timeline: Timeline, live: Mapping[int, int]) -> None:
    """Small values wait for others, so that one op releases many; at the end of a trip, for those of the next trips. None waits while
    other regions run, as much would in each of those that are nested there; nor, but in loops, where each op takes its time in each
    trip, beside so much that the region would need more: where other branches are not taken, that may be the peak.

    There are no guards: they would look like values that the region writes, and the order is held without them.
    """
    least = timeline.peak_bytes * SMALL_SHARE
    most = max((live[op] for op in region.ops if op in live), default=math.inf)
    ends = [*sorted(dying), len(region.ops) - 1]
    dead: List[int] = []
    released: Dict[int, List[List[int]]] = {}
    for at, until in zip(ends, ends[1:]):
        dead += dying[at]
        waiting = sum(_bytes(graph, v, timeline) for v in dead)
        if at == ends[-2]:
            waiting *= 1 + timeline.trips_late(region)
        meanwhile = region.ops[at + 1:until + 1]
        others_run = any(graph.ops[op].regions for op in meanwhile)
        over = any(live.get(op, 0) + waiting > most for op in meanwhile)
        if waiting >= least or (waiting and (others_run or over)):
            released[at], dead = [dead], []
    write_releases(graph, region, released, {})


def _may_hand_on(source: int, target: int, rules: Interference) -> bool:
    """The source may be what a branch has moved out, the target what the region hands out by name: its buffer is nobody
    else's any more."""
    return (rules.alone.get(source, MOVED) in (MOVED, OUTGROWN) and rules.spans[target].defined and
            rules.alone.get(target, PASSED_BY_NAME) == PASSED_BY_NAME)


def _bytes(graph: Graph, value: int, timeline: Timeline) -> int:
    size = graph.values[value].size
    return timeline.evaluate(size) if size is not None else 0
