"""What an earlier run may have left where an operator looks before anyone has written.

The gradient of a loop reads those of all its results. One that no op makes, because nothing depends on that result, is filled
with zeros by the runtime, if its variable is empty; and a loop without a trip writes no gradient at all. Where the runtime
frees dead variables both are empty in each run. Where it retains them, they have what the last run left, and the gradients
come out wrong, also those of the program that nobody rewrote.

A kernel that goes on with what its result holds takes the result of the last run for half done: it is right only as long as the
runtime has it work in place. Which it does rests on the order of ops, and on who else holds the operand, so a rewrite may end it.
"""

from __future__ import annotations

from typing import Dict, List, Set

from transpiler.ir import FORGET, RELEASE, Graph, Op, RegionKind, Value, ValueKind


def left_by_earlier_runs(graph: Graph) -> Dict[int, List[int]]:
    """By op of the main block that is the first to name them: its temporaries that have nothing in them by then, or what an
    earlier run left there. Asked are gradients of loops, and of branches with loops in them, and results that their kernels go
    on with."""
    found: Dict[int, List[int]] = {}
    named: Set[int] = set()
    for op in (op for op in graph.region_ops(0) if op.kind not in (FORGET, RELEASE)):
        fresh = [v for v in dict.fromkeys(op.reads() + op.writes()) if v not in named]
        asked = fresh if _is_gradient(graph, op) else _goes_on_with(op)
        found[op.id] = [v for v in fresh if v in asked and _is_temporary(graph.values[v])]
        named.update(fresh, *(inner.reads() + inner.writes() for inner in graph.inside(op)))
    return {op: values for op, values in found.items() if values}


def not_forgotten(graph: Graph) -> List[str]:
    """Names of those that `left_by_earlier_runs` finds of gradients, and that no FORGET op empties, sorted."""
    emptied = {v for op in graph.region_ops(0) if op.kind == FORGET for v in op.writes()}
    left = {
        v for op, values in left_by_earlier_runs(graph).items()
        if _is_gradient(graph, graph.ops[op]) for v in values
    }
    return sorted({graph.values[v].name for v in left - emptied})


def piled_up(graph: Graph, collects: bool) -> List[str]:
    """Names of what each run leaves in a new scope that nobody takes away, sorted: of branches in the main block, and in such
    branches, that keep their scopes for a gradient that is not there. Where the runtime frees dead variables (`collects`), all that is
    left in them is what trips of loops have copied for the like."""
    with_gradient = {region.forward for region in graph.regions}
    kept: Set[int] = set()
    loops: Set[int] = set()
    for region in graph.regions:  # each comes after the one around it
        if not region.keeps_scopes or region.id in with_gradient:
            continue
        around = graph.ops[region.op].region
        if region.kind is RegionKind.BRANCH and around in kept | {0}:
            kept.add(region.id)
        elif region.kind is RegionKind.LOOP and around in kept | loops:
            loops.add(region.id)
    homes = loops if collects else kept
    released = {
        graph.values[v].storage for region in homes for op in graph.region_ops(region)
        if op.kind == RELEASE for v in op.writes()
    }
    if collects:
        left = {copy for region in loops for _, copy in graph.regions[region].arguments}
    else:
        left = {v for region in kept for op in graph.region_ops(region) for v in op.writes()}
    found = (graph.values[v] for v in left)
    return sorted({v.name for v in found if v.region in homes and v.storage not in released})


def _goes_on_with(op: Op) -> Set[int]:
    """Of its results those that its kernel takes for half done if there is something in them, unless they are operands, too."""
    return {op.results[i] for i in op.facts.fresh if i < len(op.results)} - set(op.reads())


def _is_gradient(graph: Graph, op: Op) -> bool:
    if not op.regions:
        return False
    regions = (graph.regions[r] for inner in (op, *graph.inside(op)) for r in inner.regions)
    return any(region.kind is RegionKind.LOOP_GRADIENT for region in regions)


def _is_temporary(value: Value) -> bool:
    """Arrays need not be asked for: the runtime clears them before each run."""
    return value.kind is ValueKind.DENSE and value.region == 0 and not (value.persistable or
                                                                        value.fed)
