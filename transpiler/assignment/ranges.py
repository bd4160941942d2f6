"""What travels between the stages: live ranges in, assignments and packings out.

Convention, used by every module of this package: `ranges` is an int64 array of shape (n, 2) whose
row i is (first, last), the *inclusive* op positions from the definition of value i to its last
use. An op's inputs and outputs live together, so values whose ranges meet in a single position may
not share memory: [0, 3] and [3, 5] conflict, [0, 3] and [4, 5] do not. `sizes` is int64 of shape
(n,), in bytes.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence, Tuple, Union

import numpy as np

ArrayLike = Union[np.ndarray, Sequence]


@dataclass(frozen=True)
class Assignment:
    """Whole-storage sharing: which values live in the same storage.

    Attributes:
        storages: int64 (n,), the storage of each value, numbered 0..m-1 in order of first use.
        storage_sizes: int64 (m,), bytes of each storage: its largest tenant.
        total_bytes: the sum of `storage_sizes`.
        bound: bytes below which no assignment can go.
        strategy: name of the strategy that found it.
        seconds: time spent by everything that took part in the choice.
    """
    storages: np.ndarray
    storage_sizes: np.ndarray
    total_bytes: int
    bound: int
    strategy: str
    seconds: float

    @property
    def gap(self) -> float:
        """How far above the bound, as a fraction of the bound; 0.0 where nothing is stored."""
        return self.total_bytes / self.bound - 1.0 if self.bound else 0.0

    @property
    def proved(self) -> bool:
        """Whether the assignment is known to be the smallest possible."""
        return self.total_bytes == self.bound


@dataclass(frozen=True)
class Packing:
    """Offsets in one arena.

    Attributes:
        offsets: int64 (n,), bytes from the arena's begin, multiples of the alignment.
        height: bytes of the arena: the largest offset plus size.
        bound: bytes below which no packing can go.
        strategy: name of the search that found it.
        seconds: time spent by everything that took part in the choice.
    """
    offsets: np.ndarray
    height: int
    bound: int
    strategy: str
    seconds: float

    @property
    def gap(self) -> float:
        """How far above the bound, as a fraction of the bound; 0.0 where nothing is stored."""
        return self.height / self.bound - 1.0 if self.bound else 0.0

    @property
    def proved(self) -> bool:
        """Whether the packing is known to be the lowest possible."""
        return self.height == self.bound


def checked(ranges: ArrayLike, sizes: ArrayLike) -> Tuple[np.ndarray, np.ndarray]:
    """`ranges` as int64 (n, 2) and `sizes` as int64 (n,).

    Raises:
        ValueError: if the shapes disagree, a range ends before it begins, a size is negative, or
            a number is not an integer.
    """
    range_array, size_array = np.asarray(ranges), np.asarray(sizes)
    if range_array.size == 0 and size_array.size == 0:
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64)
    for name, array in (("ranges", range_array), ("sizes", size_array)):
        if array.dtype.kind not in "iu":
            raise ValueError(f"{name} must be integers, not {array.dtype}")
    if range_array.ndim != 2 or range_array.shape[1] != 2:
        raise ValueError(f"ranges must have shape (n, 2), not {range_array.shape}")
    if size_array.shape != (len(range_array),):
        raise ValueError(f"sizes must have shape ({len(range_array)},), not {size_array.shape}")
    backwards = np.flatnonzero(range_array[:, 1] < range_array[:, 0])
    if len(backwards):
        raise ValueError(f"range {backwards[0]} ends before it begins")
    negative = np.flatnonzero(size_array < 0)
    if len(negative):
        raise ValueError(f"size {negative[0]} is negative")
    return range_array.astype(np.int64), size_array.astype(np.int64)


def renumbered(storages: np.ndarray) -> np.ndarray:
    """The same partition with storages numbered 0..m-1 in order of first appearance."""
    _, first_seen, inverse = np.unique(storages, return_index=True, return_inverse=True)
    number = np.empty(len(first_seen), dtype=np.int64)
    number[np.argsort(first_seen)] = np.arange(len(first_seen))
    return number[inverse.reshape(-1)] if len(storages) else np.zeros(0, dtype=np.int64)


def storage_sizes(storages: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """int64 (m,): bytes of each storage 0..m-1, the largest of its tenants."""
    count = int(storages.max()) + 1 if len(storages) else 0
    result = np.zeros(count, dtype=np.int64)
    np.maximum.at(result, storages, sizes)
    return result


def total_bytes(storages: np.ndarray, sizes: np.ndarray) -> int:
    """Bytes of all storages together, for any non-negative storage numbers."""
    return int(storage_sizes(storages, sizes).sum())


def reversed_time(ranges: np.ndarray) -> np.ndarray:
    """The ranges as seen from the end: an assignment for them is one for `ranges`, and back."""
    return -ranges[:, ::-1]


def sections(ranges: np.ndarray) -> Tuple[np.ndarray, np.ndarray, int]:
    """Cut time where ranges begin.

    Returns:
        (begin, end, count): int64 (n,) first and last section of each range, inclusive, and the
        number of sections. Two ranges overlap exactly if they have a section in common, and
        every maximal set of ranges alive together is alive in some section.
    """
    starts = np.unique(ranges[:, 0])
    begin = np.searchsorted(starts, ranges[:, 0])
    end = np.searchsorted(starts, ranges[:, 1], side="right") - 1
    return begin.astype(np.int64), end.astype(np.int64), len(starts)


def parts_of_time(ranges: np.ndarray) -> np.ndarray:
    """int64 (n,), the part of time that each range lies in: numbered in time, and no range crosses from one into another."""
    order = np.argsort(ranges[:, 0], kind="stable")
    first, last = ranges[order, 0], ranges[order, 1]
    begins = np.zeros(len(order), dtype=np.int64)
    begins[1:] = first[1:] > np.maximum.accumulate(last)[:-1]
    label = np.empty(len(order), dtype=np.int64)
    label[order] = np.cumsum(begins)
    return label
