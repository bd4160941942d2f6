"""When no order needs less: what is there while an op of the peak runs has to be there then, whatever the order."""

from __future__ import annotations

from itertools import islice
from typing import List, Sequence, Set

from transpiler.passes.orders.order_problem import OrderProblem
from transpiler.passes.orders.simulator import profile

# Ops of the peak that are looked at: each takes time with the size of the problem.
_MOST_LOOKED_AT = 4


def is_least(problem: OrderProblem, order: Sequence[int], peak: int) -> bool:
    """Whether it is sure that no order needs less than `peak` bytes, which `order` does: False where that is not seen.

    An op needs in each order at least what it must; so only those can tell that need the peak in this one.
    """
    at_peak = (op for op, there in zip(order, profile(problem, order)) if there >= peak)
    return any(bytes_at_least(problem, op) >= peak for op in islice(at_peak, _MOST_LOOKED_AT))


def bytes_at_least(problem: OrderProblem, op: int) -> int:
    """Bytes while `op` runs that no order avoids: what it touches, handed on in place only once; and what comes from before it or
    from ops that it waits for, and goes on to ops that wait for it or to the end."""
    earlier, later = _reached(problem.before, op), _reached(problem.after, op)
    handed_on = sum(problem.sizes[result] for _, result in problem.pairs[op])
    left = sum(problem.leaves[each] for each in earlier)
    taken = sum(
        problem.collects[each] for each in range(len(problem)) if each not in later and each != op)
    there = _from_before(problem, op, earlier) & _for_later(problem, op, later)
    return (sum(problem.sizes[cell] for cell in there) - handed_on + problem.transient[op] + left -
            taken)


def _from_before(problem: OrderProblem, op: int, earlier: Set[int]) -> Set[int]:
    cells = {cell for cell, there in enumerate(problem.from_start) if there}
    return cells.union(problem.touches[op], *(problem.touches[each] for each in earlier))


def _for_later(problem: OrderProblem, op: int, later: Set[int]) -> Set[int]:
    cells = {cell for cell, stays in enumerate(problem.to_end) if stays}
    return cells.union(problem.touches[op], *(problem.touches[each] for each in later))


def _reached(neighbours: Sequence[List[int]], start: int) -> Set[int]:
    found: Set[int] = set()
    left = list(neighbours[start])
    while left:
        op = left.pop()
        if op not in found:
            found.add(op)
            left.extend(neighbours[op])
    return found
