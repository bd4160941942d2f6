"""A pool of storages whose tenants are dead, handed out again in tiers."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Callable, Dict, Hashable, List, Mapping, Optional, Set, Tuple

from transpiler.analysis.interference import shape_forbids
from transpiler.ir import Size

SAME, LARGER, SMALLER = '1', '2', '3'


@dataclass(frozen=True)
class Lease:
    """A storage handed out, the tier it was found in (None: it is new) and the bytes not used of it."""

    storage: int
    tier: Optional[str]
    waste_bytes: int


@dataclass
class _Free:
    """A storage without a tenant. Until `pinned_until`, somebody still reads the shape of its last tenant:
    only a tenant of the same `shape` may move in before that."""

    storage: int
    shape: Hashable
    pinned_until: int


def _any_storage(storage: int) -> bool:
    return True


class MemoryPool:
    """Storages by dtype and size.

    Tier 1 takes a storage of the same size, without waste. Tier 2 takes the closest of those proved larger, for
    every value of the symbolic dims. Tier 3, only at level 1, takes the closest smaller one, which grows to the
    new tenant's size (the runtime reallocates). `dims` ranks closeness. Paddle's first memory_optimize
    (PR 7599) had tiers 1 and 3.
    """

    def __init__(self, dims: Mapping[str, int], level: int = 0) -> None:
        self._dims = dims
        self._level = level
        self._sizes: Dict[int, Size] = {}
        # Per dtype, free storages sorted by (bytes for the hinted dims, order of release).
        self._free: Dict[str, List[Tuple[int, int, _Free]]] = {}
        self._releases = 0
        self._pins: Dict[int,
                         int] = {}  # storage -> last position at which some tenant's shape is read

    def size_of(self, storage: int) -> Size:
        return self._sizes[storage]

    def total_bytes(self) -> int:
        return sum(self._bytes(s) for s in self._sizes.values())

    def acquire(self,
                tenant: int,
                size: Size,
                dtype: str,
                shape: Hashable,
                at: int,
                allowed: Callable[[int], bool] = _any_storage) -> Lease:
        """A storage for `tenant`, which is written at position `at` for the first time.

        A new storage bears the tenant's own id. Only storages that are `allowed` are handed out again.
        """
        free = self._free.setdefault(dtype, [])
        needed = self._bytes(size)
        open_to = lambda e: not shape_forbids(e.shape, e.pinned_until, shape, at) and allowed(
            e.storage)
        index, tier = self._find(free, size, needed, open_to)
        if index is None:
            self._sizes[tenant] = size
            return Lease(tenant, None, 0)
        has, _, entry = free.pop(index)
        if tier == SMALLER:
            self._sizes[entry.storage] = size
        return Lease(entry.storage, tier, max(0, has - needed))

    def release(self, storage: int, dtype: str, shape: Hashable, pinned_until: int) -> None:
        """Takes `storage` back; its tenant's shape is read until `pinned_until`."""
        self._releases += 1
        # While an earlier pin holds, all tenants have one shape: it and the new one add up.
        pinned_until = max(pinned_until, self._pins.get(storage, -1))
        self._pins[storage] = pinned_until
        entry = _Free(storage, shape, pinned_until)
        key = (self._bytes(self._sizes[storage]), -self._releases)  # last released first
        bisect.insort(self._free.setdefault(dtype, []), (*key, entry))

    def _find(self, free: List[Tuple[int, int, _Free]], size: Size, needed: int,
              open_to: Callable[[_Free], bool]) -> Tuple[Optional[int], Optional[str]]:
        start = bisect.bisect_left(free, (needed,))
        refused: Set[Size] = set()  # many storages have one size: it is compared once
        for index in range(start, len(free)):
            entry = free[index][2]
            has = self._sizes[entry.storage]
            if has in refused or not open_to(entry):
                continue
            if has == size:
                return index, SAME
            if has >= size:
                return index, LARGER
            refused.add(has)
        if self._level >= 1:
            for index in range(start - 1, -1, -1):
                if open_to(free[index][2]):
                    return index, SMALLER
        return None, None

    def _bytes(self, size: Size) -> int:
        return size.evaluate(self._dims)
