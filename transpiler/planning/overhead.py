"""What plans take more time than the untouched program, at other sizes than those that they were made for."""

from __future__ import annotations

from typing import Iterable, Iterator, Mapping

from transpiler.analysis.cost import CostModel
from transpiler.ir import READ_ELEMENT, UNCOPIED, Op
from transpiler.passes.loop_copies import copying_seconds
from transpiler.passes.replay import choice_seconds, is_choice
from transpiler.planning.plans import Plan


def overhead(plan: Plan, cost: CostModel, dims: Mapping[str, int]) -> float:
    """The extra time of a step at `dims`, less that of copies which loops no longer make, as a share of the step.

    As where passes for loops choose by it, what stands in a loop for a copy that is no longer made counts as part of the step.
    """
    marks = (op for op in plan.graph.walk() if op.kind == UNCOPIED and op.region)
    step = cost.region_seconds(plan.original, 0, dims) + _seconds(plan, marks, cost, dims)
    more = extra_seconds(plan, cost, dims) - saved_seconds(plan, cost, dims)
    return more / step if step else 0.0


def extra_seconds(plan: Plan, cost: CostModel, dims: Mapping[str, int]) -> float:
    """Of a step at `dims`, for all that runs again: at the sizes that the plan is for `extra_seconds` and `recomputed.seconds`
    together."""
    return _seconds(plan, _again(plan), cost, dims)


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
    """Clones that compute again, and what stands in for such."""
    for op in plan.graph.walk():
        if op.origin is None:
            if is_choice(op) or op.kind == READ_ELEMENT:
                yield op
        elif op.again:
            yield op


def _seconds(plan: Plan, ops: Iterable[Op], cost: CostModel, dims: Mapping[str, int]) -> float:
    """Of `ops` in all trips of the loops that each is in."""
    total = 0.0
    for op in ops:
        runs = plan.graph.runs_of(op.region).evaluate(dims)
        total += runs * (choice_seconds(plan.graph, op, cost, dims)
                         if is_choice(op) else cost.seconds(plan.graph, op, dims))
    return total
