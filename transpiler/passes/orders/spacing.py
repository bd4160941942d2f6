"""Keeping some ops from running right before others, where that costs (next to) no memory."""

from __future__ import annotations

from typing import List, Sequence

from transpiler.passes.orders.problem import Order, Problem
from transpiler.passes.orders.simulator import peak_bytes

# How many times an op is put off, most first; and how much the peak may grow for it.
_DELAYS = (len, lambda order: 2, lambda order: 1)
_TOLERANCE = 1.005


def keep_apart(problem: Problem, order: Sequence[int], first: Sequence[bool],
               second: Sequence[bool], between: Sequence[bool]) -> Order:
    """`order`, with ops of `first` put off that stand before one of `second` without one of `between` in between.

    One that would again stand before an op of `second` is put off further, as far as memory allows.
    """
    limit = peak_bytes(problem, order) * _TOLERANCE
    for most in _DELAYS:
        candidate = _put_off(problem, order, first, second, between, most(order))
        if peak_bytes(problem, candidate) <= limit:
            return candidate
    return list(order)


def _put_off(problem: Problem, order: Sequence[int], first: Sequence[bool], second: Sequence[bool],
             between: Sequence[bool], most: int) -> Order:
    found: Order = []
    waiting: List[int] = []
    delays = 0
    for op in order:
        needed = not set(waiting).isdisjoint(problem.before[op])
        if waiting and (needed or between[op] or (second[op] and delays >= most)):
            found += waiting
            waiting, delays = [], 0
        if first[op]:
            waiting.append(op)
        else:
            found.append(op)
            delays += bool(waiting)
    return found + waiting
