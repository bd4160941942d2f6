"""Storages with an owner: sizes that are only partially ordered, and storages that never grow."""
from __future__ import annotations

import math
from typing import Dict, List, Optional

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.assignment.checker import alive_together, check_storages, partitions
from transpiler.assignment import Fits, Sharing, assign, strategies
from transpiler.assignment.exact_sharing import _solve_by_leaders
from transpiler.ir import Size

N, T = Size.dim('N'), Size.dim('T')
HINTS = {'N': 8, 'T': 3}
EVERY_DIMS = [{'N': n, 'T': t} for n in (1, 2, 8, 9, 1000) for t in (1, 3, 50)]
SIZES = [64, 512, 520, N * 64, N * 8, N * 64 + 8, N * N, T * 64, N * T * 4, N * T * 4 + 512]


def symbolic_problems(most: int) -> st.SearchStrategy:
    value = st.tuples(st.integers(0, 12), st.integers(0, 4), st.sampled_from(SIZES))
    return st.lists(value, min_size=1, max_size=most)


def arrays(values: List) -> tuple:
    ranges = np.array([[first, first + length] for first, length, _ in values], dtype=np.int64)
    sizes = [Size.of(size) for _, _, size in values]
    return ranges, sizes, np.array([size.evaluate(HINTS) for size in sizes], dtype=np.int64)


def has_owner(sizes: List[Size], members: List[int], first: Optional[np.ndarray]) -> bool:
    """Some member is as large as every other for every value of the dims; the first of them, if `first` is given."""
    if first is not None:
        owners = [min(members, key=lambda v: first[v])]
    else:
        owners = members
    return any(all(sizes[o] >= sizes[v] for v in members) for o in owners)


def members_of(storages: np.ndarray) -> List[List[int]]:
    members: Dict[int, List[int]] = {}
    for value, storage in enumerate(storages.tolist()):
        members.setdefault(storage, []).append(value)
    return list(members.values())


@settings(max_examples=40, deadline=None)
@given(symbolic_problems(40), st.booleans())
def test_no_strategy_puts_a_value_where_it_does_not_fit_for_some_batch(values, grows):
    ranges, sizes, numbers = arrays(values)
    first = None if grows else ranges[:, 0]
    sharing = Sharing.of(None, len(values), Fits.of_sizes(sizes, first))
    for name, strategy in strategies().items():
        storages = strategy(ranges, numbers, sharing)
        check_storages(ranges, numbers, storages)
        for members in members_of(storages):
            owners = members if grows else [min(members, key=lambda v: first[v])]
            needed = [max(sizes[v].evaluate(dims) for v in members) for dims in EVERY_DIMS]
            assert any(
                [sizes[o].evaluate(dims) for dims in EVERY_DIMS] == needed for o in owners), name


@settings(max_examples=120, deadline=None)
@given(symbolic_problems(7), st.booleans())
def test_the_assignment_is_the_smallest_of_those_with_owners(values, grows):
    ranges, sizes, numbers = arrays(values)
    first = None if grows else ranges[:, 0]
    fits = Fits.of_sizes(sizes, first)
    found = assign(ranges, numbers, fits=fits, seconds=0)
    apart = lambda members: not any(
        alive_together(ranges[a], ranges[b]) for a in members for b in members if a < b)
    smallest = min(
        sum(max(numbers[v]
                for v in members)
            for members in blocks)
        for blocks in map(members_of, map(np.array, partitions(len(values))))
        if all(apart(members) and has_owner(sizes, members, first) for members in blocks))
    assert found.proved and found.total_bytes == smallest


def test_the_model_with_leaders_agrees_with_the_branching() -> None:
    generator = np.random.RandomState(31)
    for _ in range(8):
        starts = generator.randint(0, 10, 8)
        values = [(int(s), int(generator.randint(0, 4)), SIZES[generator.randint(len(SIZES))])
                  for s in starts]
        ranges, sizes, numbers = arrays(values)
        fits = Fits.of_sizes(sizes, ranges[:, 0])
        expected = assign(ranges, numbers, fits=fits, seconds=0)
        storages, bound = _solve_by_leaders(ranges, numbers, Sharing.of(None, 8, fits),
                                            np.arange(8), 0, math.inf)
        assert check_storages(ranges, numbers, storages) == bound == expected.total_bytes


@pytest.mark.parametrize('last, expected', [(64, 1), (1024, 2)])
def test_a_storage_that_may_not_grow_takes_only_what_its_first_tenant_holds(last, expected):
    ranges, sizes = np.array([[0, 0], [1, 1]]), np.array([512, last])
    fits = Fits.of_sizes(sizes.tolist(), ranges[:, 0])
    assert len(assign(ranges, sizes, fits=fits).storage_sizes) == expected


def test_two_that_do_not_fit_each_other_may_both_live_in_a_third() -> None:
    ranges, sizes = np.array([[0, 0], [1, 1], [2, 2]]), [N * 64 + 512, N * 64, Size.of(512)]
    numbers = np.array([size.evaluate(HINTS) for size in sizes])
    found = assign(ranges, numbers, fits=Fits.of_sizes(sizes, ranges[:, 0]))
    assert len(found.storage_sizes) == 1
    without = assign(ranges[1:], numbers[1:], fits=Fits.of_sizes(sizes[1:], ranges[1:, 0]))
    assert len(without.storage_sizes) == 2


@settings(max_examples=150, deadline=None)
@given(symbolic_problems(8), st.booleans())
def test_a_storage_takes_those_that_leave_it_an_owner(values, grows):
    """One after the other, with what is known of those before, as if all of them were looked at."""
    ranges, sizes, _ = arrays(values)
    first = None if grows else ranges[:, 0]
    fits = Fits.of_sizes(sizes, first)
    held, members = None, []
    for value in range(len(values)):
        joined = fits.joined(held, value)
        assert (joined is not None) == has_owner(sizes, [*members, value], first)
        if joined is not None:
            held, members = joined, [*members, value]
    assert members[0] == 0
