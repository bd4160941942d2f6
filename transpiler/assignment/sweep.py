"""Strategies that walk through time once, as a runtime's pool would: O(n log n).

Each has the common signature (ranges, sizes, sharing) -> storages, int64 (n,), and keeps the free
storages sorted by capacity. They differ only in which free storage a new value prefers.
"""
from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import Callable, Iterator, List, Optional, Tuple

import numpy as np

from transpiler.assignment.bounds import sharing_profile
from transpiler.assignment.fits import Held
from transpiler.assignment.ranges import reversed_time
from transpiler.assignment.sharing import Sharing

Free = List[Tuple[int, int]]
Preference = Callable[[Free, int], Iterator[int]]
Strategy = Callable[[np.ndarray, np.ndarray, Optional[Sharing]], np.ndarray]


def _large_enough(free: Free, size: int) -> Iterator[int]:
    """Indices of free storages that hold `size`, closest first."""
    return iter(range(bisect_left(free, (size, -1)), len(free)))


def _closest(free: Free, size: int) -> Iterator[int]:
    """Indices of all free storages by distance to `size`; the larger one where it is a tie."""
    above = bisect_left(free, (size, -1))
    below = above - 1
    while below >= 0 or above < len(free):
        if below < 0 or (above < len(free) and free[above][0] - size <= size - free[below][0]):
            yield above
            above += 1
        else:
            yield below
            below -= 1


def _fitting_then_growing(free: Free, size: int) -> Iterator[int]:
    """Storages that hold `size`, closest first; then smaller ones, closest first."""
    at = bisect_left(free, (size, -1))
    yield from range(at, len(free))
    yield from range(at - 1, -1, -1)


def _sweep(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing], prefer: Preference,
           prepared: List[int]) -> np.ndarray:
    """Assign in order of definition; a storage is free again after its tenant's last use.

    Args:
        prefer: yields indices into the sorted free list, best first; the first that `sharing`
            accepts is taken, and grows if it is too small.
        prepared: capacities, in bytes, of storages that are there from the start.
    """
    storages = np.empty(len(sizes), dtype=np.int64)
    capacity = list(prepared)
    tenants: List[List[int]] = [[] for _ in prepared]
    held: List[Optional[Held]] = [None] * len(prepared)
    free = sorted((size, storage) for storage, size in enumerate(capacity))
    busy: List[Tuple[int, int]] = []
    first, last, bytes_of = ranges[:, 0].tolist(), ranges[:, 1].tolist(), sizes.tolist()
    for value in np.lexsort((-sizes, ranges[:, 0])).tolist():
        while busy and busy[0][0] < first[value]:
            storage = heapq.heappop(busy)[1]
            insort(free, (capacity[storage], storage))
        for at in prefer(free, bytes_of[value]):
            storage = free[at][1]
            if sharing is None or sharing.accepts(value, tenants[storage], held[storage]):
                free.pop(at)
                capacity[storage] = max(capacity[storage], bytes_of[value])
                break
        else:
            storage = len(capacity)
            capacity.append(bytes_of[value])
            tenants.append([])
            held.append(None)
        if sharing is not None:
            tenants[storage].append(value)
            held[storage] = sharing.joined(held[storage], value)
        storages[value] = storage
        heapq.heappush(busy, (last[value], storage))
    return storages


def memory_pool(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing]) -> np.ndarray:
    """Tiers of Paddle's memory pool: the same size; else a larger one, closest first; else new."""
    return _sweep(ranges, sizes, sharing, _large_enough, [])


def closest_size(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing]) -> np.ndarray:
    """The free storage closest in size, larger or smaller, growing it if need be (Caffe2)."""
    return _sweep(ranges, sizes, sharing, _closest, [])


def pool_then_grow(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing]) -> np.ndarray:
    """Best fit; where nothing fits, grow the largest free storage before opening a new one."""
    return _sweep(ranges, sizes, sharing, _fitting_then_growing, [])


def profile_fit(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing]) -> np.ndarray:
    """Best fit into storages prepared with exactly the capacities of the lower bound."""
    profile = sharing_profile(ranges, sizes).tolist()
    return _sweep(ranges, sizes, sharing, _fitting_then_growing, profile)


def backwards(strategy: Strategy) -> Strategy:
    """The same strategy run from the end of the program: other ties, often another result."""

    def run(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing]) -> np.ndarray:
        return strategy(reversed_time(ranges), sizes, sharing)

    run.__name__ = strategy.__name__ + "_backwards"
    return run


def interval_colouring(ranges: np.ndarray, sizes: np.ndarray,
                       sharing: Optional[Sharing]) -> np.ndarray:
    """Fewest storages, sizes not looked at: the storage freed last is taken first.

    For intervals alone the count is the largest number of values alive together, which is optimal.
    """
    storages = np.empty(len(sizes), dtype=np.int64)
    tenants: List[List[int]] = []
    held: List[Optional[Held]] = []
    free: List[int] = []
    busy: List[Tuple[int, int]] = []
    first, last = ranges[:, 0].tolist(), ranges[:, 1].tolist()
    for value in np.argsort(ranges[:, 0], kind="stable").tolist():
        while busy and busy[0][0] < first[value]:
            free.append(heapq.heappop(busy)[1])
        for at in range(len(free) - 1, -1, -1):
            storage = free[at]
            if sharing is None or sharing.accepts(value, tenants[storage], held[storage]):
                free.pop(at)
                break
        else:
            storage = len(tenants)
            tenants.append([])
            held.append(None)
        tenants[storage].append(value)
        held[storage] = sharing.joined(held[storage], value) if sharing else None
        storages[value] = storage
        heapq.heappush(busy, (last[value], storage))
    return storages
