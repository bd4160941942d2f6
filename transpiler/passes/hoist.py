"""One storage for all trips: what a loop body needs for a moment is moved out of the scope that each trip leaves behind.

Needs: reuse inside the body before it leaves fewer storages. Keeps: ops, their order, who shares with whom. Changes:
`region` of values.

A training loop keeps each trip's scope until the gradient has used it. Where the runtime does not free dead variables, all
that the trip made is kept with it, as often as there are trips. In the plan of the block around, the same storage is one
more that is there while the loop runs: once. Trips run one after the other, and so do the trips of the loops around; hence it
may go to the main block, out of any depth of loops. Nobody else of the main block shares it, because the executor does not
know that the loop writes it: it orders ops by the names that they declare.
"""

from __future__ import annotations

from typing import Set

from transpiler.ir import Graph, RegionKind
from transpiler.passes.context import PassContext

_SCOPED = (RegionKind.LOOP, RegionKind.BRANCH)


def hoist_storages(graph: Graph, context: PassContext) -> Graph:
    """Moves to the main region every storage of a training loop that neither the gradient nor another trip reads."""
    if context.runtime.collects:
        return graph
    multiplied = {r.id for r in graph.regions if _is_kept_per_trip(graph, r.id)}
    rules = context.interference(graph)
    taken: Set[str] = {v.name for v in graph.values if v.region == 0}
    for values in graph.by_storage().values():
        names = {graph.values[v].name for v in values}
        movable = all(graph.values[v].region in multiplied and rules.outlived(v) for v in values)
        if movable and not names & taken:
            taken |= names
            for value in values:
                graph.change(value, region=0)
    return graph


def _is_kept_per_trip(graph: Graph, region: int) -> bool:
    """Whether the scope of `region` outlives a trip of a loop that it is in, with only loops and branches around."""
    kept = False
    while region > 0:
        facts = graph.regions[region]
        if facts.kind not in _SCOPED:
            return False
        kept = kept or (facts.kind is RegionKind.LOOP and facts.keeps_scopes)
        region = facts.parent
    return kept
