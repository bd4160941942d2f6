"""Releases in the main region that keep its peak if the runtime's collector never comes.

Needs: an order that is held. Keeps: that order. Changes: adds SHARE and RELEASE ops to the main region.

What is dead stays until the peak would be passed, and goes with all that has died by then: each op more costs time, and
Paddle's executor memory of its own, which grows with the square of the ops (about 43 bytes times it).
"""

from __future__ import annotations

from dataclasses import replace
from typing import AbstractSet, Dict, List, Optional

from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.positions import Positions, spans
from transpiler.analysis.runtime import RuntimeModel
from transpiler.analysis.timeline import Timeline, ops_late
from transpiler.analysis.workspace import peak_with_workspaces, points_with_workspaces
from transpiler.ir import RELEASE, SHARE, Graph, Op, RegionKind, ValueKind
from transpiler.passes.context import PassContext
from transpiler.passes.eligibility import LEAST_BYTES, never_released, never_shared, states
from transpiler.passes.release import add_op, guards, in_place_by_op, last_uses

# Of the peak. What is above is for kernels that take memory of their own that nobody knows of.
_FULL = 0.95
# An op with n names takes Paddle's executor time to build that grows with the square of n, and the cube together.
_NAMES = 16
# Scalars are left to the collector; they are counted up to this share of the peak.
_SCALARS = 1 / 64


def release_surely(graph: Graph, context: PassContext) -> Graph:
    """Releases whatever would lift the main region above its peak if the collector never came."""
    release_in_time(graph, context.collecting(graph))
    return graph


def left_to_collector(graph: Graph, timeline: Timeline) -> int:
    """Bytes of all that `release_surely` cannot release: more than that a late collector cannot add to the peak."""
    if timeline.lifetimes.model is not RuntimeModel.COLLECTING:
        return 0
    found = [(timeline.evaluate(l.size), l) for l in timeline.lifetimes.by_region[0].values()]
    scalars = sum(size for size, _ in found if size < LEAST_BYTES)
    bound = states(graph)
    return (min(scalars, int(timeline.peak_bytes * _SCALARS)) + _late_rows(graph, timeline) +
            sum(size for size, lifetime in found if not bound.isdisjoint(lifetime.storages)))


def _late_rows(graph: Graph, timeline: Timeline) -> int:
    """The most bytes of gradients of chosen rows, which no op releases, among what the collector may be late with."""
    dead: Dict[int, int] = {}
    for lifetime in timeline.lifetimes.by_region[0].values():
        if graph.values[lifetime.storages[-1]].kind is ValueKind.SELECTED_ROWS:
            dead[lifetime.last] = dead.get(lifetime.last, 0) + timeline.evaluate(lifetime.size)
    late = range(ops_late(graph.regions[0]))
    return max((sum(dead.get(at - k, 0) for k in late) for at in dead), default=0)


def release_in_time(graph: Graph, timeline: Timeline) -> None:
    """Releases what the collector would free before the ops at which all that is dead would fill the memory up to the peak of
    `timeline`, which is of `graph` under a runtime that collects.

    Each name that holds an allocation in turn is released, or the buffer would stay with the others. Paddle's executor
    hands a buffer over in place only between names that nothing touches later, as a release does: the SHARE op that it
    would have inserted is written out.
    """
    found = spans(graph)
    dying = last_uses(graph, 0, found, never_released(never_shared(graph, found)))
    names = {graph.values[v].storage: v for values in dying.values() for v in values}
    released = _in_time(graph, timeline, names.keys())
    chosen = {names[s] for lifetimes in released.values() for l in lifetimes for s in l.storages}
    shared = in_place_by_op(graph, timeline.lifetimes)
    region = graph.regions[0]
    old_ops, region.ops = region.ops, []
    for at, op in enumerate(old_ops):
        if at in released:
            _add_releases(graph, graph.ops[op],
                          [names[s] for l in released[at] for s in l.storages])
        pairs = [p for p in shared.get(op, ()) if p[0] in chosen and p[0] in dying.get(at, ())]
        if pairs:
            operands, results = zip(*pairs)
            add_op(graph, 0, SHARE, operands, results)
        region.ops.append(op)
    if len(old_ops) in released:
        _add_releases(graph, None, [names[s] for l in released[len(old_ops)] for s in l.storages])


def _add_releases(graph: Graph, following: Optional[Op], values: List[int]) -> None:
    for start in range(0, len(values), _NAMES):
        part = tuple(values[start:start + _NAMES])
        add_op(graph, 0, RELEASE, guards(graph, following, part), part)


def _in_time(graph: Graph, timeline: Timeline,
             mortal: AbstractSet[int]) -> Dict[int, List[Lifetime]]:
    """What to release before which position of the main region, or behind the last, as late as that can be."""
    needed = _bytes_by_position(graph, timeline)
    limit = min(max(needed, default=0), _least_peak(graph, timeline)) * _FULL
    ending: Dict[int, List[Lifetime]] = {}
    for lifetime in timeline.lifetimes.by_region[0].values():
        if timeline.evaluate(lifetime.size) and mortal >= set(lifetime.storages):
            ending.setdefault(lifetime.last + 1, []).append(lifetime)
    released: Dict[int, List[Lifetime]] = {}
    dead: List[Lifetime] = []
    dead_bytes = 0
    # What is left at the end may still be there when the next run comes to its peak.
    for at, live_bytes in enumerate([*needed, max(needed, default=0)]):
        new = ending.get(at, [])
        dead += new
        dead_bytes += sum(timeline.evaluate(lifetime.size) for lifetime in new)
        if dead and live_bytes + dead_bytes > limit:
            released[at], dead, dead_bytes = dead, [], 0
    return released


def _least_peak(graph: Graph, timeline: Timeline) -> int:
    """The peak of a run that goes through the branches without doing anything in them: what is dead may not fill the memory
    up to the peak of a branch that is not taken."""
    branches = (RegionKind.BRANCH, RegionKind.BRANCH_GRADIENT)
    if not any(region.kind in branches for region in graph.regions):
        return peak_with_workspaces(graph, timeline)
    regions = [replace(r, ops=[]) if r.kind in branches else r for r in graph.regions]
    empty = Graph(graph.values, graph.ops, regions)
    return peak_with_workspaces(empty, Timeline(empty, timeline.lifetimes.model, timeline.dims))


def _bytes_by_position(graph: Graph, timeline: Timeline) -> List[int]:
    """The most that exists at each position of the main region, in the regions that its op runs too, workspaces counted."""
    positions = Positions(graph)
    found = [0] * len(graph.regions[0].ops)
    for point in points_with_workspaces(graph, timeline):
        at = positions.seen_from(graph.ops[point.op], 0)[0]
        found[at] = max(found[at], point.bytes)
    return found
