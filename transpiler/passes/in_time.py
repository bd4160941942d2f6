"""Releases in the main region that keep its peak if the runtime's collector never comes.

Needs: an order that is held. Keeps: that order. Changes: adds SHARE and RELEASE ops to the main region.

What is dead stays until the peak would be passed, and goes with all that has died by then: each op more costs time, and
Paddle's executor memory of its own, which grows with the square of the ops (about 43 bytes times it).
"""

from __future__ import annotations

import math
from typing import Dict, FrozenSet, Iterable, List, Optional

from transpiler.analysis.cost import CostModel
from transpiler.analysis.elsewhere import other_ways, smaller_sizes, without
from transpiler.analysis.interference import Interference
from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.positions import Positions
from transpiler.analysis.timeline import Point, Timeline
from transpiler.analysis.workspace import points_with_workspaces, uncollected_with_workspaces
from transpiler.ir import RELEASE, SHARE, Graph, Op, ValueKind
from transpiler.passes.context import PassContext
from transpiler.passes.release import add_op, guards, in_place_by_op, last_uses

# Of the peak. What is above is for kernels that take memory of their own that nobody knows of.
_FULL = 0.95


def release_surely(graph: Graph, context: PassContext) -> Graph:
    """Releases whatever would lift the main region above its peak if the collector never came."""
    release_in_time(graph, context.collecting(graph))
    return graph


def without_collector(graph: Graph, timeline: Timeline, as_it_is: bool, lags: bool) -> int:
    """The peak, workspaces counted, if the collector frees nothing of the main block in a run, and is late in the next ones.

    What it alone can free (what is fed or fetched, scalars, what may be looked for by name) piles up in a run, and is there
    in the next ones until it comes. `as_it_is`: so is all that the program has no RELEASE op for; if not, what
    `release_surely` could release is taken for released. `lags`: in loops and branches it is late, too.
    """
    released = frozenset() if as_it_is else _sure_to_go(graph, timeline)
    points = uncollected_with_workspaces(graph, timeline, released, lags)
    most = max((point.bytes for point in points), default=0)
    return most + from_before(graph, timeline, released)


def from_before(graph: Graph, timeline: Timeline, released: FrozenSet[int] = frozenset()) -> int:
    """Bytes that may be left from runs before: all that is not in `released` storages, nor in what a RELEASE op ends."""
    left = sum(
        timeline.evaluate(l.size)
        for l in timeline.lifetimes.by_region[0].values()
        if not released.issuperset(l.storages) and not _ends_with_release(graph, l))
    return left * _runs_late(graph, timeline) + _late_rows(graph, timeline)


def _sure_to_go(graph: Graph, timeline: Timeline) -> FrozenSet[int]:
    """Storages that `release_surely` can release, and gradients of chosen rows if steps are not too short for the collector."""
    found = frozenset(_mortal(graph, _dying(graph)))
    if _runs_late(graph, timeline) > 1:
        return found
    return found | {v.storage for v in graph.values if v.kind is ValueKind.SELECTED_ROWS}


def _ends_with_release(graph: Graph, lifetime: Lifetime) -> bool:
    last = graph.ops[graph.regions[0].ops[lifetime.last]]
    return last.kind == RELEASE and lifetime.storages[-1] in {
        graph.values[v].storage for v in last.writes()
    }


def _runs_late(graph: Graph, timeline: Timeline) -> int:
    """How many runs the collector may be behind: many of them fit into the time that it takes to wake up, if they are short."""
    seconds = CostModel().region_seconds(graph, 0, timeline.dims)
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


def release_in_time(graph: Graph, timeline: Timeline) -> None:
    """Releases what the collector would free before the ops at which all that is dead would fill the memory up to the peak of
    `timeline`, which is of `graph` under a runtime that collects.

    Each name that holds an allocation in turn is released, or the buffer would stay with the others. Paddle's executor
    hands a buffer over in place only between names that nothing touches later, as a release does: the SHARE op that it
    would have inserted is written out.
    """
    dying = _dying(graph)
    names = _mortal(graph, dying)
    released = _in_time(graph, timeline, frozenset(names))
    chosen = {names[s] for lifetimes in released.values() for l in lifetimes for s in l.storages}
    shared = in_place_by_op(graph, timeline.lifetimes)
    region, most = graph.regions[0], timeline.lifetimes.runtime.names_per_op
    old_ops, region.ops = region.ops, []
    for at, op in enumerate(old_ops):
        if at in released:
            _add_releases(graph, graph.ops[op],
                          [names[s] for l in released[at] for s in l.storages], most)
        pairs = [p for p in shared.get(op, ()) if p[0] in chosen and p[0] in dying.get(at, ())]
        if pairs:
            operands, results = zip(*pairs)
            add_op(graph, 0, SHARE, operands, results)
        region.ops.append(op)
    if len(old_ops) in released:
        _add_releases(graph, None, [names[s] for l in released[len(old_ops)] for s in l.storages],
                      most)


