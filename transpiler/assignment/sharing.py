"""Pairs that may not share a storage although they never live together.

One constraint serves every reason: values that must keep their own memory (fed, fetched, aliased),
shapes or LoD that must agree, and parallel-safe sharing, where the order of two values must be the
same in every topological order and not only in the given one (see `parallel.py`).
"""
from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Set, Union

import numpy as np

from transpiler.assignment.fits import Fits, Held

MayShare = Union[None, np.ndarray, Callable[[int, int], bool]]


class Sharing:
    """A symmetric relation over values 0..n-1, asked storage by storage."""

    def __init__(self,
                 count: int,
                 alone: np.ndarray,
                 forbidden: Optional[List[Set[int]]] = None,
                 rule: Optional[Callable[[int, int], bool]] = None,
                 fits: Optional[Fits] = None) -> None:
        """Use `Sharing.of`.

        Args:
            count: number of values.
            alone: bool (count,), values that share with nothing.
            forbidden: for each value those that it may not share with, or None for no such pair.
            rule: an arbitrary symmetric predicate over pairs, or None.
            fits: whether one storage can be made for a set of values, or None if it always can.
        """
        self.count = count
        self.alone = alone
        self.fits = fits
        self._forbidden = forbidden
        self._rule = rule
        self._matrix: Optional[np.ndarray] = None

    @classmethod
    def of(cls,
           may_share: MayShare,
           count: int,
           fits: Optional[Fits] = None) -> Optional["Sharing"]:
        """Normalise what a caller may pass as `may_share`.

        Args:
            may_share: None (every pair may), bool (n,) (False: shares with nothing), bool (n, n)
                (True: the pair may share), int (m, 2) (pairs that may NOT share), or a symmetric
                callable over two indices.
            count: n.
            fits: whether one storage can be made for a set of values; None if it always can.

        Raises:
            ValueError: for an array of another shape or kind, or an index out of range.
        """
        if may_share is None and fits is None:
            return None
        nobody = np.zeros(count, dtype=bool)
        if may_share is None:
            return cls(count, nobody, fits=fits)
        if callable(may_share):
            return cls(count, nobody, rule=may_share, fits=fits)
        array = np.asarray(may_share)
        if array.dtype == bool and array.shape == (count,):
            return cls(count, ~array, fits=fits)
        if array.dtype == bool and array.shape == (count, count):
            either = ~array | ~array.T
            return cls(count, nobody, [set(np.flatnonzero(row)) for row in either], fits=fits)
        if array.dtype.kind in "iu" and array.ndim == 2 and array.shape[1] == 2:
            if array.size and (array.min() < 0 or array.max() >= count):
                raise ValueError(f"may_share names a value outside 0..{count - 1}")
            forbidden: List[Set[int]] = [set() for _ in range(count)]
            for i, j in array.tolist():
                forbidden[i].add(j)
                forbidden[j].add(i)
            return cls(count, nobody, forbidden, fits=fits)
        raise ValueError(f"may_share: no meaning for {array.dtype} of shape {array.shape}")

    def restricted(self, kept: np.ndarray) -> "Sharing":
        """The relation over the values `kept` (int64 (k,), ascending), renumbered 0..k-1."""
        kept_list = kept.tolist()
        forbidden, rule = None, None
        if self._forbidden is not None:
            number = {value: k for k, value in enumerate(kept_list)}
            forbidden = [{number[j] for j in self._forbidden[i] if j in number} for i in kept_list]
        if self._rule is not None:
            outer = self._rule

            def rule(i: int, j: int) -> bool:
                return outer(kept_list[i], kept_list[j])

        fits = None if self.fits is None else self.fits.restricted(kept)
        return Sharing(len(kept_list), self.alone[kept], forbidden, rule, fits)

    def accepts(self, value: int, tenants: Sequence[int], held: Optional[Held]) -> bool:
        """Whether `value` may join a storage that holds `tenants` (life ranges not looked at); `held` is what `joined` made of them."""
        if not tenants:
            return True
        if self.alone[value] or self.alone[tenants[0]]:
            return False
        if self.fits is not None and self.fits.joined(held, value) is None:
            return False
        if self._forbidden is not None and not self._forbidden[value].isdisjoint(tenants):
            return False
        return self._rule is None or all(self._rule(value, tenant) for tenant in tenants)

    def joined(self, held: Optional[Held], value: int) -> Optional[Held]:
        """What a storage of `held`, None if it is empty, holds once `value` is in it too."""
        return None if self.fits is None else self.fits.joined(held, value)

    def conflicts(self) -> np.ndarray:
        """bool (n, n): True where a pair of different values may not share. O(n^2), once.

        A pair that fits into no storage of its own may still share a third one's.
        """
        if self._matrix is None:
            self._matrix = self._computed()
        return self._matrix

    def _computed(self) -> np.ndarray:
        result = self.alone[:, None] | self.alone[None, :]
        if self._forbidden is not None:
            for i, others in enumerate(self._forbidden):
                result[i, list(others)] = True
        if self._rule is not None:
            for i in range(self.count):
                for j in range(i):
                    if not self._rule(i, j):
                        result[i, j] = result[j, i] = True
        np.fill_diagonal(result, False)
        return result


def overlaps(ranges: np.ndarray) -> np.ndarray:
    """bool (n, n): True where two different ranges live together."""
    first, last = ranges[:, 0], ranges[:, 1]
    result = (first[:, None] <= last[None, :]) & (first[None, :] <= last[:, None])
    np.fill_diagonal(result, False)
    return result


def conflict_matrix(ranges: np.ndarray, sharing: Optional[Sharing]) -> np.ndarray:
    """bool (n, n): pairs that may not be in one storage, for either reason."""
    result = overlaps(ranges)
    return result if sharing is None else result | sharing.conflicts()
