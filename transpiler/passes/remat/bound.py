"""A lower bound on the time that any plan needs to stay under a peak.

Where the backward part begins, every value that it reads is either in memory or will be computed again. So a choice of
values to keep that fits into the peak, with all that must be computed for the others, costs no more than the plan: the
weighted version of that choice is a minimum cut (as in `recompute.py`), and weak Lagrangian duality gives, for every price
of a byte, a bound.
"""

from __future__ import annotations

import math
from typing import List, Set, Tuple

import numpy
from transpiler.passes.min_cut import FIRST, INFINITE, SINK, SOURCE, min_cut
from transpiler.passes.remat.remat_problem import RematProblem

# Capacities are integers: one unit is a nanosecond.
_UNITS = 1e9
_ROUNDS = 8
_PRICES = (1e-14, 1e-8)  # seconds a byte
_MOST_OPS = 20_000


def least_seconds(problem: RematProblem, peak: int) -> float:
    """Seconds that every plan with at most `peak` bytes computes again, at least; 0 where it is not worth finding out."""
    if not 0 < problem.boundary <= _MOST_OPS:
        return 0.0
    needed, fixed = _at_boundary(problem)
    room = peak - fixed
    if sum(problem.memory.sizes[c] for c in needed) <= room:
        return 0.0
    best, (low, high) = 0.0, _PRICES
    network = _Network(problem, needed)
    for _ in range(_ROUNDS):
        price = math.sqrt(low * high)
        value, kept = network.cut(price)
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


class _Network:
    """The flow network of all that the cells of `needed` may be made from; every price of a byte has its own capacities.

    From the source to each op, whose seconds it cuts to run it again; on to the cells that it makes; from there, for the
    price of the cell, to who has it: the sink, or the ops that read it.
    """

    def __init__(self, problem: RematProblem, needed: Set[int]) -> None:
        cells = _made_from(problem, needed)
        number = {cell: at for at, cell in enumerate(cells)}
        ops = list(dict.fromkeys(problem.producer[cell] for cell in cells))
        node = {op: FIRST + 2 * len(cells) + at for at, op in enumerate(ops)}
        self._made = FIRST + numpy.arange(len(cells))
        self._had = self._made + len(cells)
        had = FIRST + len(cells)
        forced = [(node[problem.producer[cell]], FIRST + at) for cell, at in number.items()]
        forced += [(had + number[cell], SINK) for cell in needed]
        forced += [(had + number[operand], node[op])
                   for op in ops
                   for operand in problem.operands[op]
                   if operand in number]
        tails, heads = numpy.array(forced, numpy.int64).T
        sources = numpy.full(len(ops), SOURCE)
        self._tails = numpy.concatenate((tails, sources, self._made))
        self._heads = numpy.concatenate((heads, list(node.values()), self._had))
        self._forced = numpy.full(len(forced), INFINITE)
        self._spent = (numpy.array([problem.seconds[op] for op in ops]) * _UNITS).astype(
            numpy.int64)
        self._sizes = numpy.array([problem.memory.sizes[cell] for cell in cells], numpy.int64)

    def cut(self, price: float) -> Tuple[float, int]:
        """The least of seconds computed again plus bytes kept at `price`, and the bytes kept."""
        kept = (self._sizes * price * _UNITS).astype(numpy.int64)
        capacities = numpy.concatenate((self._forced, self._spent, kept))
        found = min_cut(self._tails, self._heads, capacities)
        reached = numpy.zeros(self._heads.max() + 1, bool)
        reached[list(found.before)] = True
        cut = reached[self._made] & ~reached[self._had]
        return found.value / _UNITS, int(self._sizes[cut].sum())


def _made_from(problem: RematProblem, needed: Set[int]) -> List[int]:
    """`needed`, and the cells that they may be made from. The others are taken as there for nothing: a bound may be too
    low, never too high."""
    found = dict.fromkeys(sorted(needed))
    pending = list(found)
    while pending:
        for operand in problem.operands[problem.producer[pending.pop()]]:
            if operand not in found and problem.producer[operand] >= 0:
                found[operand] = None
                pending.append(operand)
    return list(found)
