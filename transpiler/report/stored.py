"""What a report has to know of a plan for questions that nobody may ask."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable, TypeVar

from transpiler.analysis.timeline import Timeline
from transpiler.ir.columns import Columns
from transpiler.planning import Plan

_T = TypeVar('_T')


class StoredPlan:
    """A plan in a few large arrays, without its timelines, which follow from the graphs. As objects it would take several times as much
    for as long as the report is kept, and none of what lies between those could be given back."""

    def __init__(self, plan: Plan) -> None:
        timelines = (plan.before, plan.after)
        # In segments, and for a predictor, what runs is another graph than that of the plan.
        graphs = (plan.original, plan.graph, *(each.graph for each in timelines))
        once = {number: Columns(graph) for number, graph in {id(g): g for g in graphs}.items()}
        self._graphs = [once[id(graph)] for graph in graphs]
        self._told = [(each.lifetimes.runtime, dict(each.dims)) for each in timelines]
        self._least: Callable[[], float] = float
        if plan.recomputed is not None:  # the problem that the bound follows from is as large as a graph
            self._least = least = plan.recomputed.bound()
            plan = replace(plan, recomputed=replace(plan.recomputed, bound=partial(_itself, least)))
        self._rest = Columns(plan, without=('original', 'graph', 'before', 'after'))

    @property
    def plan(self) -> Plan:
        """Made again each time."""
        made = {stored: stored.again() for stored in self._graphs}
        original, graph, *others = (made[stored] for stored in self._graphs)
        before, after = (Timeline(each, *told) for each, told in zip(others, self._told))
        return self._rest.again(original=original, graph=graph, before=before, after=after)

    def least_seconds(self) -> float:
        """That every plan of this peak computes again in the main block."""
        return self._least()

    def later(self, answer: Callable[..., _T], *arguments: Any) -> Callable[..., _T]:
        """`answer`, which takes the plan first, then `arguments`, and then what it is called with."""
        return partial(_answered, self, answer, *arguments)


def _answered(stored: StoredPlan, answer: Callable[..., _T], *arguments: Any) -> _T:
    return answer(stored.plan, *arguments)


def _itself(given: _T) -> _T:
    return given
