"""Keeping some ops from running right before others, where that costs (next to) no memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence

from transpiler.passes.orders.order_problem import Order, OrderProblem
from transpiler.passes.orders.simulator import peak_bytes

# How many times an op is put off, most first; and how much the peak may grow for it.
_DELAYS = (len, lambda order: 2, lambda order: 1)
_TOLERANCE = 1.005


@dataclass(frozen=True)
class Kinds:
    """By op: whether it is one of those that are put off, one that none of them should run right before, or one that makes
    it good if it runs in between."""

    first: Sequence[bool]
    second: Sequence[bool]
    between: Sequence[bool]

    def meet(self, order: Sequence[int]) -> bool:
        """Whether in `order` an op of `first` stands before one of `second`, with none of `between` in between."""
        open_first = False
        for op in order:
            if open_first and self.second[op]:
                return True
            open_first = self.first[op] or (open_first and not self.between[op])
        return False


def keep_apart(problem: OrderProblem, order: Sequence[int], kinds: Kinds) -> Order:
    """`order`, with ops of `first` put off that stand before one of `second` without one of `between` in between.

    One that would again stand before an op of `second` is put off further, as far as memory allows.
    """
    if not kinds.meet(order):
        return list(order)
    limit = peak_bytes(problem, order) * _TOLERANCE
    for most in _DELAYS:
        candidate = _put_off(problem, order, kinds, most(order))
        if peak_bytes(problem, candidate) <= limit:
            return candidate
    return list(order)


def _put_off(problem: OrderProblem, order: Sequence[int], kinds: Kinds, most: int) -> Order:
    found: Order = []
    waiting: List[int] = []
    delays = 0
    for op in order:
        needed = not set(waiting).isdisjoint(problem.before[op])
        if waiting and (needed or kinds.between[op] or (kinds.second[op] and delays >= most)):
            found += waiting
            waiting, delays = [], 0
        if kinds.first[op]:
            waiting.append(op)
        else:
            found.append(op)
            delays += bool(waiting)
    return found + waiting
