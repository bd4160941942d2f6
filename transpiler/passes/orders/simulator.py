"""Bytes of an order: while it is built, one op after the other, and of a whole one."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import numpy

from transpiler.analysis.memory_profile import Touches, memory_profile, turnover
from transpiler.passes.orders.order_problem import OrderProblem


class Simulator:
    """What ops would cost while an order is being built, one op at a time."""

    def __init__(self, problem: OrderProblem) -> None:
        self._problem = problem
        self.remaining = [len(users) for users in problem.users]
        self.exists = list(problem.from_start)

    def cost(self, op: int) -> Tuple[int, int]:
        """Bytes that running `op` now adds while it runs, and those that it adds for good (often below zero)."""
        problem, exists, remaining, to_end = (self._problem, self.exists, self.remaining,
                                              self._problem.to_end)
        touched, sizes = problem.touches[op], problem.sizes
        if problem.pairs[op]:
            born = [cell for cell in touched if not exists[cell]]
            dying = [cell for cell in touched if remaining[cell] == 1 and not to_end[cell]]
            allocated, freed = turnover(sizes, born, dying, problem.pairs[op])
        else:  # the same, for most ops
            allocated = freed = 0
            for cell in touched:
                if not exists[cell]:
                    allocated += sizes[cell]
                if remaining[cell] == 1 and not to_end[cell]:
                    freed += sizes[cell]
        kept = problem.leaves[op] - problem.collects[op]
        return allocated + problem.transient[op], allocated - freed + kept

    def touch(self, op: int) -> List[int]:
        """Runs `op`. Returns the cells that come into being."""
        exists, remaining = self.exists, self.remaining
        born: List[int] = []
        for cell in self._problem.touches[op]:
            remaining[cell] -= 1
            if not exists[cell]:
                exists[cell] = True
                born.append(cell)
        return born


def peak_bytes(problem: OrderProblem, order: Sequence[int]) -> int:
    """Bytes at the peak of `order`, above what exists outside of the region."""
    return max(profile(problem, order), default=0)


def profile(problem: OrderProblem, order: Sequence[int]) -> List[int]:
    """Bytes while each op of `order` runs."""
    at = list(order)
    sizes, from_start, to_end, during, left = problem.once('arrays', problem.arrays)
    steps = [(step, a, b) for step, op in enumerate(at) for a, b in problem.pairs[op]]
    pairs = tuple(numpy.array(steps, numpy.int64).reshape(-1, 3).T)
    touches = Touches([problem.touches[op] for op in at])
    found = memory_profile(touches, sizes, from_start, to_end, pairs, during[at], left[at])
    return found.bytes.astype(numpy.int64).tolist()


def bytes_at_start(problem: OrderProblem) -> int:
    """Bytes of what is there before the first op."""
    return sum(size for size, there in zip(problem.sizes, problem.from_start) if there)
