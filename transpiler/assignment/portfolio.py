"""`assign`: run several strategies, keep the smallest, say how far from the optimum it can be."""
from __future__ import annotations

import time
from typing import Dict, List, Optional, Tuple

import numpy as np

from transpiler.assignment import exact_sharing
from transpiler.assignment.bounds import sharing_bound
from transpiler.assignment.fits import Fits
from transpiler.assignment.greedy import banded, largest_first, largest_longest_first
from transpiler.assignment.jit import compiled
from transpiler.assignment.ranges import (ArrayLike, Assignment, checked, renumbered, storage_sizes,
                                          total_bytes)
from transpiler.assignment.sharing import MayShare, Sharing
from transpiler.assignment.sweep import (Strategy, backwards, closest_size, interval_colouring,
                                         memory_pool, pool_then_grow, profile_fit)

EXACT_COUNT = 5_000
QUADRATIC_COUNT = 3_000


def strategies() -> Dict[str, Strategy]:
    """Every greedy strategy by name; all have the signature (ranges, sizes, sharing) -> storages.

    Each takes int64 (n, 2) ranges and int64 (n,) sizes in bytes and returns int64 (n,).
    """
    members = [
        memory_pool, closest_size, pool_then_grow, profile_fit, interval_colouring,
        backwards(memory_pool),
        backwards(closest_size),
        backwards(pool_then_grow),
        backwards(profile_fit)
    ]
    members += fillers()
    return {member.__name__: member for member in members}


def fillers() -> List[Strategy]:
    """The strategies that look at what overlaps: quadratic under constraints or uncompiled."""
    bands = [banded(ratio, phase) for ratio in (1.1, 1.2, 1.35, 1.5, 2.0) for phase in (0.0, 0.5)]
    return [largest_first, largest_longest_first] + bands


def affordable(count: int, constrained: bool) -> Dict[str, Strategy]:
    """The strategies that stay fast (seconds) for `count` values."""
    chosen = strategies()
    if count > QUADRATIC_COUNT and (constrained or not compiled()):
        for filler in fillers():
            del chosen[filler.__name__]
    return chosen


def assign(ranges: ArrayLike,
           sizes: ArrayLike,
           may_share: MayShare = None,
           seconds: float = 10.0,
           bound: Optional[int] = None,
           fits: Optional[Fits] = None) -> Assignment:
    """The smallest whole-storage assignment that any strategy finds.

    Never worse than any member of `affordable(n, ...)`. Values of 0 bytes get a storage each.

    Args:
        ranges: int (n, 2), inclusive [first, last] positions (see `ranges.py`).
        sizes: int (n,), bytes.
        may_share: further constraints on pairs (see `Sharing.of`).
        seconds: time box of the exact search, which runs only where a gap is left; with 0, only the part of it
            that a clock cannot end, so that every machine gets the same plan.
        bound: a lower bound in bytes that the caller knows (e.g. of `parallel_safe_bound`).
        fits: which sets of values one storage can be made for, where sizes are not known to the byte; a kind that
            holds another has at least its bytes in `sizes`.

    Raises:
        ValueError: for malformed input.
    """
    started = time.monotonic()
    range_array, size_array = checked(ranges, sizes)
    solid = np.flatnonzero(size_array)
    sharing = Sharing.of(may_share, len(size_array), fits)
    storages, best_bound, name = _best(range_array[solid], size_array[solid],
                                       None if sharing is None else sharing.restricted(solid),
                                       seconds, bound or 0)
    everyone = np.arange(len(size_array), dtype=np.int64) + len(solid)
    everyone[solid] = storages
    everyone = renumbered(everyone)
    return Assignment(storages=everyone,
                      storage_sizes=storage_sizes(everyone, size_array),
                      total_bytes=total_bytes(storages, size_array[solid]),
                      bound=best_bound,
                      strategy=name,
                      seconds=time.monotonic() - started)


def _best(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing], seconds: float,
          known_bound: int) -> Tuple[np.ndarray, int, str]:
    """(storages, bound, strategy) over all affordable strategies and the exact search."""
    bound = max(known_bound, sharing_bound(ranges, sizes))
    best, best_total, best_name = np.arange(len(sizes), dtype=np.int64), int(sizes.sum()), "none"
    for name, strategy in affordable(len(sizes), sharing is not None).items():
        if best_total == bound:
            break
        storages = strategy(ranges, sizes, sharing)
        total = total_bytes(storages, sizes)
        if total < best_total:
            best, best_total, best_name = storages, total, name
    if best_total > bound and len(sizes) <= EXACT_COUNT:
        improved, bound = exact_sharing.solve(ranges, sizes, sharing, best, bound, seconds)
        if total_bytes(improved, sizes) < best_total:
            best, best_name = improved, "exact"
    return best, bound, best_name
