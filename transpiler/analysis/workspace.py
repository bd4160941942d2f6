"""What kernels allocate for themselves while they run, on top of what lives."""

from __future__ import annotations

import itertools
from typing import Dict, FrozenSet, Iterator, List, Mapping, Sequence, Set, Tuple

from transpiler.analysis.timeline import Timeline
from transpiler.ir import MEMORY_KINDS, NOTHING, RELEASE, Graph, Op, Size


def workspace_bytes(op: Op, dims: Mapping[str, int]) -> int:
    """Bytes that the kernel of `op` needs besides what it reads and writes; 0 where nobody knows."""
    return op.workspace.evaluate(dims) if op.workspace else 0


def bytes_with_workspaces(graph: Graph, timeline: Timeline) -> List[int]:
    """The bytes of the points of `timeline`, which is of `graph`, each op's workspace counted, and copies in other layouts."""
    found = _with_workspaces(graph, timeline, timeline.live, _layout_copies(graph, timeline))
    given_up = _given_up(graph, timeline)
    return [live - given_up.get(op, 0) for op, live in zip(timeline.order, found)
           ] if given_up else found


def bytes_besides(graph: Graph, timeline: Timeline) -> List[int]:
    """Of `bytes_with_workspaces` those that each op takes for itself: its workspace, and memory that is too small."""
    return _with_workspaces(graph, timeline, [0] * len(timeline.order), ())


def uncollected_with_workspaces(graph: Graph,
                                timeline: Timeline,
                                released: FrozenSet[int],
                                lags: bool = False) -> List[int]:
    """The same of `timeline.uncollected(released, lags)`, with the copies that the ops make which hand on buffers where
    the program is to release them by itself."""
    copies = _layout_copies(graph, timeline, handing_on=bool(released))
    left = _left_of_copies(graph, timeline)
    both = [a + b for a, b in itertools.zip_longest(copies, left, fillvalue=0)]
    return _with_workspaces(graph, timeline, timeline.uncollected(released, lags), both)


def copied_bytes(graph: Graph, timeline: Timeline) -> int:
    """Bytes of all copies in other layouts that die behind the ops for which a run makes them."""
    return sum(_copied(graph, timeline).values())


