"""Explicit release: a storage is given back after its last use, where the runtime would hold on to it.

Needs: nothing. Keeps: the order of ops. Changes: adds RELEASE and SHARE ops to the main region.
"""

from __future__ import annotations

from typing import Dict, List

from transpiler.analysis.interference import MOVED, OF_SLICES, OUTGROWN
from transpiler.analysis.lifetimes import Lifetimes
from transpiler.ir import Graph
from transpiler.passes.context import PassContext
from transpiler.passes.releases.release_ops import in_place_by_op, last_uses, write_releases
from transpiler.runtime import Can


def release_storages(graph: Graph, context: PassContext) -> Graph:
    """Adds a RELEASE op after each op of the main region at which storages die.

    Paddle's executor works in place where an operand is used for the last time; the release is a later use. So
    the SHARE op that it would have inserted is written out, before the op.
    """
    rules = context.interference(graph)
    context.left_alone.update(rules.alone)
    bound = {v: why for v, why in rules.alone.items() if why not in (MOVED, OF_SLICES, OUTGROWN)}
    lifetimes = context.collecting(graph).lifetimes
    shapes_stay = Can.SHAPES in context.runtime.can
    dying = _whole(graph, last_uses(graph, 0, rules.spans, bound, shapes_stay), lifetimes)
    gone = {v for values in dying.values() for v in values}
    # A value that is not released keeps its contents: somebody may fetch it.
    shared = {
        op: [pair for pair in pairs if pair[0] in gone]
        for op, pairs in in_place_by_op(graph, lifetimes).items()
    }
    released = {at: [values] for at, values in dying.items()}
    write_releases(graph, graph.regions[0], released, shared, guarded=True)
    return graph


def _whole(graph: Graph, dying: Dict[int, List[int]], lifetimes: Lifetimes) -> Dict[int, List[int]]:
    """Without values that get the buffer of one that is not released: it is there to the end, and if they were released, the
    executor would make another for them."""
    mortal = {graph.values[v].storage for values in dying.values() for v in values}
    kept = {
        s for lifetime in lifetimes.by_region[0].values()
        if not mortal.issuperset(lifetime.storages) for s in lifetime.storages
    }
    found = {
        at: [v for v in values if graph.values[v].storage not in kept]
        for at, values in dying.items()
    }
    return {at: values for at, values in found.items() if values}
