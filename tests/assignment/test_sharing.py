from __future__ import annotations

import numpy as np
import pytest

from tests.assignment.checker import check_storages
from transpiler.assignment import Sharing, assign


def test_values_marked_alone_share_with_nothing():
    ranges = [[i, i] for i in range(5)]
    result = assign(ranges, [8] * 5, may_share=np.array([True, False, True, True, True]))
    assert result.total_bytes == 16 and result.proved
    assert (result.storages == result.storages[1]).sum() == 1


def test_the_three_ways_to_state_pairs_agree():
    ranges, sizes = np.array([[i, i] for i in range(6)]), np.array([5, 4, 3, 3, 2, 1])
    pairs = np.array([[0, 1], [2, 3], [0, 5]])
    matrix = np.ones((6, 6), dtype=bool)
    matrix[pairs[:, 0], pairs[:, 1]] = False
    listed = {tuple(pair) for pair in pairs.tolist()}
    rule = lambda i, j: (i, j) not in listed and (j, i) not in listed
    results = [assign(ranges, sizes, may_share=way) for way in (pairs, matrix, rule)]
    assert len({result.total_bytes for result in results}) == 1
    assert check_storages(ranges, sizes, results[0].storages, listed) == results[0].total_bytes
    first = Sharing.of(pairs, 6).conflicts()
    assert (first == Sharing.of(matrix, 6).conflicts()).all()
    assert (first == Sharing.of(rule, 6).conflicts()).all()


def test_a_restriction_renumbers_every_kind_of_constraint():
    kept = np.array([1, 3, 4])
    for way in (np.array([[1, 4], [0, 3]]), lambda i, j: {i, j} != {1, 4}):
        conflicts = Sharing.of(way, 5).restricted(kept).conflicts()
        assert conflicts.sum() == 2 and conflicts[0, 2] and conflicts[2, 0]


def test_values_of_no_bytes_share_with_nothing_and_cost_nothing():
    result = assign([[0, 0], [1, 1], [2, 2]], [0, 5, 0], may_share=np.array([[1, 2]]))
    assert result.total_bytes == 5 and len(set(result.storages.tolist())) == 3


@pytest.mark.parametrize("may_share", [np.zeros(3), np.ones((2, 2), bool), np.array([[0, 9]])])
def test_a_constraint_without_a_meaning_is_refused(may_share):
    with pytest.raises(ValueError, match="may_share"):
        assign([[0, 0]] * 3, [1] * 3, may_share=may_share)
