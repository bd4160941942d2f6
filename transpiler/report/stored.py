"""What a report has to know of a plan for questions that nobody may ask."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable, TypeVar

from transpiler.analysis.segments import in_segments
from transpiler.analysis.timeline import Timeline
from transpiler.ir.packed import Packed
from transpiler.planning import Plan

_T = TypeVar('_T')


class StoredPlan:
    """A plan in a few large arrays, without its timelines, which follow from the graphs. As objects it would take several times as much
    for as long as the report is kept, and none of what lies between those could be given back."""

    def __init__(self, plan: Plan) -> None:
        self._original = Packed(plan.original)
        self._graph = None if plan.graph is plan.original else Packed(plan.graph)
        self._runtime = plan.before.lifetimes.runtime
        self._dims = dict(plan.before.dims), dict(plan.after.dims)
        self._segments = plan.segments
        self._least: Callable[[], float] = float
        if plan.recomputed is not None:  # the problem that the bound follows from is as large as a graph
            self._least = least = plan.recomputed.bound()
            plan = replace(plan, recomputed=replace(plan.recomputed, bound=lambda: least))
        self._rest = Packed(plan, without=('original', 'graph', 'before', 'after'))

    @property
    def plan(self) -> Plan:
        """Made again each time."""
        original = self._original.again()
        graph = original if self._graph is None else self._graph.again()
        before, after = self._dims
        cut = in_segments(graph, self._segments, self._runtime, after) if self._segments else None
        return self._rest.again(original=original,
                                graph=graph,
                                before=Timeline(original, self._runtime, before),
                                after=cut or Timeline(graph, self._runtime, after))

    def least_seconds(self) -> float:
        """That every plan of this peak computes again in the main block."""
        return self._least()

    def later(self, answer: Callable[..., _T], *arguments: Any) -> Callable[..., _T]:
        """`answer`, which takes the plan first, then `arguments`, and then what it is called with."""
        return partial(_answered, self, answer, *arguments)


def _answered(stored: StoredPlan, answer: Callable[..., _T], *arguments: Any) -> _T:
    return answer(stored.plan, *arguments)
