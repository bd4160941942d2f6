from __future__ import annotations

import numpy as np
import pytest

from tests.assignment.checker import check_storages
from tests.assignment.generate import random_problem
from transpiler.assignment import Sharing, sharing_bound, strategies
from transpiler.assignment.bounds import sharing_profile
from transpiler.assignment.sweep import (closest_size, interval_colouring, memory_pool,
                                         pool_then_grow)

NAMES = sorted(strategies())


@pytest.mark.parametrize("name", NAMES)
def test_no_storage_ever_has_two_tenants_at_once(name):
    generator = np.random.RandomState(5)
    for count in (1, 2, 5, 30, 120, 450):
        for span in (3, 20, 200):
            ranges, sizes = random_problem(generator, count, span, 50)
            storages = strategies()[name](ranges, sizes, None)
            assert check_storages(ranges, sizes, storages) >= sharing_bound(ranges, sizes)


@pytest.mark.parametrize("name", NAMES)
def test_forbidden_pairs_are_kept_apart(name):
    generator = np.random.RandomState(6)
    for _ in range(10):
        ranges, sizes = random_problem(generator, 25, 40)
        pairs = generator.randint(0, 25, (40, 2))
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        forbidden = {tuple(pair) for pair in pairs.tolist()}
        matrix = np.ones((25, 25), dtype=bool)
        matrix[pairs[:, 0], pairs[:, 1]] = False
        for may_share in (pairs, matrix, lambda i, j: (i, j) not in forbidden and
                          (j, i) not in forbidden):
            storages = strategies()[name](ranges, sizes, Sharing.of(may_share, 25))
            check_storages(ranges, sizes, storages, forbidden)


def test_the_pool_takes_the_same_size_then_the_closest_larger_and_never_grows():
    ranges = np.array([[0, 0], [0, 0], [0, 0], [1, 1], [1, 1], [1, 1]])
    sizes = np.array([10, 20, 30, 20, 15, 25])
    storages = memory_pool(ranges, sizes, None)
    assert storages[3] == storages[1] and storages[5] == storages[2]
    assert storages[4] not in storages[:4]


def test_closest_size_grows_a_smaller_storage_where_it_is_closer():
    ranges = np.array([[0, 0], [0, 0], [1, 1]])
    assert closest_size(ranges, np.array([10, 30, 12]), None).tolist() == [1, 0, 1]


def test_growing_comes_before_a_new_storage():
    ranges = np.array([[0, 0], [0, 0], [1, 1]])
    storages = pool_then_grow(ranges, np.array([10, 20, 30]), None)
    assert storages[2] == storages[1]


def test_colouring_uses_the_fewest_storages():
    generator = np.random.RandomState(7)
    for _ in range(50):
        ranges, _ = random_problem(generator, 20)
        ones = np.ones(20, dtype=np.int64)
        assert interval_colouring(ranges, ones, None).max() + 1 == len(sharing_profile(
            ranges, ones))
