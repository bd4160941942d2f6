"""What a report has to know of a plan for questions that nobody may ask."""

from __future__ import annotations

import pickle
import zlib
from functools import partial
from typing import Any, Callable, TypeVar

from transpiler.planning import Plan

_T = TypeVar('_T')
_FAST = 1  # of 9


class StoredPlan:
    """A plan in bytes. As objects its graphs and timelines take some ten times as much, for as long as the report is kept, and lie
    in as many places of the heap, none of which can be given back."""

    def __init__(self, plan: Plan) -> None:
        self._contents = zlib.compress(pickle.dumps(plan, pickle.HIGHEST_PROTOCOL), _FAST)

    @property
    def plan(self) -> Plan:
        """Made again each time."""
        return pickle.loads(zlib.decompress(self._contents))

    def later(self, answer: Callable[..., _T], *arguments: Any) -> Callable[..., _T]:
        """`answer`, which takes the plan first, then `arguments`, and then what it is called with."""
        return partial(_answered, self, answer, *arguments)


def _answered(stored: StoredPlan, answer: Callable[..., _T], *arguments: Any) -> _T:
    return answer(stored.plan, *arguments)
