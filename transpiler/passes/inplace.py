"""In-place coalescing: a result takes over the storage of an operand that dies at the op.

Needs: storages that reuse has not shared yet; others are left as they are. Keeps: the order of ops. Changes: `storage` of values.
"""

from __future__ import annotations

from typing import Set

from transpiler.analysis.positions import Positions
from transpiler.ir import Graph
from transpiler.passes.context import PassContext, Reuse
from transpiler.passes.side_by_side import EveryOrder
from transpiler.passes.tenants import in_shared_storages


def coalesce_in_place(graph: Graph, context: PassContext) -> Graph:
    """Merges (operand, result) pairs that the operator registry lets run in place.

    Paddle's executor shares such buffers itself, under two names and in the main block only; one name says
    the same to every runtime, and in inner blocks too. But not every kernel that works on a shared buffer
    works on one variable: elementwise_add_grad with an inner broadcast gives wrong results. So this is only
    done to operators that eager mode runs in place too.
    """
    rules = context.interference(graph)
    position = Positions(graph).of
    every_order = EveryOrder(graph) if context.parallel else None
    shared = in_shared_storages(graph)
    merged: Set[int] = set()  # values that already gave their storage to a result
    for op in graph.walk():
        at = position[op.id]
        for i, j in op.facts.in_place:
            if rules.why_not_in_place(op, i, j, at):
                continue
            source, target = op.operands[i], op.results[j]
            if source in merged or source in shared or target in shared:
                continue
            if every_order and not every_order.hands_over(source, target, at):
                continue
            merged.add(source)
            graph.change(target, storage=graph.values[source].storage)
            context.reuses.append(Reuse(target, graph.values[source].storage, 'in-place', 0))
    return graph
