"""A lower bound on the time that any plan needs to stay under a peak.

Where the backward part begins, every value that it reads is either in memory or will be computed again. So a choice of
values to keep that fits into the peak, with all that must be computed for the others, costs no more than the plan: the
weighted version of that choice is a minimum cut (as in `recompute.py`), and weak Lagrangian duality gives, for every price
of a byte, a bound.
"""

from __future__ import annotations

import math
from typing import Dict, Hashable, List, Set, Tuple

from ortools.graph.python.max_flow import SimpleMaxFlow

from transpiler.passes.remat.problem import RematProblem

# Capacities are integers: one unit is a nanosecond.
_UNITS = 1e9
_ROUNDS = 8
_PRICES = (1e-14, 1e-8)  # seconds a byte
_MOST_OPS = 20_000
_INFINITE = 1 << 50


def least_seconds(problem: RematProblem, peak: int) -> float:
    """Seconds that every plan with at most `peak` bytes computes again, at least; 0 where it is not worth finding out."""
    if not 0 < problem.boundary <= _MOST_OPS:
        return 0.0
    needed, fixed = _at_boundary(problem)
    room = peak - fixed
    if sum(problem.memory.sizes[c] for c in needed) <= room:
        return 0.0
    best, (low, high) = 0.0, _PRICES
    for _ in range(_ROUNDS):
        price = math.sqrt(low * high)
        value, kept = _cut(problem, needed, price)
        best = max(best, value - price * room)
        low, high = (price, high) if kept > room else (low, price)
    return best


def _at_boundary(problem: RematProblem) -> Tuple[Set[int], int]:
    """Cells that live across the boundary and may be dropped, and the bytes of those that may not."""
    needed, fixed = set(), 0
    for cell, users in enumerate(problem.memory.users):
        crosses = users and users[0] < problem.boundary <= users[-1]
        if not crosses and not (problem.memory.from_start[cell] and problem.memory.to_end[cell]):
            continue
        if problem.producer[cell] >= 0:
            needed.add(cell)
        else:
            fixed += problem.memory.sizes[cell]
    return needed, fixed


def _cut(problem: RematProblem, needed: Set[int], price: float) -> Tuple[float, int]:
    """The least of seconds computed again plus bytes kept at `price`, and the bytes kept."""
    network = _Network()
    pending: List[int] = sorted(needed)
    seen: Set[int] = set(needed)
    for cell in needed:
        network.arc(('had', cell), 'sink', _INFINITE)
    while pending:
        cell = pending.pop()
        op = problem.producer[cell]
        network.arc(('made', cell), ('had', cell), int(problem.memory.sizes[cell] * price * _UNITS))
        network.arc(('op', op), ('made', cell), _INFINITE)
        if not network.knows(('cost', op)):
            network.arc('source', ('cost', op), int(problem.seconds[op] * _UNITS))
            network.arc(('cost', op), ('op', op), _INFINITE)
        for operand in problem.operands[op]:
            if problem.producer[operand] < 0:
                continue  # taken as there for nothing: a bound may be too low, never too high
            network.arc(('had', operand), ('op', op), _INFINITE)
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    value, reached = network.solve()
    kept = (c for c in seen if ('made', c) in reached and ('had', c) not in reached)
    return value / _UNITS, sum(problem.memory.sizes[c] for c in kept)


class _Network:
    """A flow network whose nodes have names."""

    def __init__(self) -> None:
        self._flow = SimpleMaxFlow()
        self._number: Dict[Hashable, int] = {'source': 0, 'sink': 1}

    def knows(self, node: Hashable) -> bool:
        return node in self._number

    def arc(self, tail: Hashable, head: Hashable, capacity: int) -> None:
        a, b = (self._number.setdefault(n, len(self._number)) for n in (tail, head))
        self._flow.add_arc_with_capacity(a, b, capacity)

    def solve(self) -> Tuple[int, Set[Hashable]]:
        """The value of a minimum cut, and the nodes on the source's side."""
        self._flow.solve(0, 1)
        side = set(self._flow.get_source_side_min_cut())
        return self._flow.optimal_flow(), {n for n, i in self._number.items() if i in side}
