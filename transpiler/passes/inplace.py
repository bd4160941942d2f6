"""In-place coalescing: a result takes over the storage of an operand that dies at the op.

Needs: storages that reuse has not shared yet; others are left as they are. Keeps: the order of ops. Changes: `storage` of values.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterator, Set, Tuple

from transpiler.analysis.positions import Positions, Span
from transpiler.ir import Graph, Op
from transpiler.passes.context import PassContext, Reuse
from transpiler.passes.eligibility import keeps_its_name, uses
from transpiler.passes.parallel import EveryOrder


def coalesce_in_place(graph: Graph, context: PassContext) -> Graph:
    """Merges (operand, result) pairs that the operator registry lets run in place.

    Paddle's executor shares such buffers itself, under two names and in the main block only; one name says
    the same to every runtime, and in inner blocks too. But not every kernel that works on a shared buffer
    works on one variable: elementwise_add_grad with an inner broadcast gives wrong results. So this is only
    done to operators that eager mode runs in place too.
    """
    found, alone = uses(graph, context)
    closed = keeps_its_name(graph, context.skip_grads)
    position = Positions(graph).of
    every_order = EveryOrder(graph) if context.parallel else None
    shared = _shared_before(graph)
    merged: Set[int] = set()  # values that already gave their storage to a result
    for op in graph.walk():
        for source, target in _pairs(graph, op, found, position):
            if source in alone or source in closed or target in alone or source in merged:
                continue
            if source in shared or target in shared:
                continue
            if every_order and not every_order.hands_over(source, target, position[op.id]):
                continue
            merged.add(source)
            graph.values[target].storage = graph.values[source].storage
            context.reuses.append(Reuse(target, graph.values[source].storage, 'in-place', 0))
    return graph


def _shared_before(graph: Graph) -> Set[int]:
    tenants = Counter(v.storage for v in graph.values)
    return {v.id for v in graph.values if tenants[v.storage] > 1}


def _pairs(graph: Graph, op: Op, found: Dict[int, Span],
           position: Dict[int, int]) -> Iterator[Tuple[int, int]]:
    for i, j in op.facts.in_place if op.facts.same_name else ():
        source, target = op.operands[i], op.results[j]
        if source < 0 or target < 0 or op.operands.count(source) > 1 or source in op.results:
            continue
        if op.results.count(target) > 1 or target in op.operands:
            continue
        a, b = graph.values[source], graph.values[target]
        same = (a.region == b.region == op.region and a.dtype == b.dtype and a.shape is not None and
                a.shape == b.shape and a.lod_level == b.lod_level)
        at = position[op.id]
        if same and found[source].last == at and found[
                target].first == at and not found[source].kept:
            yield source, target
