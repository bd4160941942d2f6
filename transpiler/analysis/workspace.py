"""What kernels allocate for themselves while they run, on top of what lives."""

from __future__ import annotations

import itertools
from typing import Collection, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from transpiler.analysis.layouts import given_up, held_in_layouts, left_of_copies, relaid_size
from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.timeline import Timeline, once_for
from transpiler.ir import MEMORY_KINDS, NOTHING, RELEASE, Graph, Op, Region, RegionKind, Size, Value


def workspace_bytes(op: Op, dims: Mapping[str, int]) -> int:
    """Bytes that the kernel of `op` needs besides what it reads and writes; 0 where nobody knows."""
    return op.workspace.evaluate(dims) if op.workspace else 0


def bytes_with_workspaces(graph: Graph, timeline: Timeline) -> List[int]:
    """The bytes of the points of `timeline`, which is of `graph`, each op's workspace counted, and what is held in other layouts."""
    held = held_in_layouts(graph, timeline, lambda lifetime: True)
    found = _with_workspaces(graph, timeline, timeline.live, held)
    gone = given_up(graph, timeline)
    return [live - gone.get(op, 0) for op, live in zip(timeline.order, found)] if gone else found


def bytes_besides(graph: Graph, timeline: Timeline) -> List[int]:
    """Of `bytes_with_workspaces` those that each op takes for itself: its workspace, and memory that is too small."""
    return _with_workspaces(graph, timeline, [0] * len(timeline.order), ())


def uncollected_with_workspaces(graph: Graph,
                                timeline: Timeline,
                                released: FrozenSet[int],
                                lags: bool = False) -> List[int]:
    """The same of `timeline.uncollected(released, lags)`."""

    held = _held_by_names(graph, timeline, released)
    left = left_of_copies(graph, timeline)
    both = [a + b for a, b in itertools.zip_longest(held, left, fillvalue=0)]
    return _with_workspaces(graph, timeline, timeline.uncollected(released, lags), both)


def held_to_the_end(graph: Graph, timeline: Timeline, released: FrozenSet[int]) -> int:
    """Bytes that a run leaves to the collector under the names that kernels with layouts of their own need."""
    return max(_held_by_names(graph, timeline, released), default=0)


def _held_by_names(graph: Graph, timeline: Timeline, released: FrozenSet[int]) -> List[int]:
    """`held_in_layouts` where only RELEASE ops free, and whoever frees `released` storages."""

    def is_freed(lifetime: Lifetime) -> bool:
        last = graph.ops[graph.regions[0].ops[lifetime.last]]
        return last.kind == RELEASE or released.issuperset(lifetime.storages)

    return held_in_layouts(graph, timeline, is_freed)


def peak_with_workspaces(graph: Graph, timeline: Timeline) -> int:
    """The most of `bytes_with_workspaces`."""
    return timeline.once('peak with workspaces',
                         lambda: max(bytes_with_workspaces(graph, timeline), default=0))


def less_bounds(graph: Graph, timeline: Timeline, found: List[int]) -> List[int]:
    """`found`, which are `bytes_with_workspaces`, if the kernels of which only a bound is known take nothing for themselves."""
    bounded = once_for(
        graph, timeline, 'bounded workspaces',
        lambda: [at for at, op in enumerate(timeline.order) if graph.ops[op].bounded])
    less = list(found) if bounded else found
    for at in bounded:
        less[at] -= workspace_bytes(graph.ops[timeline.order[at]], timeline.dims)
    return less


def unknown_workspaces(graph: Graph) -> List[str]:
    """Kinds of ops of which nobody knows what their kernels allocate for themselves: no figure has it."""
    return sorted({op.kind for op in graph.walk() if op.workspace is None})


def _with_workspaces(graph: Graph, timeline: Timeline, live: Sequence[int],
                     besides: Sequence[int]) -> List[int]:
    """`live` bytes, by point of `timeline`, with what comes on top; `besides` are by position of the main region, if there are any."""
    found = list(live)
    for at, size in _workspaces(graph, timeline):
        found[at] += timeline.evaluate(size)
    outgrown = _outgrown(graph, timeline)
    if outgrown or besides:
        position = timeline.lifetimes.positions.seen_from
        for at, op in enumerate(map(graph.ops.__getitem__, timeline.order)):
            found[at] += outgrown.get(op.id, 0) + (besides[position(op, 0)[0]] if besides else 0)
    return found


