"""Blocks within blocks: the storages of a loop body inside the plan of what is around the loop.

While a body runs, all that is alive around it stays alive: seen from inside, one more live range. Seen from outside, what
the body needs exists while one op runs. So the op that runs the body is stretched to the body's length, at any depth, and the
whole program is one straight line, for `assign` and `pack` alike.

Theorem. Let each value have one place for all trips, and let a value that one trip leaves for the next count as alive
throughout its block. Then two values meet in some run, whatever the number of trips, exactly if their stretched ranges do.
For values of two nested blocks that is so because the outer one, where it lives at the op that runs the inner block, may be
read or written in any trip; for two of one block, because neither crosses the border between two trips, so that they meet
within one trip or never.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Tuple

import numpy as np

from transpiler.assignment.ranges import ArrayLike, checked


@dataclass(frozen=True)
class Block:
    """A straight line of ops, some of which run inner blocks, each any number of times, in turn.

    Attributes:
        length: number of ops.
        ranges: int (n, 2), inclusive [first, last] positions of the block's own values. An op that runs a block uses what
            any op in there uses. A value that one trip of this block leaves for the next is (0, length - 1).
        sizes: int (n,), bytes.
        inner: (position of the op that runs it, block), in any order.
    """
    length: int
    ranges: ArrayLike
    sizes: ArrayLike
    inner: Tuple[Tuple[int, "Block"], ...] = ()


@dataclass(frozen=True)
class Flat:
    """All values of a block and of the blocks in it, as one problem.

    Attributes:
        ranges: int64 (m, 2), inclusive positions in the stretched line of ops.
        sizes: int64 (m,), bytes.
        block: int64 (m,), number of each value's block: 0 the outermost, then depth first, by position.
        index: int64 (m,), number of each value in its block.
    """
    ranges: np.ndarray
    sizes: np.ndarray
    block: np.ndarray
    index: np.ndarray


def flattened(block: Block) -> Flat:
    """`block` as one straight line. O(values + ops).

    Raises:
        ValueError: for malformed ranges or sizes, or a position outside its block.
    """
    parts: List[Tuple[np.ndarray, np.ndarray]] = []
    _stretch(block, 0, parts)
    counts = [len(sizes) for _, sizes in parts]
    return Flat(ranges=np.concatenate([ranges for ranges, _ in parts]),
                sizes=np.concatenate([sizes for _, sizes in parts]),
                block=np.repeat(np.arange(len(parts)), counts),
                index=np.concatenate([np.arange(count) for count in counts]))


def _stretch(block: Block, start: int, parts: List[Tuple[np.ndarray, np.ndarray]]) -> int:
    """Appends (ranges, sizes) of `block` and of those in it, its first op at `start`; the position after its last."""
    ranges, sizes = checked(block.ranges, block.sizes)
    positions = [at for at, _ in block.inner]
    if len(ranges) and (ranges.min() < 0 or ranges.max() >= block.length):
        raise ValueError(f"a range lies outside a block of {block.length} ops")
    if positions and not 0 <= min(positions) <= max(positions) < block.length:
        raise ValueError(f"an inner block stands outside a block of {block.length} ops")
    own = len(parts)
    parts.append((ranges, sizes))
    begin = np.zeros(block.length, dtype=np.int64)
    end = np.zeros(block.length, dtype=np.int64)
    run_by: Dict[int, List[Block]] = {}
    for position, inner in block.inner:
        run_by.setdefault(position, []).append(inner)
    at = start
    for op in range(block.length):
        begin[op] = at
        at += 1
        for inner in run_by.get(op, ()):
            at = _stretch(inner, at, parts)
        end[op] = at - 1
    if len(ranges):
        parts[own] = (np.stack([begin[ranges[:, 0]], end[ranges[:, 1]]], axis=1), sizes)
    return at
