from __future__ import annotations

import math

import numpy as np
import pytest

from tests.assignment.checker import check_storages, smallest_assignment
from tests.assignment.generate import random_problem
from transpiler.assignment import Sharing, assign, sharing_bound
from transpiler.assignment.exact_sharing import (_solve_by_classes, _solve_by_leaders,
                                                 branch_and_bound)


@pytest.mark.parametrize("part", range(4))
def test_assign_is_optimal_on_every_small_instance(part):
    """500 random instances of up to 9 values each, 2,000 in all, against exhaustive search."""
    generator = np.random.RandomState(100 + part)
    for _ in range(500):
        ranges, sizes = random_problem(generator, generator.randint(1, 10), 10,
                                       int(generator.choice([3, 12, 1000])))
        result = assign(ranges, sizes)
        assert check_storages(ranges, sizes, result.storages) == result.total_bytes
        assert result.total_bytes == smallest_assignment(ranges, sizes)
        assert result.proved and result.gap == 0.0


def test_assign_is_optimal_under_constraints():
    generator = np.random.RandomState(8)
    for _ in range(150):
        count = generator.randint(2, 8)
        ranges, sizes = random_problem(generator, count, 16)
        pairs = generator.randint(0, count, (generator.randint(1, 8), 2))
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        forbidden = {tuple(pair) for pair in pairs.tolist()}
        result = assign(ranges, sizes, may_share=pairs)
        check_storages(ranges, sizes, result.storages, forbidden)
        assert result.proved
        assert result.total_bytes == smallest_assignment(ranges, sizes, forbidden)


def test_branching_needs_no_good_start():
    generator = np.random.RandomState(26)
    for _ in range(300):
        ranges, sizes = random_problem(generator, generator.randint(1, 9), 10, 3)
        storages, proved = branch_and_bound(ranges, sizes, None, np.arange(len(sizes)), 0)
        assert proved
        assert check_storages(ranges, sizes, storages) == smallest_assignment(ranges, sizes)


def test_both_models_agree_with_exhaustive_search():
    generator = np.random.RandomState(9)
    for _ in range(12):
        ranges, sizes = random_problem(generator, 8, 10)
        alone = np.arange(8)
        expected = smallest_assignment(ranges, sizes)
        bound, deadline = sharing_bound(ranges, sizes), math.inf
        nothing = Sharing.of(np.zeros((0, 2), dtype=int), 8)
        for storages, proved in (_solve_by_classes(ranges, sizes, alone, bound, deadline),
                                 _solve_by_leaders(ranges, sizes, nothing, alone, bound, deadline)):
            assert check_storages(ranges, sizes, storages) == expected == proved


def test_a_bound_that_is_out_of_reach_is_raised_to_the_optimum():
    ranges, sizes = np.array([[0, 1], [1, 2], [2, 3], [3, 4]]), np.array([10, 1, 1, 10])
    result = assign(ranges, sizes)
    assert sharing_bound(ranges, sizes) == 11 and result.bound == result.total_bytes == 12
