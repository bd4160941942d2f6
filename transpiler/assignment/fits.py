"""Storages that are made for one of their tenants: the owner, into whose size every other one fits.

Sizes in bytes are totally ordered, but what a planner knows before the program runs is not: of 64 bytes a row and 512
bytes, neither is proved the larger while the batch is open. Such sizes come as kinds, with a relation that says which
kind fits into which; the numbers that go with them only rank the choices. The second reason for an owner is a runtime
that should not reallocate: there the first tenant owns, and no later one may be larger.
"""
from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

import numpy as np


class Held(NamedTuple):
    """Of the values in a storage: the kinds that there are, as bits, and the one that is defined first."""

    kinds: int
    earliest: int


class Fits:
    """Whether one storage can be made for a set of values: one of them, its owner, holds all the others."""

    def __init__(self,
                 kind: np.ndarray,
                 holds: np.ndarray,
                 first: Optional[np.ndarray] = None) -> None:
        """`of_sizes` makes one from sizes.

        Args:
            kind: int64 (n,), the kind of each value's size.
            holds: bool (k, k), reflexive and transitive: [a, b] if a storage made for kind a holds a value of kind b.
            first: int64 (n,), the position of each value's definition; given, the owner must be the tenant with the
                smallest, so that no storage ever grows. None: any tenant may own.
        """
        self.kind = kind
        self.holds = holds
        self.first = first
        self._kind: List[int] = kind.tolist()
        self._first: Optional[List[int]] = None if first is None else first.tolist()
        self._holds = [sum(1 << int(b) for b in np.flatnonzero(row)) for row in holds]

    @classmethod
    def of_sizes(cls, sizes: Sequence, first: Optional[np.ndarray] = None) -> Fits:
        """For sizes of any hashable type whose `a >= b` says that `a` is proved to be at least `b`."""
        kinds = {size: kind for kind, size in enumerate(dict.fromkeys(sizes))}
        holds = np.array([[a >= b for b in kinds] for a in kinds], dtype=bool)
        kind = np.array([kinds[size] for size in sizes], dtype=np.int64)
        return cls(kind, holds.reshape(len(kinds), len(kinds)), first)

    def restricted(self, kept: np.ndarray) -> Fits:
        """The same over the values `kept`, renumbered."""
        return Fits(self.kind[kept], self.holds, None if self.first is None else self.first[kept])

    def joined(self, held: Optional[Held], value: int) -> Optional[Held]:
        """A storage of `held`, None if it is empty, with `value` in it too; None if none of them could own it. No two of them are
        alive together."""
        kind = self._kind[value]
        if held is None:
            return Held(1 << kind, value)
        kinds, earliest = held.kinds | 1 << kind, held.earliest
        if self._first is None:
            owned = any(not kinds & ~holds for k, holds in enumerate(self._holds) if kinds >> k & 1)
            return Held(kinds, earliest) if owned else None
        if self._first[value] < self._first[earliest]:
            earliest = value
        return None if kinds & ~self._holds[self._kind[earliest]] else Held(kinds, earliest)

    def owns(self) -> np.ndarray:
        """bool (n, n): [i, j] if i can own a storage in which j lives; reflexive and transitive."""
        result = self.holds[self.kind[:, None], self.kind[None, :]]
        if self.first is not None:
            later = self.first[:, None] < self.first[None, :]
            np.fill_diagonal(later, True)
            result = result & later
        return result