def _dying(graph: Graph) -> Dict[int, List[int]]:
    """Values of the main region that may be released, by the position of their last use."""
    rules = Interference(graph)
    return last_uses(graph, 0, rules.spans, rules.unreleased())


def _mortal(graph: Graph, dying: Dict[int, List[int]]) -> Dict[int, int]:
    """The same by storage: the value to release."""
    return {graph.values[v].storage: v for values in dying.values() for v in values}


def _add_releases(graph: Graph, following: Optional[Op], values: List[int], most: int) -> None:
    """In ops that name `most` each."""
    for start in range(0, len(values), most):
        part = tuple(values[start:start + most])
        add_op(graph, 0, RELEASE, guards(graph, following, part), part)


def _in_time(graph: Graph, timeline: Timeline, mortal: FrozenSet[int]) -> Dict[int, List[Lifetime]]:
    """What to release before which position of the main region, or behind the last, as late as that can be at the sizes of
    `timeline`, and at smaller ones."""
    sizes = [timeline, *(timeline.at(dims) for dims in smaller_sizes(timeline.dims))]
    rooms = [_rooms(graph, each, mortal) for each in sizes]
    ending: Dict[int, List[Lifetime]] = {}
    for lifetime in timeline.lifetimes.by_region[0].values():
        if timeline.evaluate(lifetime.size) and mortal.issuperset(lifetime.storages):
            ending.setdefault(lifetime.last + 1, []).append(lifetime)
    released: Dict[int, List[Lifetime]] = {}
    dead: List[Lifetime] = []
    dead_bytes = [0] * len(sizes)
    for at in range(len(graph.regions[0].ops) + 1):
        new = ending.get(at, [])
        dead += new
        for i, each in enumerate(sizes if new else ()):
            dead_bytes[i] += sum(each.evaluate(lifetime.size) for lifetime in new)
        if dead and any(bytes_ > room[at] for bytes_, room in zip(dead_bytes, rooms)):
            released[at], dead, dead_bytes = dead, [], [0] * len(sizes)
    return released


def _rooms(graph: Graph, timeline: Timeline, mortal: FrozenSet[int]) -> List[float]:
    """How much may be dead at each position of the main region, and at its end; nothing where sizes are not known."""
    needed = _bytes_by_position(graph, points_with_workspaces(graph, timeline))
    if timeline.lifetimes.unsized:
        return [0.0] * (len(needed) + 1)
    never = _bytes_by_position(graph, uncollected_with_workspaces(graph, timeline, mortal))
    return list(
        map(min, _room(needed, _least_peak(graph, timeline)), _room(never, max(never, default=0))))


def _room(needed: List[int], least: int) -> List[float]:
    """How much may be dead at each position of the main region, and at its end, where `needed` bytes live, and `least` at the
    peak of any run: what is left at the end may still be there when the next run comes to its peak."""
    most = max(needed, default=0)
    return [min(most, least) * _FULL - live for live in (*needed, most)]


def _least_peak(graph: Graph, timeline: Timeline) -> int:
    """The peak of the run that needs least: what the data decides is empty, kernels need nothing for themselves, and branches
    are not taken. What is dead may not fill the memory up to what only other runs need."""
    changed = [without(graph, way) for way in other_ways(graph)]
    if graph.has_bounds:
        changed.append(graph.without_bounds())
    others = (Timeline(g, timeline.lifetimes.runtime, timeline.dims) for g in changed)
    return min([timeline.peak_bytes, *(other.peak_bytes for other in others)])


def _bytes_by_position(graph: Graph, points: Iterable[Point]) -> List[int]:
    """The most that exists at each position of the main region, in the regions that its op runs too."""
    positions = Positions(graph)
    found = [0] * len(graph.regions[0].ops)
    for point in points:
        at = positions.seen_from(graph.ops[point.op], 0)[0]
        found[at] = max(found[at], point.bytes)
    return found
