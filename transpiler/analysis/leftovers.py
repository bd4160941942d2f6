"""What an earlier run may have left where a gradient looks before anyone has written.

The gradient of a loop reads those of all its results. One that no op makes, because nothing depends on that result, is filled
with zeros by the runtime, if its variable is empty; and a loop without a trip writes no gradient at all. Where the runtime
frees dead variables both are empty in each run. Where it retains them, they have what the last run left, and the gradients
come out wrong, also those of the program that nobody rewrote.
"""

from __future__ import annotations

from typing import Dict, List, Set

from transpiler.ir import FORGET, RELEASE, Graph, Op, RegionKind, Value, ValueKind


def left_by_earlier_runs(graph: Graph) -> Dict[int, List[int]]:
    """By op of the main block that is the first to name them: its temporaries that have nothing in them by then, or what an
    earlier run left there. Only gradients of loops are asked, and of branches with loops in them."""
    found: Dict[int, List[int]] = {}
    named: Set[int] = set()
    for op in (op for op in graph.region_ops(0) if op.kind not in (FORGET, RELEASE)):
        fresh = [v for v in dict.fromkeys(op.reads() + op.writes()) if v not in named]
        if _is_gradient(graph, op):
            found[op.id] = [v for v in fresh if _is_temporary(graph.values[v])]
        named.update(fresh, *(inner.reads() + inner.writes() for inner in graph.inside(op)))
    return {op: values for op, values in found.items() if values}


def not_forgotten(graph: Graph) -> List[str]:
    """Names of those of `left_by_earlier_runs` that no FORGET op empties, sorted."""
    emptied = {v for op in graph.region_ops(0) if op.kind == FORGET for v in op.writes()}
    left = {v for values in left_by_earlier_runs(graph).values() for v in values}
    return sorted({graph.values[v].name for v in left - emptied})


def _is_gradient(graph: Graph, op: Op) -> bool:
    if not op.regions:
        return False
    regions = (graph.regions[r] for inner in (op, *graph.inside(op)) for r in inner.regions)
    return any(region.kind is RegionKind.LOOP_GRADIENT for region in regions)


def _is_temporary(value: Value) -> bool:
    """Arrays need not be asked for: the runtime clears them before each run."""
    return value.kind is ValueKind.DENSE and value.region == 0 and not (value.persistable or
                                                                        value.fed)
