"""Lower bounds: bytes that no assignment or packing can go below."""
from __future__ import annotations

import numpy as np


def live_max_bytes(ranges: np.ndarray, sizes: np.ndarray) -> int:
    """The largest sum of bytes alive at one position: the bound of every arena."""
    if not len(sizes):
        return 0
    positions = np.concatenate([ranges[:, 0], ranges[:, 1] + 1])
    deltas = np.concatenate([sizes, -sizes])
    # At one position, what ended before it leaves first.
    order = np.lexsort((deltas, positions))
    return int(max(0, np.cumsum(deltas[order]).max()))


def sharing_profile(ranges: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """int64 (m,), descending: entry k is the maximum over time of the k-th largest live size.

    Any assignment needs, for every k, at least k storages of at least `profile[k - 1]` bytes: so
    many values of that size live together. Its sum is therefore a lower bound for whole-buffer
    sharing. Keeps the live sizes sorted through a sweep; O(n m) byte moves, all inside numpy.
    """
    count = len(sizes)
    profile = np.zeros(count, dtype=np.int64)
    # Ascending order of -size, so that searchsorted applies.
    live = np.zeros(count, dtype=np.int64)
    alive = 0
    positions = np.concatenate([ranges[:, 0], ranges[:, 1] + 1])
    is_birth = np.repeat([1, 0], count)
    negated = -np.concatenate([sizes, sizes])
    order = np.lexsort((is_birth, positions))
    for birth, size in zip(is_birth[order].tolist(), negated[order].tolist()):
        at = int(live[:alive].searchsorted(size))
        if birth:
            live[at + 1:alive + 1] = live[at:alive]
            live[at] = size
            alive += 1
            np.minimum(profile[at:alive], live[at:alive], out=profile[at:alive])
        else:
            live[at:alive - 1] = live[at + 1:alive]
            alive -= 1
    profile = -profile
    return profile[:int(np.count_nonzero(profile))]


def sharing_bound(ranges: np.ndarray, sizes: np.ndarray) -> int:
    """Bytes below which no whole-buffer sharing can go: the sum of `sharing_profile`."""
    return int(sharing_profile(ranges, sizes).sum())


def antichain_profile(conflicts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """`sharing_profile` for a conflict relation whose complement is a partial order.

    Entry k is the largest size s such that k values of at least s bytes conflict pairwise. The
    largest such set is, by Dilworth's theorem, the count of values less a maximum matching of the
    order's pairs; the matching is grown as values are added from the largest down. The relation
    must be transitive (parallel-safe sharing is); O(n^3) at worst.

    Args:
        conflicts: bool (n, n), where `precedes` below is conflicts' strict order: pair (i, j) is
            an arc if `conflicts[i, j]` is False and i comes first, as given by the row order of
            `conflicts` (rows sorted by definition).
        sizes: int64 (n,), bytes, in the same order.
    """
    count = len(sizes)
    successors = [np.flatnonzero(~conflicts[i, i + 1:]) + i + 1 for i in range(count)]
    predecessors = [np.flatnonzero(~conflicts[:i, i]) for i in range(count)]
    present = np.zeros(count, dtype=bool)
    after = np.full(count, -1, dtype=np.int64)
    before = np.full(count, -1, dtype=np.int64)
    profile, matched = [], 0
    for added, value in enumerate(np.argsort(-sizes, kind="stable").tolist(), start=1):
        present[value] = True
        matched += _augment(value, successors, present, after, before)
        matched += _augment(value, predecessors, present, before, after)
        if added - matched > len(profile):
            profile.append(int(sizes[value]))
    return np.array(profile, dtype=np.int64)


def _augment(root: int, neighbours: list, present: np.ndarray, mate: np.ndarray,
             mate_back: np.ndarray) -> int:
    """One augmenting path from the free `root` (breadth first); 1 if the matching grew, else 0."""
    if mate[root] >= 0:
        return 0
    parent = {}
    queue = [root]
    for left in queue:
        for right in neighbours[left].tolist():
            if not present[right] or right in parent:
                continue
            parent[right] = left
            if mate_back[right] >= 0:
                queue.append(int(mate_back[right]))
                continue
            while True:
                left_end = parent[right]
                following = int(mate[left_end])
                mate[left_end], mate_back[right] = right, left_end
                if left_end == root:
                    return 1
                right = following
    return 0
