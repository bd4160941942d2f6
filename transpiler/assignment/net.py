"""The least that ordering and sharing need to know of a program: who reads and writes what.

A `Net` is a straight line of ops over blobs 0..b-1. A blob may be written more than once (in place
or anew); every pair of ops that touch the same blob, at least one of them writing it, keeps its
order (read after write, write after read, write after write), so any order that respects
`predecessors` computes the same bytes.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Set, Tuple

import numpy as np


@dataclass(frozen=True)
class NetOp:
    """Blob indices that an op reads and writes; in both for an op that works in place."""
    reads: Tuple[int, ...]
    writes: Tuple[int, ...]


@dataclass(frozen=True)
class Net:
    """A straight-line program.

    Attributes:
        ops: in program order.
        sizes: int64 (b,), bytes of each blob.
        movable: bool (b,), whether the blob's memory is ours to assign (an intermediate).
    """
    ops: Tuple[NetOp, ...]
    sizes: np.ndarray
    movable: np.ndarray


def predecessors(net: Net) -> List[List[int]]:
    """For each op the ops that must run before it, directly, ascending. O(uses) arcs.

    Reads between two writes depend on the first and are depended on by the second.
    """
    writer: List[int] = [-1] * len(net.sizes)
    readers: List[List[int]] = [[] for _ in net.sizes]
    result: List[List[int]] = []
    for index, op in enumerate(net.ops):
        before: Set[int] = set()
        for blob in op.reads + op.writes:
            if writer[blob] >= 0:
                before.add(writer[blob])
        for blob in op.writes:
            before.update(readers[blob])
        for blob in op.reads:
            readers[blob].append(index)
        for blob in op.writes:
            writer[blob] = index
            readers[blob] = []
        before.discard(index)
        result.append(sorted(before))
    return result


def successors(before: Sequence[Sequence[int]]) -> List[List[int]]:
    """The reverse of `predecessors`."""
    result: List[List[int]] = [[] for _ in before]
    for op, ops in enumerate(before):
        for other in ops:
            result[other].append(op)
    return result


def check_order(order: Sequence[int], before: Sequence[Sequence[int]]) -> None:
    """Raise ValueError unless `order` is a permutation of the ops that respects `before`."""
    position = {op: at for at, op in enumerate(order)}
    if len(order) != len(before) or set(position) != set(range(len(before))):
        raise ValueError("an order must name every op exactly once")
    for op, ops in enumerate(before):
        for other in ops:
            if position[other] > position[op]:
                raise ValueError(f"op {op} runs before op {other}, which it depends on")


def live_ranges(net: Net, order: Optional[Sequence[int]] = None) -> Tuple[np.ndarray, np.ndarray]:
    """Live ranges of the movable blobs under `order` (None: as given).

    A blob that is read before anything wrote it carries a value from one run to the next: it is
    alive throughout.

    Returns:
        (blobs, ranges): int64 (n,) blob indices, ascending, of the movable blobs that some op
        touches, and int64 (n, 2) inclusive positions of their first and last touch.
    """
    sequence = range(len(net.ops)) if order is None else order
    first, last = np.full(len(net.sizes), -1), np.full(len(net.sizes), -1)
    for position, index in enumerate(sequence):
        op = net.ops[index]
        for blob in op.reads + op.writes:
            last[blob] = position
            if first[blob] < 0:
                first[blob] = position
    carried_over = _read_before_written(net)
    first[carried_over], last[carried_over] = 0, max(0, len(net.ops) - 1)
    blobs = np.flatnonzero(net.movable & (last >= 0))
    return blobs, np.stack([first[blobs], last[blobs]], axis=1).astype(np.int64)


def _read_before_written(net: Net) -> np.ndarray:
    """int64 (k,): blobs whose first touch, in program order, reads them."""
    written: Set[int] = set()
    carried: Set[int] = set()
    for op in net.ops:
        carried.update(blob for blob in op.reads if blob not in written)
        written.update(op.writes)
    return np.array(sorted(carried), dtype=np.int64)


def critical_path(net: Net, order: Sequence[int], storage_of: np.ndarray) -> int:
    """Ops on the longest dependence chain once blobs with equal `storage_of` share memory.

    Args:
        order: the order that the sharing was planned for.
        storage_of: int64 (b,), any labels; blobs with the same label are one piece of memory, so
            reads and writes of either keep their order.
    """
    label_of = np.unique(storage_of, return_inverse=True)[1].reshape(-1)
    shared = Net(
        tuple(
            NetOp(tuple(
                int(label_of[b])
                for b in net.ops[i].reads), tuple(int(label_of[b])
                                                  for b in net.ops[i].writes))
            for i in order), np.zeros(len(net.sizes), dtype=np.int64), net.movable)
    depth: List[int] = []
    for before in predecessors(shared):
        depth.append(1 + max((depth[other] for other in before), default=0))
    return max(depth, default=0)
