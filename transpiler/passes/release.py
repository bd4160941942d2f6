"""Explicit release: a storage is given back after its last use, where the runtime would hold on to it.

Needs: nothing. Keeps: the order of ops. Changes: adds RELEASE and SHARE ops to the main region.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Set, Tuple

from transpiler.analysis.lifetimes import Lifetimes
from transpiler.analysis.positions import Positions, Span, spans
from transpiler.analysis.runtime import RuntimeModel
from transpiler.analysis.timeline import LAG, Timeline
from transpiler.ir import RELEASE, SHARE, Graph, Op, OpFacts, ValueKind
from transpiler.passes.context import PassContext
from transpiler.passes.eligibility import never_shared

_SAME_PEAK = 1.01


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
    """Adds RELEASE ops where a collector that is some ops late would raise the peak.

    Paddle's frees in a thread of its own, and loses that race often: what a large op needs then comes on top of what
    the op before it left behind.
    """
    timeline = Timeline(graph, RuntimeModel.COLLECTING, context.dims)
    late = _raised_by_a_late_collector(graph, timeline)
    found = spans(graph)
    dying = _last_uses(graph, found, never_shared(graph, found))
    ending = {l.storages[-1]: l.last for l in timeline.lifetimes.by_region[0].values()}
    old_ops = graph.regions[0].ops
    graph.regions[0].ops = []
    for at, op in enumerate(old_ops):
        graph.regions[0].ops.append(op)
        values = [v for v in dying.get(at, ()) if ending.get(graph.values[v].storage) == at]
        if values and not late.isdisjoint(range(at + 1, at + 1 + LAG)):
            following = graph.ops[old_ops[at + 1]]
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
