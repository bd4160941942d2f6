"""What kernels allocate for themselves while they run, on top of what lives."""

from __future__ import annotations

import itertools
from typing import (Callable, Collection, Dict, FrozenSet, Iterator, List, Mapping, Sequence, Set,
                    Tuple, TypeVar)

from transpiler.analysis.timeline import Timeline
from transpiler.ir import MEMORY_KINDS, RELEASE, Graph, Op, Size, Value

_T = TypeVar('_T')


def workspace_bytes(op: Op, dims: Mapping[str, int]) -> int:
    """Bytes that the kernel of `op` needs besides what it reads and writes; 0 where nobody knows."""
    return op.workspace.evaluate(dims) if op.workspace else 0


def bytes_with_workspaces(graph: Graph, timeline: Timeline) -> List[int]:
    """The bytes of the points of `timeline`, which is of `graph`, each op's workspace counted, and copies in other layouts."""
    return _with_workspaces(graph, timeline, timeline.live, _layout_copies(graph, timeline))


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
    return _with_workspaces(graph, timeline, timeline.uncollected(released, lags), copies)


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
    """Which points have a workspace, and of what size."""
    own = ((at, graph.ops[op].workspace) for at, op in enumerate(timeline.order))
    return _once(graph, timeline, 'workspaces', lambda: [(at, size) for at, size in own if size])


def _once(graph: Graph, timeline: Timeline, what: str, work_out: Callable[[], _T]) -> _T:
    """What `work_out` makes of `graph`, at any size, if that is the graph that `timeline` is of, which changes no more."""
    return timeline.once_for_all_sizes(what, work_out) if graph is timeline.graph else work_out()


def _outgrown(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """By op: bytes of the memory that names of its results have, and that is too small, or that its kernel does not take. The
    runtime lets go of it when it has allocated the other one."""
    shared = _once(graph, timeline, 'shared storages', graph.storage_members)
    written = _once(graph, timeline, 'shared, written', lambda: _written(graph, shared))
    found = _beside_results(timeline, written, dict.fromkeys(shared, 0))
    left = {s: timeline.evaluate(size) for s, size in timeline.lifetimes.left_elsewhere.items()}
    later = _beside_results(timeline, _written(graph, left), left) if left else {}
    return {op: max(found.get(op, 0), later.get(op, 0)) for op in {**found, **later}}


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


def _layout_copies(graph: Graph, timeline: Timeline, handing_on: bool = False) -> List[int]:
    """By position of the main region: bytes of the copies that the runtime has made by then of what kernels with layouts of
    their own wrote and others read, none of which the first run frees before its end. Empty if there are no such kernels.

    `handing_on`: where the runtime would work in place, an op hands on the buffer, for which it reads it.
    """
    if not _once(graph, timeline, 'converts',
                 lambda: any(op.facts.converts for op in graph.region_ops(0))):
        return []
    copied = _once(graph, timeline, f'copied, {handing_on}',
                   lambda: _copied(graph, timeline, handing_on))
    made = [sum(map(timeline.evaluate, sizes)) for sizes in copied]
    for at, size in _once(graph, timeline, 'held by layout', lambda: list(_held_by_layout(graph))):
        made[at] += timeline.evaluate(size)
    return list(itertools.accumulate(made))


def _copied(graph: Graph, timeline: Timeline, handing_on: bool) -> List[List[Size]]:
    """By position of the main region: of what copies are made there, for `_layout_copies`."""
    made: List[List[Size]] = []
    written: Set[int] = set()
    given: Dict[int, Set[int]] = {}  # by op, storages
    for op, source, _ in timeline.lifetimes.shared if handing_on else ():
        given.setdefault(op, set()).add(source)
    for op in graph.region_ops(0):
        read = {v for v in op.reads() if graph.values[v].storage in given.get(op.id, ())}
        if not op.facts.converts and op.kind != RELEASE:  # what that names orders it, and is not looked at
            read.update(op.reads())
        bounds = (graph.values[v].bound for v in written & read)
        made.append([bound for bound in bounds if bound is not None])
        written -= read
        if op.facts.converts:
            written.update(op.writes())
    return made


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
