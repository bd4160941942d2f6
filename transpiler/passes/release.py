"""Explicit release: a storage is given back after its last use, where the runtime would hold on to it.

Needs: nothing. Keeps: the order of ops. Changes: adds RELEASE and SHARE ops to the main region.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from transpiler.analysis.interference import MOVED
from transpiler.analysis.lifetimes import Lifetimes
from transpiler.analysis.positions import Span
from transpiler.ir import HANDS_ON, RELEASE, SHARE, Graph, Op, OpFacts, ValueKind
from transpiler.passes.context import PassContext


def release_storages(graph: Graph, context: PassContext) -> Graph:
    """Adds a RELEASE op after each op of the main region at which storages die.

    Its results are the dead values. Its operands are what the next op reads: they order the two, so that an
    executor that starts ops as soon as they are ready does not allocate before it has let go.

    Paddle's executor works in place where an operand is used for the last time; the release is a later use. So
    the SHARE op that it would have inserted is written out, before the op.
    """
    rules = context.interference(graph)
    context.left_alone.update(rules.alone)
    bound = {v: why for v, why in rules.alone.items() if why != MOVED}
    dying = last_uses(graph, 0, rules.spans, bound)
    shared = in_place_by_op(graph, context.collecting(graph).lifetimes)
    old_ops = graph.regions[0].ops
    graph.regions[0].ops = []
    for at, op in enumerate(old_ops):
        # A value that is not released keeps its contents: somebody may fetch it.
        pairs = [pair for pair in shared.get(op, ()) if pair[0] in dying.get(at, ())]
        if pairs:
            operands, results = zip(*pairs)
            add_op(graph, 0, SHARE, operands, results)
        graph.regions[0].ops.append(op)
        if at in dying:
            following = graph.ops[old_ops[at + 1]] if at + 1 < len(old_ops) else None
            add_op(graph, 0, RELEASE, guards(graph, following, dying[at]), tuple(dying[at]))
    return graph


def add_op(graph: Graph, region: int, kind: str, operands: Tuple[int, ...],
           results: Tuple[int, ...]) -> None:
    """Appends a RELEASE, SHARE or FORGET op to `region`."""
    facts = OpFacts(side_effect=True)
    graph.new_op(kind, region, operands=operands, results=results, facts=facts, origin=None)


def in_place_by_op(graph: Graph, collecting: Lifetimes) -> Dict[int, List[Tuple[int, int]]]:
    """(operand, result) pairs by op, wherever a collecting executor would share a buffer by itself."""
    pairs: Dict[int, List[Tuple[int, int]]] = {}
    for op, source, target in collecting.shared:
        if graph.ops[op].kind not in HANDS_ON and graph.ops[op].region == 0:
            named = {graph.values[v].storage: v for v in graph.ops[op].reads()}
            written = {graph.values[v].storage: v for v in graph.ops[op].writes()}
            pairs.setdefault(op, []).append((named[source], written[target]))
    return pairs


def last_uses(graph: Graph, region: int, found: Dict[int, Span],
              alone: Dict[int, str]) -> Dict[int, List[int]]:
    """Values to release by position: the last tenant of each storage of `region`."""
    end = len(graph.regions[region].ops)
    last: Dict[int, Tuple[int, int, int]] = {}
    for value in graph.values:
        if value.region != region or value.id not in found:
            continue
        span = found[value.id]
        use = (end if value.id in alone else span.last, span.first, value.id)
        last[value.storage] = max(last.get(value.storage, use), use)
    dying: Dict[int, List[int]] = {}
    for at, _, value in last.values():
        if at < end:
            dying.setdefault(at, []).append(value)
    return dying


def guards(graph: Graph, following: Optional[Op], dying: List[int]) -> Tuple[int, ...]:
    """What the next op reads: named by a RELEASE op, it orders the two."""
    if following is None:
        return ()
    storages = {graph.values[v].storage for v in dying}
    return tuple(v for v in following.data_reads() if graph.values[v].kind is ValueKind.DENSE and
                 not graph.values[v].persistable and graph.values[v].storage not in storages)
