"""The judge of orders where the runtime holds what it has allocated: what the storages take once dead ones are taken over."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import numpy as np

from transpiler.assignment import Fits, assign, sharing_bound
from transpiler.passes.orders.order_problem import OrderProblem

# Up to here an assignment is made for each order; for larger ones its lower bound stands for it, which is nearly always
# reached.
_MOST_ASSIGNED = 16


def storage_bytes(problem: OrderProblem, order: Sequence[int]) -> int:
    """Bytes of all storages of the region after `order`, and the most that a nested region takes on top."""
    ranges, sizes = live_ranges(problem, order)
    if len(sizes) <= _MOST_ASSIGNED:
        fits = Fits.of_sizes(sizes.tolist(), ranges[:, 0]) if len(sizes) else None
        held = assign(ranges, sizes, seconds=0, fits=fits).total_bytes
    else:
        held = sharing_bound(ranges, sizes)
    kept = most = 0
    for op in order:
        most = max(most, kept + problem.transient[op])
        kept += problem.leaves[op] - problem.collects[op]
    return held + max(most, kept)


def live_ranges(problem: OrderProblem, order: Sequence[int]) -> Tuple[np.ndarray, np.ndarray]:
    """int64 (n, 2) inclusive positions in `order`, and int64 (n,) bytes, of the cells that exist at some time."""
    position = {op: at for at, op in enumerate(order)}
    ranges: List[Tuple[int, int]] = []
    sizes: List[int] = []
    for cell, users in enumerate(problem.users):
        if not users and not problem.from_start[cell]:
            continue
        at = [position[op] for op in users]
        first = 0 if problem.from_start[cell] else min(at)
        last = len(problem) if problem.to_end[cell] else max(at, default=0)
        ranges.append((first, last))
        sizes.append(problem.sizes[cell])
    return np.array(ranges, dtype=np.int64).reshape(-1, 2), np.array(sizes, dtype=np.int64)
