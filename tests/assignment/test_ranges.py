from __future__ import annotations

import numpy as np
import pytest

from tests.assignment.checker import alive_together
from tests.assignment.generate import random_problem
from transpiler.assignment import assign, pack
from transpiler.assignment.ranges import checked, renumbered, sections, storage_sizes


def test_ranges_that_meet_in_one_position_live_together():
    assert assign([[0, 3], [3, 5]], [4, 4]).total_bytes == 8
    assert assign([[0, 3], [4, 5]], [4, 4]).total_bytes == 4
    assert pack([[0, 3], [3, 5]], [4, 4]).height == 8


@pytest.mark.parametrize("ranges, sizes, said", [
    ([[3, 2]], [1], "range 0 ends before it begins"),
    ([[0, 1]], [-1], "size 0 is negative"),
    ([[0, 1]], [1, 2], "sizes must have shape"),
    ([[0, 1, 2]], [1], "ranges must have shape"),
    ([[0.5, 1]], [1], "ranges must be integers"),
    ([[0, 1]], [1.5], "sizes must be integers"),
])
def test_malformed_input_is_refused_by_name(ranges, sizes, said):
    for function in (checked, assign, pack):
        with pytest.raises(ValueError, match=said):
            function(ranges, sizes)


def test_nothing_needs_nothing():
    assert assign([], []).total_bytes == 0 and assign([], []).proved
    assert pack([], []).height == 0 and pack([], []).gap == 0.0


def test_sections_are_shared_exactly_by_ranges_that_overlap():
    generator = np.random.RandomState(0)
    for _ in range(50):
        ranges, _ = random_problem(generator, 8)
        begin, end, count = sections(ranges)
        assert end.max() < count
        for i in range(8):
            for j in range(8):
                overlap = begin[i] <= end[j] and begin[j] <= end[i]
                assert overlap == alive_together(ranges[i], ranges[j])


def test_storages_are_numbered_by_first_appearance():
    storages = renumbered(np.array([7, 3, 7, 5]))
    assert storages.tolist() == [0, 1, 0, 2]
    assert storage_sizes(storages, np.array([1, 2, 3, 4])).tolist() == [3, 2, 4]
