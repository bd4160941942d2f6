"""What plans take more time than the untouched program, at other sizes than those that they were made for."""

from __future__ import annotations

from typing import Iterator, Mapping

from transpiler.analysis.cost import CostModel
from transpiler.ir import READ_ELEMENT, Graph, Op
from transpiler.passes.loop_copies import copying_seconds
from transpiler.passes.replay import choice_seconds, is_choice
from transpiler.planning.plans import Plan


def overhead(plan: Plan, cost: CostModel, dims: Mapping[str, int]) -> float:
    """The extra time of a step at `dims`, less that of copies which loops no longer make, as a share of the untouched step."""
    step = cost.region_seconds(plan.original, 0, dims)
    more = extra_seconds(plan, cost, dims) - saved_seconds(plan, cost, dims)
    return more / step if step else 0.0


def extra_seconds(plan: Plan, cost: CostModel, dims: Mapping[str, int]) -> float:
    """Of a step at `dims`, for all that runs again: at the sizes that the plan is for `extra_seconds` and `recomputed.seconds`
    together. As there, of loops in loops one trip of the outer ones is counted."""
    return sum(
        _seconds(plan.graph, op, cost, dims) *
        (plan.graph.regions[op.region].trips.evaluate(dims) if op.region else 1)
        for op in _again(plan))


def saved_seconds(plan: Plan, cost: CostModel, dims: Mapping[str, int]) -> float:
    """Of a step at `dims`, for what loops no longer copy into each trip, read or not."""
    total = 0.0
    for before, after in zip(plan.original.regions, plan.graph.regions):
        dropped = [
            outer for outer, inner in before.arguments if (outer, inner) not in after.arguments
        ]
        if before.keeps_scopes:
            total += sum(copying_seconds(plan.original, before, v, cost, dims) for v in dropped)
    return total


def _again(plan: Plan) -> Iterator[Op]:
    """Clones of forward ops, which are of the backward part, and what stands in for such."""
    for op in plan.graph.walk():
        if op.origin is None:
            if is_choice(op) or op.kind == READ_ELEMENT:
                yield op
        elif op.backward and not plan.original.ops[op.origin].backward:
            yield op


def _seconds(graph: Graph, op: Op, cost: CostModel, dims: Mapping[str, int]) -> float:
    return choice_seconds(graph, op, cost, dims) if is_choice(op) else cost.seconds(graph, op, dims)
