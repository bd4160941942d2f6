"""Whether a plan is to run in segments, and what it releases itself then.

In a segment the executor keeps nothing for pairs of ops, frees at once what only the segment knows, and works in place nowhere
by itself. So releases of that are left out, results take over the storage of dying operands by name, or by SHARE ops, and what
is known outside is released after its last use: as little of it as keeps the peak.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Mapping, Union

from transpiler.analysis.elsewhere import other_sizes
from transpiler.analysis.interference import Interference
from transpiler.analysis.segments import Segments, UpkeepOf, in_segments, outside, segments_of, upkeep
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import peak_with_workspaces
from transpiler.ir import FORGET, RELEASE, Graph, Op
from transpiler.passes.context import PassContext
from transpiler.passes.inplace import coalesce_in_place
from transpiler.passes.releases.release_ops import in_place_by_op, last_uses, write_releases
from transpiler.passes.releases.unread import named_unread
from transpiler.planning.plans import Plan, PlanOptions
from transpiler.planning.sequences import ROW_SUMS
from transpiler.runtime import Can, Runtime

# What segments have to save at least. A tenth of the first run's time is nothing that anyone waits for.
_WORTH_BYTES = 32 << 20
_WORTH_SECONDS = 2.0
# Where sums are made by rows: for that alone most of the ops may be there, and what they take may be no more than they save.
_WORTH_BYTES_BY_ROWS = 4 << 20
_LEAST_OPS = 16  # of a segment, where they are not forced

_CANNOT = 'the runtime, by the settings in force, cannot run them'
_NO_COLLECTOR = 'the runtime keeps what is dead, and a segment would have to as well'
_PARALLEL = 'parallel=True: ops of a segment run one after the other'
_FORGETS = 'it empties what an earlier run has left'
_NO_GAIN = 'they would save next to nothing'
_PEAK = 'the peak would rise by more than they save'
_ELSEWHERE = 'for other sizes of the inputs the peak would rise by more than they save'


@dataclass(frozen=True)
class _Cut:
    """A graph, how it is cut, and what that needs."""

    graph: Graph
    segments: Segments
    after: Timeline
    needed_bytes: int


def in_segments_or_not(chosen: Plan, runtime: Runtime, dims: Mapping[str, int],
                       options: PlanOptions) -> Plan:
    """`chosen` in segments where that pays, or with the reason why not."""
    if options.segments is False:
        return chosen
    reason = _why_not(chosen, options, runtime)
    if reason:
        return replace(chosen, unsegmented=reason)
    context = PassContext(runtime, dims, options.level, options.skip_grads)
    cuts: List[_Cut] = []
    for graph in _ways(chosen.graph, options, context):
        cuts.append(_cut(graph, options, context))
        if cuts[-1].needed_bytes <= chosen.needed_bytes:
            break
    best = min(cuts, key=lambda cut: cut.needed_bytes)
    reason = '' if options.segments is not None else _why_worse(chosen, best, context)
    if reason or not best.segments:
        return replace(chosen, unsegmented=reason or _NO_GAIN)
    return _segmented(chosen, best, options)


def _segmented(chosen: Plan, best: _Cut, options: PlanOptions) -> Plan:
    done = replace(chosen,
                   graph=best.graph,
                   after=best.after,
                   segments=best.segments,
                   held=chosen.held | {0})
    if options.budget is not None and done.sure_bytes > max(options.budget, chosen.sure_bytes):
        return replace(chosen, unsegmented=_PEAK)
    return done


def _why_not(chosen: Plan, options: PlanOptions, runtime: Runtime) -> str:
    if not {Can.SEGMENT, Can.PIN} <= runtime.can:
        return _CANNOT
    if not runtime.collects:
        return _NO_COLLECTOR
    if options.parallel:
        return _PARALLEL
    if any(op.kind == FORGET for op in chosen.graph.region_ops(0)):
        return _FORGETS
    uncut = chosen.upkeep_after
    if options.segments is None and not _gains(
            chosen, uncut, upkeep(chosen.graph, runtime, segments_of(chosen.graph))):
        return _NO_GAIN
    return ''


def _gains(chosen: Plan, before: UpkeepOf, after: UpkeepOf) -> bool:
    worth = _WORTH_BYTES_BY_ROWS if ROW_SUMS in chosen.steps else _WORTH_BYTES
    return (before.bytes - after.bytes > worth or before.seconds - after.seconds > _WORTH_SECONDS)


def _why_worse(chosen: Plan, cut: _Cut, context: PassContext) -> str:
    before, after = chosen.upkeep_after, upkeep(cut.graph, context.runtime, cut.segments)
    if not _gains(chosen, before, after):
        return _NO_GAIN
    # Never above the untouched program, and above the plan by no more than half of what is saved: that is an estimate.
    room = max(0, before.bytes - after.bytes - _WORTH_BYTES) // 2
    if cut.needed_bytes > max(chosen.needed_bytes,
                              min(chosen.needed_bytes + room, chosen.needed_before)):
        return _PEAK
    return _ELSEWHERE if _grows(chosen, cut, room) else ''


def _grows(chosen: Plan, cut: _Cut, room: int) -> bool:
    """Whether it needs too much for other sizes of the open dims."""
    for dims in (*other_sizes(chosen.after.dims), *chosen.sizes):
        needed = peak_with_workspaces(cut.graph, cut.after.at(dims))
        flat = peak_with_workspaces(chosen.graph, chosen.after.at(dims))
        if needed > flat and needed > min(
                flat + room, peak_with_workspaces(chosen.original, chosen.before.at(dims))):
            return True
    return False


def _cut(graph: Graph, options: PlanOptions, context: PassContext) -> _Cut:
    segments = _segments(graph, options.segments)
    after = in_segments(graph, segments, context.runtime, context.dims)
    return _Cut(graph, segments, after, peak_with_workspaces(graph, after))


def _segments(graph: Graph, given: Union[None, bool, int]) -> Segments:
    if given is None:
        return tuple(s for s in segments_of(graph) if s[1] - s[0] >= _LEAST_OPS)
    return segments_of(graph, None if given is True else given)


def _ways(graph: Graph, options: PlanOptions, context: PassContext) -> Iterator[Graph]:
    """Graphs that do what `graph` does, from the one with the fewest ops on."""
    plain = _without_local_releases(graph, _segments(graph, options.segments))
    yield plain
    inside = replace(context, runtime=context.runtime.in_segments())
    named = coalesce_in_place(plain.fork(), inside)
    yield named
    shared = _with_shares(plain, context)
    yield shared
    for each in (plain, named, shared):
        yield _with_releases(each, options)


def _without_local_releases(graph: Graph, segments: Segments) -> Graph:
    """Without the RELEASE ops of what is freed at once anyway: what no op names any more."""
    known, named, done = outside(graph, segments), named_unread(graph), graph.fork()

    def is_needed(at: int, release: Op) -> bool:
        storages = (graph.values[v].storage for v in release.writes())
        return any(s in known or named.get(s, -1) > at for s in storages)

    done.regions[0].ops = [
        op.id
        for at, op in enumerate(graph.region_ops(0))
        if op.kind != RELEASE or is_needed(at, op)
    ]
    return done


def _with_shares(graph: Graph, context: PassContext) -> Graph:
    """With SHARE ops wherever the runtime would work in place if the main region were one piece."""
    lifetimes = Timeline(graph, context.runtime, context.dims).lifetimes
    done = graph.fork()
    write_releases(done, done.regions[0], {}, in_place_by_op(graph, lifetimes))
    return done


def _with_releases(graph: Graph, options: PlanOptions) -> Graph:
    """With RELEASE ops after the last use of what is known outside of its segment."""
    known = outside(graph, _segments(graph, options.segments))
    rules, ops = Interference(graph), graph.regions[0].ops
    released: Dict[int, List[List[int]]] = {}
    for at, values in last_uses(graph, 0, rules.spans, rules.unreleased()).items():
        dead = [v for v in values if graph.values[v].storage in known]
        if dead and graph.ops[ops[at]].kind != RELEASE:
            released[at] = [dead]
    done = graph.fork()
    write_releases(done, done.regions[0], released, {})
    return done
