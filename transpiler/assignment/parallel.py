"""Parallel-safe sharing: a constraint, not another algorithm.

memonger's tokens let a blob be recycled only by an op that runs after all of its users. Stated on
pairs: two values may share only if every use of the one precedes the definition of the other in
*every* topological order, that is, if each of its users is an ancestor of the definition. Sharing
then adds no dependence that was not implied already: whatever ran concurrently still can, and the
critical path cannot grow.
"""
from __future__ import annotations

from typing import List

import numpy as np

from transpiler.assignment.bounds import antichain_profile
from transpiler.assignment.net import Net, live_ranges, predecessors


def parallel_safe(net: Net) -> np.ndarray:
    """Which values may share under every topological order of `net`.

    Returns:
        bool (n, n) over the values of `live_ranges(net)`, symmetric, usable as `may_share`. Its
        True entries are a comparability relation: safe to chain.
    """
    after = _strictly_after(net)
    return after | after.T


def parallel_safe_bound(net: Net) -> int:
    """Bytes below which no parallel-safe assignment of `net` can go (Dilworth, per size)."""
    blobs, ranges = live_ranges(net)
    after = _strictly_after(net)
    order = np.argsort(ranges[:, 0], kind="stable")
    conflicts = ~(after | after.T)[np.ix_(order, order)]
    return int(antichain_profile(conflicts, net.sizes[blobs][order]).sum())


def _strictly_after(net: Net) -> np.ndarray:
    """bool (n, n): [i, j] if every op that touches value i is an ancestor of all that touch j.

    Ancestor sets are integers used as bit masks: O(arcs * ops / 64).
    """
    ancestors: List[int] = []
    for before in predecessors(net):
        mask = 0
        for other in before:
            mask |= ancestors[other] | 1 << other
        ancestors.append(mask)
    blobs, _ = live_ranges(net)
    number = {int(blob): k for k, blob in enumerate(blobs)}
    touching = [0] * len(blobs)
    common = [-1] * len(blobs)
    for index, op in enumerate(net.ops):
        for blob in set(op.reads + op.writes):
            if blob in number:
                touching[number[blob]] |= 1 << index
                common[number[blob]] &= ancestors[index]
    result = np.zeros((len(blobs), len(blobs)), dtype=bool)
    for i, users in enumerate(touching):
        for j, required in enumerate(common):
            result[i, j] = i != j and users & required == users
    return result
