"""Releases in the main region that keep its peak if the runtime's collector never comes.

Needs: an order that is held. Keeps: that order. Changes: adds SHARE and RELEASE ops to the main region.

What is dead stays until the peak would be passed, and goes with all that has died by then: each op more costs time, and
Paddle's executor memory of its own, which grows with the square of the ops (about 43 bytes times it). Where each value that is
released takes ops of its own, and no budget is to be kept, only what a late collector may still hold goes by itself.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from itertools import accumulate
from operator import add
from typing import Deque, Dict, FrozenSet, List, Mapping, Optional, Sequence

from transpiler.analysis.cost import CostModel
from transpiler.analysis.elsewhere import other_ways, some_sizes, without
from transpiler.analysis.interference import interference_of
from transpiler.analysis.layouts import copied_bytes
from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.positions import Positions
from transpiler.analysis.timeline import Timeline, once_for
from transpiler.analysis.workspace import bytes_with_workspaces, held_to_the_end, uncollected_with_workspaces
from transpiler.ir import RELEASE, Graph, ValueKind
from transpiler.passes.context import PassContext
from transpiler.passes.releases.release_ops import in_place_by_op, last_uses, unreleasable, write_releases

# Of the peak. What is above is for kernels that take memory of their own that nobody knows of.
_FULL = 0.95
# A collector that is late has freed what died so long ago, by the model; and of the peak, what is not worth ops of its own.
_LATE_SECONDS = 10e-3
_NOT_WORTH = 4e-3


def release_surely(graph: Graph, context: PassContext) -> Graph:
    """Releases whatever would lift the main region above its peak if the collector never came."""
    release_in_time(graph, context.collecting(graph), waits=True)
    return graph


def release_recent(graph: Graph, context: PassContext) -> Graph:
    """The same; where each value takes ops of its own, of what is large, and died so lately that a late collector may still hold it."""
    timeline = context.collecting(graph)
    if context.runtime.ops_per_release:
        least = math.ceil(timeline.peak_bytes * _NOT_WORTH)
        release_in_time(graph, timeline, _late_since(graph, timeline, context.cost), least)
    else:
        release_in_time(graph, timeline)
    return graph


def without_collector(graph: Graph,
                      timeline: Timeline,
                      as_it_is: bool,
                      lags: bool,
                      any_order: bool = False) -> int:
    """The peak, workspaces counted, if the collector frees nothing of the main block in a run, and is late in the next ones.

    What it alone can free (what is fed or fetched, scalars, what may be looked for by name) piles up in a run, and is there
    in the next ones until it comes. `as_it_is`: so is all that the program has no RELEASE op for; if not, what
    `release_surely` could release is taken for released. `lags`: in loops and branches it is late, too, and with what they left
    when they were through. `any_order`: ops of the main block may start in any order, so each may find all that the others make,
    and before RELEASE ops that stand before it.
    """

    def peak() -> int:
        released = frozenset() if as_it_is else _sure_to_go(graph, timeline)
        points = _by_position(graph, timeline,
                              uncollected_with_workspaces(graph, timeline, released, lags))
        others = _of_others(graph, timeline) if any_order else [0] * len(points)
        inside = timeline.left_inside * _runs_late(graph, timeline) if lags else 0
        return (max(map(add, points, others), default=0) + inside +
                from_before(graph, timeline, released))

    return timeline.once(('without collector', as_it_is, lags, any_order), peak)


def _of_others(graph: Graph, timeline: Timeline) -> List[int]:
    """By position of the main region: bytes that are not there, if nothing but RELEASE ops frees, but could be in another order."""
    there = [0] * (len(graph.regions[0].ops) + 1)  # what is more than at the position before
    for lifetime in timeline.lifetimes.by_region[0].values():
        there[lifetime.first] += timeline.evaluate(lifetime.size)
        if ends_with_release(graph, lifetime):
            there[lifetime.last + 1] -= timeline.evaluate(lifetime.size)
    every = sum(timeline.evaluate(l.size) for l in timeline.lifetimes.by_region[0].values())
    return [every - live for live in accumulate(there[:-1])]


def from_before(graph: Graph, timeline: Timeline, released: FrozenSet[int] = frozenset()) -> int:
    """Bytes that may be left from runs before, but for what is left in any case: all that is not in `released` storages, nor in what a
    RELEASE op ends, and copies in other layouts."""
    lasting = timeline.lifetimes.lasting
    left = copied_bytes(graph, timeline) + sum(
        timeline.evaluate(l.size)
        for l in timeline.lifetimes.by_region[0].values()
        if lasting.isdisjoint(l.storages) and not released.issuperset(l.storages) and
        not ends_with_release(graph, l))
    late = _runs_late(graph, timeline)
    # Of the run before they are in what a plan counts as converted.
    names = held_to_the_end(graph, timeline, released) * (late - 1)
    return left * late + names + _late_rows(graph, timeline)


def _sure_to_go(graph: Graph, timeline: Timeline) -> FrozenSet[int]:
    """Storages that `release_surely` can release, and gradients of chosen rows if steps are not too short for the collector."""
    found = frozenset(mortal(graph, timeline))
    if _runs_late(graph, timeline) > 1:
        return found
    return found | {v.storage for v in graph.values if v.kind is ValueKind.SELECTED_ROWS}


def ends_with_release(graph: Graph, lifetime: Lifetime) -> bool:
    last = graph.ops[graph.regions[0].ops[lifetime.last]]
    return last.kind == RELEASE and lifetime.storages[-1] in {
        graph.values[v].storage for v in last.writes()
    }


def _runs_late(graph: Graph, timeline: Timeline) -> int:
    """How many runs the collector may be behind: many of them fit into the time that it takes to wake up, if they are short."""
    seconds = timeline.once('seconds', lambda: CostModel().region_seconds(graph, 0, timeline.dims))
    late = timeline.lifetimes.runtime.delays
    return max(1, min(late.runs, math.ceil(late.seconds / max(seconds, 1e-9))))


def _late_rows(graph: Graph, timeline: Timeline) -> int:
    """The most bytes of gradients of chosen rows, which no op releases, among what the collector may be late with."""
    dead: Dict[int, int] = {}
    for lifetime in timeline.lifetimes.by_region[0].values():
        if graph.values[lifetime.storages[-1]].kind is ValueKind.SELECTED_ROWS:
            dead[lifetime.last] = dead.get(lifetime.last, 0) + timeline.evaluate(lifetime.size)
    late = range(timeline.ops_late(graph.regions[0]))
    return max((sum(dead.get(at - k, 0) for k in late) for at in dead), default=0)


def _late_since(graph: Graph, timeline: Timeline, cost: CostModel) -> List[int]:
    """By position of the main region, and at its end: from which one on what dies may still be there, if the collector is late."""
    seconds = (cost.whole_seconds(graph, op, timeline.dims) for op in graph.region_ops(0))
    starts = [0.0, *accumulate(seconds)]
    return [bisect.bisect_left(starts, start - _LATE_SECONDS) for start in starts]


def release_in_time(graph: Graph,
                    timeline: Timeline,
                    since: Optional[Sequence[int]] = None,
                    least: int = 1,
                    waits: bool = False) -> None:
    """Releases what the collector would free before the ops at which all that is dead would fill the memory up to the peak of
    `timeline`, which is of `graph` under a runtime that collects.

    Each name that holds an allocation in turn is released, or the buffer would stay with the others. Paddle's executor
    hands a buffer over in place only between names that nothing touches later, as a release does: the SHARE op that it
    would have inserted is written out.

    Args:
        since: by position of the main region, and at its end: what died before that position is gone. None: all is there.
        least: the bytes of what is released at the least.
        waits: also what may be let go of only when its shape has been read, by when a collector that is in time has freed it.
    """
    names = mortal(graph, timeline)
    chosen = _in_time(graph, timeline, frozenset(names), since, least, waits)
    write_chosen(graph, timeline, chosen, names)


def write_chosen(graph: Graph, timeline: Timeline, released: Mapping[int, Sequence[Lifetime]],
                 names: Mapping[int, int]) -> None:
    """Releases these lifetimes before those positions of the main region; `names` are values by storage."""
    chosen = {names[s] for lifetimes in released.values() for l in lifetimes for s in l.storages}
    shared = {
        op: [pair for pair in pairs if pair[0] in chosen]
        for op, pairs in in_place_by_op(graph, timeline.lifetimes).items()
    }
    most = timeline.lifetimes.runtime.names_per_op
    groups = {
        at - 1: _in_groups([names[s] for l in lifetimes for s in l.storages], most)
        for at, lifetimes in released.items()
    }
    write_releases(graph, graph.regions[0], groups, shared, guarded=True)


def mortal(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """Values of the main region that may be released, by storage."""

    def find() -> Dict[int, int]:
        rules = interference_of(timeline)
        dying = last_uses(graph, 0, rules.spans, rules.unreleased())
        names = {graph.values[v].storage: v for values in dying.values() for v in values}
        left = unreleasable(graph, timeline.lifetimes)
        return {storage: value for storage, value in names.items() if storage not in left}

    return timeline.once_for_all_sizes('mortal', find)


def _in_groups(values: List[int], most: int) -> List[List[int]]:
    """`values`, `most` at a time: so many an op names."""
    return [values[start:start + most] for start in range(0, len(values), most)]


def _in_time(graph: Graph, timeline: Timeline, mortal: FrozenSet[int],
             since: Optional[Sequence[int]], least: int, waits: bool) -> Dict[int, List[Lifetime]]:
    """What to release before which position of the main region, or behind the last, as late as that can be at the sizes of
    `timeline`, and at some others."""
    sizes = [timeline, *(timeline.at(dims) for dims in some_sizes(timeline.dims))]
    rooms = [_rooms(graph, *each, mortal, waits) for each in zip(sizes, _least_peaks(graph, sizes))]
    ending: Dict[int, List[Lifetime]] = {}
    for lifetime in timeline.lifetimes.by_region[0].values():
        if timeline.evaluate(lifetime.size) >= least and mortal.issuperset(lifetime.storages):
            at = timeline.lifetimes.release_position(lifetime)
            if waits or at == lifetime.last:
                ending.setdefault(at + 1, []).append(lifetime)
    released: Dict[int, List[Lifetime]] = {}
    dead: Deque[Lifetime] = deque()
    dead_bytes = [0] * len(sizes)

    def count(lifetimes: Sequence[Lifetime], sign: int) -> None:
        for i, each in enumerate(sizes if lifetimes else ()):
            dead_bytes[i] += sign * sum(each.evaluate(lifetime.size) for lifetime in lifetimes)

    for at in range(len(graph.regions[0].ops) + 1):
        while since is not None and dead and dead[0].last + 1 < since[at]:
            count([dead.popleft()], -1)
        new = ending.get(at, [])
        dead += new
        count(new, 1)
        if dead and any(bytes_ > room[at] for bytes_, room in zip(dead_bytes, rooms)):
            released[at] = list(dead)
            count(released[at], -1)
            dead.clear()
    return released


def _rooms(graph: Graph, timeline: Timeline, least: int, mortal: FrozenSet[int],
           waits: bool) -> List[float]:
    """How much may be dead at each position of the main region, and at its end, if some run needs but `least` bytes; nothing
    where sizes are not known. `waits`: what may not be let go of yet no collector has freed."""
    needed = _by_position(graph, timeline, bytes_with_workspaces(graph, timeline))
    if waits:
        needed = list(map(add, needed, _waiting(graph, timeline)))
    if timeline.lifetimes.unsized:
        return [0.0] * (len(needed) + 1)
    never = _by_position(graph, timeline, uncollected_with_workspaces(graph, timeline, mortal))
    return list(map(min, _room(needed, least), _room(never, max(never, default=0))))


def _waiting(graph: Graph, timeline: Timeline) -> List[int]:
    """By position of the main region: bytes that nobody needs any more, and which may not be let go of yet."""
    more = [0] * (len(graph.regions[0].ops) + 1)
    for lifetime in timeline.lifetimes.by_region[0].values():
        until = timeline.lifetimes.release_position(lifetime)
        if until > lifetime.last:
            more[lifetime.last + 1] += timeline.evaluate(lifetime.size)
            more[until + 1] -= timeline.evaluate(lifetime.size)
    return list(accumulate(more[:-1]))


def _room(needed: List[int], least: int) -> List[float]:
    """How much may be dead at each position of the main region, and at its end, where `needed` bytes live, and `least` at the
    peak of any run: what is left at the end may still be there when the next run comes to its peak."""
    most = max(needed, default=0)
    return [min(most, least) * _FULL - live for live in (*needed, most)]


def _least_peaks(graph: Graph, sizes: Sequence[Timeline]) -> List[int]:
    """At each of `sizes`, the peak of the run that needs least: what the data decides is empty, kernels need nothing for
    themselves, and no branch is taken. What is dead may not fill the memory up to what only other runs need."""
    here = sizes[0]

    def find() -> List[Timeline]:
        ways = other_ways(graph)
        changed = [without(graph, max(ways, key=len))] if ways else []
        if graph.has_bounds:
            changed.append(graph.without_bounds())
        return [Timeline(each, here.lifetimes.runtime, here.dims) for each in changed]

    others = here.once_for_all_sizes('runs that need least', find)
    return [
        min([size.peak_bytes, *(other.at(size.dims).peak_bytes
                                for other in others)])
        for size in sizes
    ]


def _by_position(graph: Graph, timeline: Timeline, needed: List[int]) -> List[int]:
    """Of what is `needed` at each point of `timeline`, the most at each position of the main region, in the regions that its op
    runs too."""
    if len(graph.regions) == 1:
        return needed
    found = [0] * len(graph.regions[0].ops)
    for at, bytes_ in zip(once_for(graph, timeline, 'in main', lambda: _in_main(graph)), needed):
        if bytes_ > found[at]:
            found[at] = bytes_
    return found


def _in_main(graph: Graph) -> List[int]:
    """By op, in program order: the position in the main region at which it runs."""
    positions = Positions(graph)
    return [positions.seen_from(op, 0)[0] for op in graph.walk()]
