"""Largest-first strategies: values by falling size, each into a storage with room in time.

The first tenant of a storage is its largest, so a later one never makes it grow: the cost of an
order is the sum of the values that open a storage.
"""
from __future__ import annotations

from typing import List, Optional

import numpy as np

from transpiler.assignment.fits import Held
from transpiler.assignment.ranges import sections
from transpiler.assignment.sharing import Sharing, conflict_matrix
from transpiler.assignment.sweep import Strategy

# Up to here the plain loop takes less time than importing the compiled one.
SMALL_COUNT = 400


def fill_in_order(order: np.ndarray, ranges: np.ndarray, sharing: Optional[Sharing]) -> np.ndarray:
    """In `order`, each value into the newest storage that it fits into, else a new one.

    Args:
        order: int64 (n,), a permutation of the values.

    Returns:
        int64 (n,) storages. O(n^2) under `sharing` and for few values; else
        O(n log n + overlapping pairs).
    """
    if sharing is None and len(order) > SMALL_COUNT:
        from transpiler.assignment.overlap_kernel import fill_storages
        begin, end, count = sections(ranges)
        return fill_storages(order, begin, end, count)
    conflicts = conflict_matrix(ranges, sharing)
    fits = None if sharing is None else sharing.fits
    storages = np.empty(len(order), dtype=np.int64)
    blocked = np.empty_like(conflicts)  # by storage, the values that none of its tenants bears
    held: List[Optional[Held]] = []
    for value in order.tolist():
        free = np.flatnonzero(~blocked[:len(held), value])[::-1].tolist()
        fitting = (s for s in free if fits is None or fits.joined(held[s], value) is not None)
        storage = next(fitting, len(held))
        if storage == len(held):
            blocked[storage] = conflicts[value]
            held.append(None)
        else:
            blocked[storage] |= conflicts[value]
        held[storage] = fits.joined(held[storage], value) if fits else None
        storages[value] = storage
    return storages


def largest_first(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing]) -> np.ndarray:
    """By falling size; equal sizes in order of definition, which colours them optimally."""
    return fill_in_order(np.lexsort((ranges[:, 0], -sizes)), ranges, sharing)


def largest_longest_first(ranges: np.ndarray, sizes: np.ndarray,
                          sharing: Optional[Sharing]) -> np.ndarray:
    """By falling size; equal sizes by falling life time: what is hard to place goes first."""
    lifetime = ranges[:, 1] - ranges[:, 0]
    return fill_in_order(np.lexsort((ranges[:, 0], -lifetime, -sizes)), ranges, sharing)


def banded(ratio: float, phase: float) -> Strategy:
    """Largest first by bands of sizes, each in order of definition.

    Strict falling size hops about in time and leaves storages full of useless holes where sizes
    are all different (three times the bound on 100,000 random values); within a band of sizes that
    differ by less than `ratio`, time order packs tightly and wastes at most that ratio.

    Args:
        ratio: above 1, between the limits of a band.
        phase: 0 to 1, shifts the limits by that share of a band.
    """

    def run(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing]) -> np.ndarray:
        band = np.floor(np.log(np.maximum(sizes, 1)) / np.log(ratio) + phase)
        return fill_in_order(np.lexsort((ranges[:, 0], -band)), ranges, sharing)

    run.__name__ = f"banded_{ratio:g}_{phase:g}"
    return run
