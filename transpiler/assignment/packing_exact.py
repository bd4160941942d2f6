"""Offsets within a given capacity, by exact search in rounds of growing effort."""
from __future__ import annotations

import time
from typing import Iterator, Optional, Tuple

import numpy as np

from transpiler.assignment.jit import compiled
from transpiler.assignment.ranges import sections

FIRST_ROUND_NODES = 20_000
# Closer than this to a capacity that could not be decided in time the search ends.
WORTHWHILE = 5e-4


def largest_instance() -> int:
    """Most values that the exact search takes on: its kernel recurses once a value."""
    return 1_000 if compiled() else 250


def fit(ranges: np.ndarray, sizes: np.ndarray, capacity: int,
        deadline: float) -> Tuple[Optional[np.ndarray], bool]:
    """Find offsets with every top at most `capacity`.

    The search is restarted under several rankings with twice the nodes each time: run times of one
    ranking are heavy-tailed, and minimalloc's authors likewise alternate between rankings.

    Args:
        ranges: int64 (n, 2), inclusive; sizes: int64 (n,), positive; any unit.
        deadline: of `time.monotonic()`, checked between the rounds.

    Returns:
        (offsets or None, decided): `decided` is False if time ran out first.
    """
    from transpiler.assignment.packing_kernel import INFEASIBLE, SOLVED, search
    if len(sizes) > largest_instance():
        return None, False
    begin, end, count = sections(ranges)
    totals = np.zeros(count + 1, dtype=np.int64)
    np.add.at(totals, begin, sizes)
    np.add.at(totals, end + 1, -sizes)
    totals = np.cumsum(totals)[:-1]
    nodes = FIRST_ROUND_NODES if compiled() else FIRST_ROUND_NODES // 20
    while time.monotonic() < deadline:
        for rank in _rankings(ranges, sizes, begin, end, totals):
            low = np.zeros(len(sizes), dtype=np.int64)
            trail = np.empty((len(sizes) * (len(sizes) + 1), 2), dtype=np.int64)
            status = search(0, count - 1, np.arange(len(sizes)), -1, -1, begin, end, sizes, rank,
                            low, np.zeros(len(sizes), dtype=np.bool_), totals.copy(), trail,
                            np.array([0, nodes]), capacity)
            if status == SOLVED:
                return low, True
            if status == INFEASIBLE:
                return None, True
            if time.monotonic() >= deadline:
                break
        nodes *= 2
    return None, False


def _rankings(ranges: np.ndarray, sizes: np.ndarray, begin: np.ndarray, end: np.ndarray,
              totals: np.ndarray) -> Iterator[np.ndarray]:
    """Ranks int64 (n,), 0 first: falling by (T)otal of the fullest section, (W)idth, (A)rea."""
    fullest = np.array([totals[b:e + 1].max() for b, e in zip(begin, end)])
    width = ranges[:, 1] - ranges[:, 0] + 1
    keys = {"T": fullest, "W": width, "A": width * sizes, "Z": sizes}
    for letters in ("TWA", "ATW", "TAW", "WTA", "ZTW"):
        order = np.lexsort([-keys[letter] for letter in reversed(letters)])
        rank = np.empty(len(sizes), dtype=np.int64)
        rank[order] = np.arange(len(sizes))
        yield rank


def lowest(ranges: np.ndarray, sizes: np.ndarray, offsets: np.ndarray, bound: int,
           deadline: float) -> Tuple[np.ndarray, int]:
    """Improve `offsets` by decisions at fixed capacities, from the bound upwards.

    A decision at a capacity is far easier than minimising the height. First the bound itself gets
    half the time; then capacities that split what is left of the gap.

    Returns:
        (offsets, bound): at most as high as given, and a bound at least as high as given.
    """
    height = int((offsets + sizes).max())
    capacity = floor = bound
    while height > bound and capacity < height and time.monotonic() < deadline:
        remaining = deadline - time.monotonic()
        found, decided = fit(ranges, sizes, capacity, time.monotonic() + remaining / 2)
        if found is not None:
            offsets, height = found, int((found + sizes).max())
        else:
            floor = capacity + 1
            # What was not decided may still exist: only a proof moves the bound.
            bound = floor if decided else bound
        if height - floor <= height * WORTHWHILE and bound < floor:
            break
        capacity = floor + (height - floor) // 2
    return offsets, bound