def _workspaces(graph: Graph, timeline: Timeline) -> List[Tuple[int, Size]]:
    """Which points have a workspace, or copies in other layouts, and of what size."""

    def find() -> List[Tuple[int, Size]]:
        ops = enumerate(map(graph.ops.__getitem__, timeline.order))
        own = ((at, (op.workspace or NOTHING) +
                relaid_size(graph, op) if op.facts.relaid else op.workspace) for at, op in ops)
        return [(at, size) for at, size in own if size]

    return once_for(graph, timeline, 'workspaces', find)


def _outgrown(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """By op: bytes of the memory that names of its results have, and that is too small, or that its kernel does not take. The
    runtime lets go of it when it has allocated the other one."""
    shared = once_for(graph, timeline, 'shared storages', graph.storage_members)
    written = once_for(graph, timeline, 'shared, written', lambda: _written(graph, shared))
    found = _beside_results(timeline, written, dict.fromkeys(shared, 0))
    left = {s: timeline.evaluate(size) for s, size in timeline.lifetimes.left_elsewhere.items()}
    later = _beside_results(timeline, _written(graph, left), left) if left else {}
    grown = _beside_grown(graph, timeline)
    ops = {**found, **later, **grown}
    return {op: max(found.get(op, 0), later.get(op, 0), grown.get(op, 0)) for op in ops}


def _beside_grown(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """The same for what a loop makes larger with each trip, of what the trip before has left under the name: what is carried to the
    next trip, and all else where nothing is freed and all trips have one scope."""
    found: Dict[int, int] = {}
    if len(graph.regions) == 1 or not once_for(graph, timeline, 'has bounds',
                                               lambda: graph.has_bounds):
        return found
    emptied = {
        graph.values[v].storage for op in graph.walk() if op.kind == RELEASE for v in op.writes()
    }
    for op in graph.walk():
        loop = _loop_around(graph, op.region)
        if loop is None or op.kind in MEMORY_KINDS or op.regions:
            continue
        one_scope = timeline.lifetimes.holds(loop) and not loop.keeps_scopes
        for value in (graph.values[v] for v in op.writes()):
            carried = value.region < loop.id and value.storage not in emptied
            if value.size is None and value.at_most is not None and (carried or one_scope):
                found[op.id] = found.get(op.id, 0) + _before_last_trip(
                    timeline, loop, value.at_most)
    return found


def _loop_around(graph: Graph, region: int) -> Optional[Region]:
    """The innermost loop that `region` is of, itself included."""
    while region >= 0 and graph.regions[region].kind is not RegionKind.LOOP:
        region = graph.regions[region].parent
    return graph.regions[region] if region >= 0 else None


def _before_last_trip(timeline: Timeline, loop: Region, size: Size) -> int:
    """Bytes of `size`, which grows with the trips of `loop`, one trip before its last."""
    dims = {d: n - (d in loop.trips.dims) for d, n in timeline.dims.items()}
    return size.evaluate(dims)


def _written(graph: Graph, storages: Collection[int]) -> List[Tuple[Op, List[Value]]]:
    """The ops that write to any of `storages`, each with the values that it writes there."""
    if not storages:
        return []
    values = graph.values
    found = ((op, [values[v]
                   for v in op.writes()
                   if values[v].storage in storages])
             for op in graph.walk())
    return [(op, written) for op, written in found if written]


def _beside_results(timeline: Timeline, written: Sequence[Tuple[Op, List[Value]]],
                    held: Dict[int, int]) -> Dict[int, int]:
    """The same for storages of which names have `held` so many bytes before the first op, which is changed; see `_written`."""
    found: Dict[int, int] = {}
    for op, values in written:
        late = op.late_results(op.workspace is None or bool(workspace_bytes(op, timeline.dims)))
        for value in values:
            bound = 0 if op.kind in MEMORY_KINDS or value.bound is None else timeline.evaluate(
                value.bound)
            was = held[value.storage]
            if was < bound or value.id in late:
                found[op.id] = found.get(op.id, 0) + min(was, bound)
            held[value.storage] = max(was, bound) if bound else 0
    return found
