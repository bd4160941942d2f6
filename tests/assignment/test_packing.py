from __future__ import annotations

import time

import numpy as np
import pytest

from benchmarks.assignment import read_instances
from benchmarks.packing_variants import cut, variants
from tests.assignment.checker import check_offsets, lowest_packing
from tests.assignment.generate import SHARED, random_problem
from transpiler.assignment import CapacityError, live_max_bytes, pack, read_problem
from transpiler.assignment.overlap_kernel import fill_arena
from transpiler.assignment.packing import arrival_first_fit, orders
from transpiler.assignment.packing_exact import fit
from transpiler.assignment.ranges import sections


def test_pack_is_optimal_on_every_small_instance():
    generator = np.random.RandomState(13)
    for _ in range(250):
        ranges, sizes = random_problem(generator, generator.randint(1, 7), 8, 9)
        packing = pack(ranges, sizes)
        assert check_offsets(ranges, sizes, packing.offsets) == packing.height
        assert packing.proved and packing.height == lowest_packing(ranges, sizes)


def test_the_exact_search_decides_every_capacity_as_exhaustive_search_does():
    generator = np.random.RandomState(14)
    for _ in range(100):
        ranges, sizes = random_problem(generator, generator.randint(2, 7), 8, 9)
        lowest = lowest_packing(ranges, sizes)
        offsets, decided = fit(ranges, sizes, lowest, np.inf)
        assert decided and check_offsets(ranges, sizes, offsets) <= lowest
        assert fit(ranges, sizes, lowest - 1, np.inf) == (None, True)


def test_no_packing_ever_overlaps():
    generator = np.random.RandomState(15)
    for count, span in ((40, 10), (80, 60), (150, 30)):
        ranges, sizes = random_problem(generator, count, span, 1000)
        begin, end, sections_ = sections(ranges)
        for _, order in orders(ranges, sizes):
            for tight in (False, True):
                check_offsets(ranges, sizes, fill_arena(order, begin, end, sizes, sections_, tight))
        check_offsets(ranges, sizes, arrival_first_fit(ranges, sizes))
        packing = pack(ranges, sizes, seconds=0.5)
        assert check_offsets(ranges, sizes, packing.offsets) == packing.height
        assert live_max_bytes(ranges, sizes) <= packing.bound <= packing.height


@pytest.mark.parametrize("alignment", [1, 4, 64, 100])
def test_offsets_are_multiples_of_the_alignment(alignment):
    generator = np.random.RandomState(16)
    for _ in range(30):
        ranges, sizes = random_problem(generator, 12, 10, 300)
        packing = pack(ranges, sizes, alignment=alignment, seconds=0.5)
        assert check_offsets(ranges, sizes, packing.offsets, alignment) == packing.height
        assert packing.bound <= packing.height


def test_a_capacity_ends_the_search_as_soon_as_it_is_kept():
    ranges, sizes = random_problem(np.random.RandomState(17), 30, 20, 100)
    capacity = int(sizes.sum())
    assert pack(ranges, sizes, capacity=capacity).height <= capacity


def test_a_capacity_below_the_optimum_is_refused_with_the_proof():
    with pytest.raises(CapacityError, match="cannot exist") as caught:
        pack([[0, 2], [1, 3]], [5, 6], capacity=10)
    assert caught.value.proved and caught.value.best.height == 11


@pytest.mark.parametrize("alignment", [0, -8])
def test_an_alignment_below_one_is_refused(alignment):
    with pytest.raises(ValueError, match="alignment"):
        pack([[0, 1]], [4], alignment=alignment)


def test_values_of_no_bytes_need_no_room():
    packing = pack([[0, 3], [1, 2], [0, 5]], [0, 7, 0])
    assert packing.height == 7 and packing.proved


def cut_rectangle(generator, pieces_wanted, side):
    """(ranges, sizes) of a full square cut into pieces: height `side` is just reached."""
    pieces = [(0, side, 0, side)]
    while len(pieces) < pieces_wanted:
        left, right, low, high = pieces.pop(int(generator.randint(len(pieces))))
        if generator.rand() < 0.5 and right - left > 1:
            cut = int(generator.randint(left + 1, right))
            pieces += [(left, cut, low, high), (cut, right, low, high)]
        elif high - low > 1:
            cut = int(generator.randint(low + 1, high))
            pieces += [(left, right, low, cut), (left, right, cut, high)]
        else:
            pieces.append((left, right, low, high))
    table = np.array(pieces)
    return np.stack([table[:, 0], table[:, 1] - 1], axis=1), table[:, 3] - table[:, 2]


def test_the_exact_search_never_calls_a_perfect_packing_impossible():
    generator = np.random.RandomState(18)
    for _ in range(200):
        ranges, sizes = cut_rectangle(generator, generator.randint(8, 20), 30)
        offsets, decided = fit(ranges, sizes, 30, time.monotonic() + 1)
        assert offsets is not None or not decided
        if offsets is not None:
            assert check_offsets(ranges, sizes, offsets) == 30


def hard_problem():
    """Set F of minimalloc where it is at hand, else a perfect packing of 60 pieces."""
    path = SHARED / "packing" / "F.1048576.csv"
    if path.exists():
        with path.open(newline="") as stream:
            problem = read_problem(stream)
        return problem.ranges, problem.sizes, 1048576
    ranges, sizes = cut_rectangle(np.random.RandomState(18), 60, 64)
    return ranges, sizes, 64


def test_a_hard_problem_is_packed_within_its_capacity():
    ranges, sizes, capacity = hard_problem()
    packing = pack(ranges, sizes, capacity=capacity, seconds=40)
    assert check_offsets(ranges, sizes, packing.offsets) == packing.height <= capacity


def bases():
    """The sets of minimalloc where they are at hand, else perfect packings of 40 pieces."""
    folder = SHARED / "packing"
    if folder.is_dir():
        return read_instances(folder)
    return [cut(np.random.RandomState(seed), count=40, span=12, height=200) for seed in range(3)]


def test_variants_are_packed_within_the_capacity_that_is_known_to_suffice():
    changed = [each for each in variants(bases(), 18, seed=20) if not each.name.endswith("cut")]
    assert len(changed) == 15
    for instance in changed:
        packing = pack(instance.ranges, instance.sizes, capacity=instance.capacity, seconds=60)
        height = check_offsets(instance.ranges, instance.sizes, packing.offsets)
        assert height == packing.height <= instance.capacity


def test_seconds_are_of_the_clock_that_is_given():
    ticks = iter(range(1000, 100_000))
    generator = np.random.RandomState(19)
    ranges, sizes = random_problem(generator, 40, 10, 1000)
    packing = pack(ranges, sizes, seconds=0.5, clock=lambda: float(next(ticks)))
    assert packing.seconds == next(ticks) - 1001
