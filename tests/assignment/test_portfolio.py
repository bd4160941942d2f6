from __future__ import annotations

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.assignment.checker import check_storages
from tests.assignment.generate import random_problem
from transpiler.assignment import assign, sharing_bound, strategies
from transpiler.assignment.ranges import total_bytes


def problems():
    value = st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(0, 9))
    return st.lists(value, max_size=40)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_assign_is_valid_and_never_below_its_bound(values):
    ranges = np.array([[first, first + length] for first, length, _ in values]).reshape(-1, 2)
    sizes = np.array([size for _, _, size in values], dtype=np.int64)
    result = assign(ranges.astype(np.int64), sizes, seconds=0.2)
    assert result.total_bytes == int(result.storage_sizes.sum()) >= result.bound
    assert check_storages(ranges, sizes, result.storages) == result.total_bytes
    assert result.proved == (result.total_bytes == result.bound)


def test_assign_is_never_worse_than_any_member():
    generator = np.random.RandomState(10)
    for count in (10, 60, 200):
        for largest in (3, 100, 10**6):
            ranges, sizes = random_problem(generator, count, 50, largest)
            result = assign(ranges, sizes, seconds=0.0)
            for name, strategy in strategies().items():
                assert result.total_bytes <= total_bytes(strategy(ranges, sizes, None), sizes), name


def test_the_same_input_gets_the_same_plan():
    ranges, sizes = random_problem(np.random.RandomState(11), 80, 60, 30)
    first, second = assign(ranges, sizes), assign(ranges, sizes)
    assert (first.storages == second.storages).all() and first.strategy == second.strategy


def test_twenty_thousand_values_take_seconds():
    generator = np.random.RandomState(12)
    first = np.sort(generator.randint(0, 20_000, 20_000))
    ranges = np.stack([first, first + generator.geometric(0.1, 20_000)], axis=1)
    sizes = generator.randint(1, 10**6, 20_000)
    started = time.process_time()
    result = assign(ranges, sizes)
    # Of CPU time, which others on the machine do not add to; anything quadratic takes minutes.
    assert time.process_time() - started < 20
    assert result.bound == sharing_bound(ranges, sizes) and result.gap < 0.5
