"""Blocks within blocks, against programs that are run trip by trip on real places."""
from __future__ import annotations

from itertools import product
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import pytest

from tests.assignment.checker import check_offsets, check_storages, partitions
from transpiler.assignment import Block, Flat, assign, flattened, pack

Key = Tuple[int, int]  # (block, value), numbered as in Flat


def random_block(generator: np.random.RandomState, values: List[int], depth: int = 0) -> Block:
    """A block of a few ops, and at most `values[0]` values in it and in the blocks in it."""
    length = int(generator.randint(1, 5))
    count = min(int(generator.randint(0, 4)), values[0])
    values[0] -= count
    bounds = np.sort(generator.randint(0, length, (count, 2)), axis=1)
    inner = []
    for at in range(length):
        if depth < 2 and generator.rand() < 0.4:
            inner.append((at, random_block(generator, values, depth + 1)))
    return Block(length, bounds, generator.randint(1, 9, count), tuple(inner))


class Machine:
    """Runs a block on the places that its values have, and stops where one finds another's contents in its own.

    Each value is written when its range starts and read when it ends; at an op that runs a block, it is read and written
    before, between and after the trips.
    """

    def __init__(self, places: Dict[Key, Sequence[int]]) -> None:
        self._places = places
        self._holds: Dict[int, Key] = {}
        self._counter = 0

    def run(self, block: Block, number: int, trips: Sequence[int]) -> int:
        """The number of the block after it, depth first."""
        following = number + 1
        ranges = np.asarray(block.ranges).reshape(-1, 2).tolist()
        for op in range(block.length):
            alive = [(number, i) for i, (first, last) in enumerate(ranges) if first <= op <= last]
            starting = [key for key in alive if ranges[key[1]][0] == op]
            self._write(starting)
            inside = [inner for at, inner in block.inner if at == op]
            for inner in inside:
                first = following
                for _ in range(trips[first % len(trips)]):
                    following = self.run(inner, first, trips)
                    self._read(alive)
                    self._write([key for key in starting])
            self._read(alive)
        return following

    def _write(self, keys: List[Key]) -> None:
        for key in keys:
            for place in self._places[key]:
                self._holds[place] = key

    def _read(self, keys: List[Key]) -> None:
        for key in keys:
            assert all(self._holds[place] == key for place in self._places[key])


def runs(block: Block, places: Dict[Key, Sequence[int]]) -> bool:
    """Whether every number of trips from one to three, in every block, finds its contents."""
    for trips in product((1, 2, 3), repeat=2):
        try:
            Machine(places).run(block, 0, trips)
        except AssertionError:
            return False
    return True


def keys(flat: Flat) -> List[Key]:
    return list(zip(flat.block.tolist(), flat.index.tolist()))


def as_storages(flat: Flat, storages: Sequence[int]) -> Dict[Key, Sequence[int]]:
    return {key: [storage] for key, storage in zip(keys(flat), storages)}


@pytest.mark.parametrize('seed', range(40))
def test_assigned_storages_hold_what_they_should_in_every_trip(seed: int) -> None:
    block = random_block(np.random.RandomState(seed), [12])
    flat = flattened(block)
    found = assign(flat.ranges, flat.sizes)
    check_storages(flat.ranges, flat.sizes, found.storages)
    assert runs(block, as_storages(flat, found.storages.tolist()))


@pytest.mark.parametrize('seed', range(40))
def test_one_arena_serves_all_depths(seed: int) -> None:
    block = random_block(np.random.RandomState(seed), [12])
    flat = flattened(block)
    packing = pack(flat.ranges, flat.sizes, seconds=0.5)
    assert check_offsets(flat.ranges, flat.sizes, packing.offsets) == packing.height
    offsets = packing.offsets.tolist()
    assert runs(
        block, {
            key: range(offset, offset + int(size))
            for key, offset, size in zip(keys(flat), offsets, flat.sizes)
        })


@pytest.mark.parametrize('seed', range(60))
def test_no_plan_that_runs_is_smaller(seed: int) -> None:
    """All partitions of up to 6 values, judged by running them."""
    block = random_block(np.random.RandomState(1000 + seed), [6])
    flat = flattened(block)
    smallest: Optional[int] = None
    for storages in partitions(len(flat.sizes)):
        if runs(block, as_storages(flat, storages)):
            largest = np.zeros(len(storages), dtype=np.int64)
            np.maximum.at(largest, np.array(storages, dtype=np.int64), flat.sizes)
            total = int(largest.sum())
            smallest = total if smallest is None else min(smallest, total)
    assert assign(flat.ranges, flat.sizes).total_bytes == smallest


def test_what_is_alive_around_a_loop_is_one_more_live_range_inside() -> None:
    body = Block(3, [[0, 1], [1, 2]], [8, 8])
    around = Block(3, [[0, 0], [0, 2], [2, 2]], [8, 8, 8], ((1, body),))
    flat = flattened(around)
    assert flat.ranges.tolist() == [[0, 0], [0, 5], [5, 5], [2, 3], [3, 4]]
    assert flat.block.tolist() == [0, 0, 0, 1, 1] and flat.index.tolist() == [0, 1, 2, 0, 1]
    assert assign(flat.ranges, flat.sizes).total_bytes == 8 + 2 * 8


@pytest.mark.parametrize('block', [
    Block(2, [[0, 2]], [1]),
    Block(2, [[0, 1]], [1], ((2, Block(1, [], [])),)),
    Block(2, [[1, 0]], [1])
])
def test_what_lies_outside_its_block_is_refused(block: Block) -> None:
    with pytest.raises(ValueError):
        flattened(block)
