"""Explicit release: a storage is given back after its last use, where the runtime would hold on to it.

Needs: nothing. Keeps: the order of ops. Changes: adds RELEASE and SHARE ops to the main region.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Set, Tuple

from transpiler.analysis.lifetimes import Lifetime, Lifetimes
from transpiler.analysis.positions import Positions, Span, spans
from transpiler.analysis.runtime import RuntimeModel
from transpiler.analysis.timeline import Timeline
from transpiler.ir import RELEASE, SHARE, Graph, Op, OpFacts, ValueKind
from transpiler.passes.context import PassContext
from transpiler.passes.eligibility import never_shared

_SAME_PEAK = 1.01
# A budget is not broken by what is smaller than this share of the peak.
_SMALL = 1 / 256


def release_storages(graph: Graph, context: PassContext) -> Graph:
    """Adds a RELEASE op after each op of the main region at which storages die.

    Its results are the dead values. Its operands are what the next op reads: they order the two, so that an
    executor that starts ops as soon as they are ready does not allocate before it has let go.

    Paddle's executor works in place where an operand is used for the last time; the release is a later use. So
    the SHARE op that it would have inserted is written out, before the op.
    """
    found = spans(graph)
    alone = never_shared(graph, found)
    context.left_alone.update(alone)
    dying = _last_uses(graph, found, alone)
    shared = _in_place_by_op(graph)
    old_ops = graph.regions[0].ops
    graph.regions[0].ops = []
    for at, op in enumerate(old_ops):
        # A value that is not released keeps its contents: somebody may fetch it.
        pairs = [pair for pair in shared.get(op, ()) if pair[0] in dying.get(at, ())]
        if pairs:
            operands, results = zip(*pairs)
            _add(graph, SHARE, operands, results)
        graph.regions[0].ops.append(op)
        if at in dying:
            following = graph.ops[old_ops[at + 1]] if at + 1 < len(old_ops) else None
            _add(graph, RELEASE, _guards(graph, following, dying[at]), tuple(dying[at]))
    return graph


def release_promptly(graph: Graph, context: PassContext) -> Graph:
    """Adds RELEASE ops where a collector that is one op late would raise the peak.

    Paddle's frees in a thread of its own, and loses that race often: what a large op needs then comes on top of what
    the op before it left behind.
    """
    timeline = Timeline(graph, RuntimeModel.COLLECTING, context.dims)
    late = _raised_by_a_late_collector(graph, timeline)
    return _release_where(graph, timeline, lambda lifetime: lifetime.last + 1 in late)


def release_surely(graph: Graph, context: PassContext) -> Graph:
    """Adds RELEASE ops wherever a storage of some size ends: on a busy machine the collector is any number of ops late."""
    timeline = Timeline(graph, RuntimeModel.COLLECTING, context.dims)
    least = timeline.peak_bytes * _SMALL
    return _release_where(graph, timeline, lambda life: timeline.evaluate(life.size) >= least)


def _release_where(graph: Graph, timeline: Timeline, wanted: Callable[[Lifetime], bool]) -> Graph:
    """Releases what the runtime would collect in the main region, allocation by allocation, where that is `wanted`.

    Each name that holds an allocation in turn is released, or the buffer would stay with the others. Paddle's executor
    hands a buffer over in place only between names that nothing touches later, as a release does: the SHARE op that it
    would have inserted is written out.
    """
    found = spans(graph)
    dying = _last_uses(graph, found, never_shared(graph, found))
    may_go = {graph.values[v].storage for values in dying.values() for v in values}
    chosen = {
        s for lifetime in timeline.lifetimes.by_region[0].values()
        if wanted(lifetime) and may_go.issuperset(lifetime.storages) for s in lifetime.storages
    }
    shared = _in_place_by_op(graph)
    old_ops = graph.regions[0].ops
    graph.regions[0].ops = []
    for at, op in enumerate(old_ops):
        values = [v for v in dying.get(at, ()) if graph.values[v].storage in chosen]
        pairs = [pair for pair in shared.get(op, ()) if pair[0] in values]
        if pairs:
            _add(graph, SHARE, *zip(*pairs))
        graph.regions[0].ops.append(op)
        if values:
            following = graph.ops[old_ops[at + 1]] if at + 1 < len(old_ops) else None
            _add(graph, RELEASE, _guards(graph, following, values), tuple(values))
    return graph


def _raised_by_a_late_collector(graph: Graph, timeline: Timeline) -> Set[int]:
    """Positions in the main region at which late freeing would lift the memory above the peak."""
    positions = Positions(graph)
    limit = timeline.peak_bytes * _SAME_PEAK
    return {
        positions.seen_from(graph.ops[p.op], 0)[0]
        for p in timeline.lagging_points()
        if p.bytes > limit
    }


def _add(graph: Graph, kind: str, operands: Tuple[int, ...], results: Tuple[int, ...]) -> None:
    facts = OpFacts(side_effect=True)
    graph.new_op(kind, 0, operands=operands, results=results, facts=facts, origin=None)


def _in_place_by_op(graph: Graph) -> Dict[int, List[Tuple[int, int]]]:
    """(operand, result) pairs by op, wherever the executor would share a buffer by itself."""
    pairs: Dict[int, List[Tuple[int, int]]] = {}
    for op, source, target in Lifetimes(graph, RuntimeModel.COLLECTING).shared:
        if graph.ops[op].kind != SHARE and graph.ops[op].region == 0:
            named = {graph.values[v].storage: v for v in graph.ops[op].reads()}
            written = {graph.values[v].storage: v for v in graph.ops[op].writes()}
            pairs.setdefault(op, []).append((named[source], written[target]))
    return pairs


def _last_uses(graph: Graph, found: Dict[int, Span], alone: Dict[int, str]) -> Dict[int, List[int]]:
    """Values to release by position: the last tenant of each storage of the main region."""
    last: Dict[int, Tuple[int, int, int]] = {}
    for value in graph.values:
        if value.region != 0 or value.id not in found:
            continue
        span = found[value.id]
        ends = len(graph.regions[0].ops) if value.id in alone else span.last
        use = (ends, span.first, value.id)
        last[value.storage] = max(last.get(value.storage, use), use)
    dying: Dict[int, List[int]] = {}
    for at, _, value in last.values():
        if at < len(graph.regions[0].ops):
            dying.setdefault(at, []).append(value)
    return dying


def _guards(graph: Graph, following: Optional[Op], dying: List[int]) -> Tuple[int, ...]:
    if following is None:
        return ()
    storages = {graph.values[v].storage for v in dying}
    return tuple(v for v in following.data_reads() if graph.values[v].kind is ValueKind.DENSE and
                 not graph.values[v].persistable and graph.values[v].storage not in storages)
