"""What a report has to know of a plan for questions that nobody may ask."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any, Callable, TypeVar

from transpiler.planning import Plan

_T = TypeVar('_T')


class StoredPlan:
    """A plan in bytes, in one piece. As objects its graphs and timelines take some six times as much, for as long as the report is
    kept. Not compressed: zlib crashes in a process that has loaded Paddle first, which has another of its own."""

    def __init__(self, plan: Plan) -> None:
        self._contents = pickle.dumps(plan, pickle.HIGHEST_PROTOCOL)

    @property
    def plan(self) -> Plan:
        """Made again each time."""
        return pickle.loads(self._contents)

    def later(self, answer: Callable[..., _T], *arguments: Any) -> Callable[..., _T]:
        """`answer`, which takes the plan first, then `arguments`, and then what it is called with."""
        return partial(_answered, self, answer, *arguments)


def _answered(stored: StoredPlan, answer: Callable[..., _T], *arguments: Any) -> _T:
    return answer(stored.plan, *arguments)
