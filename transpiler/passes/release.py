"""Explicit release: a storage is given back after its last use, where the runtime would hold on to it.

Needs: in-place coalescing before it (a buffer that the runtime shares under two names is only free when both let go).
Keeps: the order of ops. Changes: adds RELEASE ops to the main region.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from transpiler.analysis.positions import Span, spans
from transpiler.ir import RELEASE, Graph, Op, OpFacts, ValueKind
from transpiler.passes.context import PassContext
from transpiler.passes.eligibility import never_shared


def release_storages(graph: Graph, context: PassContext) -> Graph:
    """Adds a RELEASE op after each op of the main region at which storages die.

    Its results are the dead values. Its operands are what the next op reads: they order the two, so that an executor
    that starts ops as soon as they are ready does not allocate before it has let go.
    """
    found = spans(graph)
    alone = never_shared(graph, found)
    context.left_alone.update(alone)
    dying = _last_uses(graph, found, alone)
    old_ops = graph.regions[0].ops
    graph.regions[0].ops = []
    for at, op in enumerate(old_ops):
        graph.regions[0].ops.append(op)
        if at in dying:
            following = graph.ops[old_ops[at + 1]] if at + 1 < len(old_ops) else None
            guards = _guards(graph, following, dying[at])
            graph.new_op(RELEASE,
                         0,
                         operands=guards,
                         results=tuple(dying[at]),
                         facts=OpFacts(side_effect=True),
                         origin=None)
    return graph


def _last_uses(graph: Graph, found: Dict[int, Span], alone: Dict[int, str]) -> Dict[int, List[int]]:
    """Values to release by position: the last tenant of each storage of the main region."""
    last: Dict[int, Tuple[int, int, int]] = {}
    for value in graph.values:
        if value.region != 0 or value.id not in found:
            continue
        span = found[value.id]
        use = (span.last, span.first, value.id)
        if value.id in alone:
            use = (len(graph.regions[0].ops), span.first, value.id)
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
    return tuple(v for v in following.data_reads()
                 if graph.values[v].kind is ValueKind.DENSE and not graph.values[v].persistable and
                 graph.values[v].storage not in storages)
