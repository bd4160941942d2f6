"""Independent judges of plans: brute force on plain lists, no code shared with the planner."""
from __future__ import annotations

import itertools
from typing import Iterator, List, Sequence, Set, Tuple

import numpy as np


def alive_together(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two inclusive ranges have a position in common, looked up position by position."""
    return bool(set(range(a[0], a[1] + 1)) & set(range(b[0], b[1] + 1)))


def check_storages(ranges: np.ndarray,
                   sizes: np.ndarray,
                   storages: np.ndarray,
                   forbidden: Set[Tuple[int, int]] = frozenset()) -> int:
    """Assert that no storage has two tenants at once; returns the bytes of all storages."""
    assert len(storages) == len(sizes)
    largest, tenants = {}, {}
    for i, storage in enumerate(storages.tolist()):
        for j in tenants.get(storage, []):
            assert ranges[j][1] < ranges[i][0] or ranges[i][1] < ranges[j][0], (i, j)
            assert (i, j) not in forbidden and (j, i) not in forbidden, (i, j)
        tenants.setdefault(storage, []).append(i)
        largest[storage] = max(largest.get(storage, 0), int(sizes[i]))
    return sum(largest.values())


def check_offsets(ranges: np.ndarray,
                  sizes: np.ndarray,
                  offsets: np.ndarray,
                  alignment: int = 1) -> int:
    """Assert that values alive together have no byte in common; returns the arena's bytes."""
    assert len(offsets) == len(sizes)
    for i in range(len(sizes)):
        assert offsets[i] >= 0 and offsets[i] % alignment == 0
        for j in range(i):
            if ranges[j][1] < ranges[i][0] or ranges[i][1] < ranges[j][0]:
                continue
            low = max(offsets[i], offsets[j])
            high = min(offsets[i] + sizes[i], offsets[j] + sizes[j])
            assert high <= low or not sizes[i] or not sizes[j], (i, j)
    return int(max((offsets + sizes).tolist(), default=0))


def partitions(count: int) -> Iterator[List[int]]:
    """Every partition of 0..count-1 as block numbers (restricted growth strings)."""

    def extend(prefix: List[int], blocks: int) -> Iterator[List[int]]:
        if len(prefix) == count:
            yield prefix
            return
        for block in range(blocks + 1):
            yield from extend(prefix + [block], max(blocks, block + 1))

    return extend([], 0)


def smallest_assignment(ranges: np.ndarray,
                        sizes: np.ndarray,
                        forbidden: Set[Tuple[int, int]] = frozenset()) -> int:
    """Bytes of the best partition, by trying every valid one.

    Values in the order of their indices; no pruning but of invalid blocks.
    """
    count = len(sizes)
    clash = [[
        alive_together(ranges[i], ranges[j]) or (i, j) in forbidden or (j, i) in forbidden
        for j in range(count)
    ]
             for i in range(count)]

    def extend(value: int, blocks: List[List[int]]) -> int:
        if value == count:
            return sum(max(int(sizes[i]) for i in block) for block in blocks)
        best = extend(value + 1, blocks + [[value]])
        for at, block in enumerate(blocks):
            if not any(clash[value][other] for other in block):
                changed = blocks[:at] + [block + [value]] + blocks[at + 1:]
                best = min(best, extend(value + 1, changed))
        return best

    return extend(0, [])


def lowest_packing(ranges: np.ndarray, sizes: np.ndarray) -> int:
    """Height of the best packing: first fit in every order reaches it."""
    best = int(sizes.sum())
    for order in itertools.permutations(range(len(sizes))):
        offsets = {}
        for i in order:
            obstacles = sorted((offsets[j], offsets[j] + int(sizes[j]))
                               for j in offsets
                               if alive_together(ranges[i], ranges[j]))
            at = 0
            for low, high in obstacles:
                if low - at >= sizes[i]:
                    break
                at = max(at, high)
            offsets[i] = at
        best = min(best, max(offsets[i] + int(sizes[i]) for i in order))
    return best


def topological_orders(before: Sequence[Sequence[int]]) -> Iterator[List[int]]:
    """Every order of the ops that respects `before`."""

    def extend(order: List[int]) -> Iterator[List[int]]:
        if len(order) == len(before):
            yield order
        for op in range(len(before)):
            if op not in order and all(other in order for other in before[op]):
                yield from extend(order + [op])

    return extend([])