def _copied(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """By op, in all of its runs."""
    return {
        op.id: timeline.evaluate(_relaid(graph, op) * graph.runs_of(op.region))
        for op in graph.walk()
        if op.facts.relaid
    }


def _relaid(graph: Graph, op: Op) -> Size:
    bounds = (graph.values[op.operands[at]].bound for at in sorted(op.facts.relaid))
    return Size.total(bound for bound in bounds if bound is not None)


def _given_up(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """By op that reads such copies: bytes of what they are of and nothing reads later, or of what the op makes if that is less: when it
    makes that, those are gone."""
    found = {}
    for op in (op for op in graph.walk() if op.facts.relaid):
        at, own = timeline.lifetimes.position[op.id], timeline.lifetimes.by_region[op.region]
        read = {graph.values[op.operands[i]].storage for i in op.facts.relaid}
        dying = sum(
            timeline.evaluate(l.size)
            for l in own.values()
            if l.last == at and not read.isdisjoint(l.storages))
        made = sum(timeline.evaluate(l.size) for l in own.values() if l.first == at)
        found[op.id] = min(dying, made)
    return found


def _left_of_copies(graph: Graph, timeline: Timeline) -> List[int]:
    """By position of the main region: bytes of such copies made before, if nothing frees them; those of other regions with what runs
    them. Empty if there are none."""
    copied = _copied(graph, timeline)
    if not copied:
        return []
    left, there = [], 0
    for op in graph.region_ops(0):
        there += sum(copied.get(inner.id, 0) for inner in graph.inside(op))
        left.append(there)
        there += copied.get(op.id, 0)
    return left


def peak_with_workspaces(graph: Graph, timeline: Timeline) -> int:
    """The most of `bytes_with_workspaces`."""
    return timeline.once('peak with workspaces',
                         lambda: max(bytes_with_workspaces(graph, timeline), default=0))


def peak_if_renamed(graph: Graph, timeline: Timeline) -> int:
    """The same if what kernels with layouts of their own exchange with others is in the right layout as it is: the runtime makes
    no copy, but gives the buffer another name, which the first run keeps to its end."""
    renamed = _kept_renamed(graph, timeline)
    return max(_with_workspaces(graph, timeline, timeline.live, renamed), default=0)


def unknown_workspaces(graph: Graph) -> List[str]:
    """Kinds of ops of which nobody knows what their kernels allocate for themselves: no figure has it."""
    return sorted({op.kind for op in graph.walk() if op.workspace is None})


def _with_workspaces(graph: Graph, timeline: Timeline, live: Sequence[int],
                     copies: Sequence[int]) -> List[int]:
    """`live` bytes, by point of `timeline`, with what comes on top; `copies` are by position of the main region, if there are any."""
    found = list(live)
    for at, size in _workspaces(graph, timeline):
        found[at] += timeline.evaluate(size)
    outgrown = _outgrown(graph, timeline)
    if outgrown or copies:
        position = timeline.lifetimes.positions.seen_from
        for at, op in enumerate(map(graph.ops.__getitem__, timeline.order)):
            found[at] += outgrown.get(op.id, 0) + (copies[position(op, 0)[0]] if copies else 0)
    return found


def _workspaces(graph: Graph, timeline: Timeline) -> List[Tuple[int, Size]]:
    """Which points have a workspace, or copies in other layouts, and of what size."""
    ops = enumerate(map(graph.ops.__getitem__, timeline.order))
    own = ((at, (op.workspace or NOTHING) + _relaid(graph, op) if op.facts.relaid else op.workspace)
           for at, op in ops)
    return [(at, size) for at, size in own if size]


def _outgrown(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """By op: bytes of the memory that names of its results have, and that is too small, or that its kernel does not take. The
    runtime lets go of it when it has allocated the other one."""
    shared = graph.storage_members()
    found = _beside_results(graph, timeline, dict.fromkeys(shared, 0)) if shared else {}
    left = {s: timeline.evaluate(size) for s, size in timeline.lifetimes.left_elsewhere.items()}
    later = _beside_results(graph, timeline, left) if left else {}
    return {op: max(found.get(op, 0), later.get(op, 0)) for op in {**found, **later}}


def _beside_results(graph: Graph, timeline: Timeline, held: Dict[int, int]) -> Dict[int, int]:
    """The same for storages of which names have `held` so many bytes before the first op, which is changed."""
    found: Dict[int, int] = {}
    for op in graph.walk():
        late = op.late_results(op.workspace is None or bool(workspace_bytes(op, timeline.dims)))
        for value in (graph.values[v] for v in op.writes() if graph.values[v].storage in held):
            bound = 0 if op.kind in MEMORY_KINDS or value.bound is None else timeline.evaluate(
                value.bound)
            was = held[value.storage]
            if was < bound or value.id in late:
                found[op.id] = found.get(op.id, 0) + min(was, bound)
            held[value.storage] = max(was, bound) if bound else 0
    return found


def _layout_copies(graph: Graph, timeline: Timeline, handing_on: bool = False) -> List[int]:
    """By position of the main region: bytes of the copies that the runtime has made by then of what kernels with layouts of
    their own wrote and others read, none of which the first run frees before its end. Empty if there are no such kernels.

    `handing_on`: where the runtime would work in place, an op hands on the buffer, for which it reads it.
    """
    if not any(op.facts.converts for op in graph.region_ops(0)):
        return []
    made = [0] * len(graph.regions[0].ops)
    written: Set[int] = set()
    given: Dict[int, Set[int]] = {}  # by op, storages
    for op, source, _ in timeline.lifetimes.shared if handing_on else ():
        given.setdefault(op, set()).add(source)
    for at, op in enumerate(graph.region_ops(0)):
        read = {v for v in op.reads() if graph.values[v].storage in given.get(op.id, ())}
        if not op.facts.converts and op.kind != RELEASE:  # what that names orders it, and is not looked at
            read.update(op.reads())
        bounds = (graph.values[v].bound for v in written & read)
        made[at] = sum(timeline.evaluate(bound) for bound in bounds if bound is not None)
        written -= read
        if op.facts.converts:
            written.update(op.writes())
    for at, size in _held_by_layout(graph):
        made[at] += timeline.evaluate(size)
    return list(itertools.accumulate(made))


def _kept_renamed(graph: Graph, timeline: Timeline) -> List[int]:
    """By position of the main region: bytes of buffers that kernels with layouts of their own and others have touched, and that
    nothing else holds any more."""
    own: Set[int] = set()
    others: Set[int] = set()
    for op in graph.region_ops(0):
        if op.kind not in MEMORY_KINDS:
            storages = (graph.values[v].storage for v in op.reads() + op.writes())
            (own if op.facts.converts else others).update(storages)
    both, ended = own & others, [0] * (len(graph.regions[0].ops) + 1)
    for lifetime in timeline.lifetimes.by_region[0].values():
        if not both.isdisjoint(lifetime.storages):
            ended[lifetime.last + 1] += timeline.evaluate(lifetime.size)
    return list(itertools.accumulate(ended))


def _held_by_layout(graph: Graph) -> Iterator[Tuple[int, Size]]:
    """What kernels with layouts of their own read, and others wrote, and the position of the main region from which on nothing
    else holds it: it counts as converted by another name in the same buffer, which the first run keeps to its end, too."""
    written: Set[int] = set()
    read: Set[int] = set()
    last: Dict[int, int] = {}
    for at, op in enumerate(graph.region_ops(0)):
        last.update(dict.fromkeys(op.reads() + op.writes(), at))
        if op.facts.converts:
            read.update(v for v in op.reads() if v not in written)
            written.update(op.writes())
    for value in map(graph.values.__getitem__, sorted(read)):
        kept = value.region or value.known_outside
        if not kept and value.bound is not None and last[value.id] + 1 < len(graph.regions[0].ops):
            yield last[value.id] + 1, value.bound
