"""The search for offsets, against exhaustive search: its verdicts, and those without each of its rules."""
from __future__ import annotations

import numpy as np
import pytest

from benchmarks.packing_variants import cut, split
from tests.assignment.checker import alive_together, check_offsets, lowest_packing
from tests.assignment.generate import random_problem
from transpiler.assignment import packing_kernel as kernel
from transpiler.assignment.packing_cp import solve
from transpiler.assignment.packing_exact import fit, luby
from transpiler.assignment.packing_glue import glued
from transpiler.assignment.ranges import parts_of_time

RULES = {
    name: getattr(kernel, name) for name in ('HEADS', 'SUPPORT', 'REST', 'EQUALS', 'LOCAL', 'JUMPS')
}
WITHOUT = [
    0, *RULES.values(), kernel.ALL_RULES, *(kernel.ALL_RULES - rule for rule in RULES.values())
]


def verdict(ranges, sizes, capacity, rules=kernel.ALL_RULES, nodes=100_000):
    """Whether there is a packing; what is found is checked."""
    problem = kernel.problem_of(ranges, sizes)
    state = kernel.new_state(problem)
    rank, weight = -sizes.astype(float), np.ones(len(problem.member_at) - 1)
    status = kernel.search(capacity, rank, weight, nodes, rules, problem, state)
    assert status != kernel.OUT_OF_NODES
    if status == kernel.SOLVED:
        assert check_offsets(ranges, sizes, state.low) <= capacity
    return status == kernel.SOLVED


def test_every_bit_is_a_rule_of_its_own():
    assert sum(RULES.values()) == kernel.ALL_RULES == 2**len(RULES) - 1


@pytest.mark.parametrize('left_out', WITHOUT)
def test_no_rule_changes_a_verdict(left_out):
    generator = np.random.RandomState(31)
    rules = kernel.ALL_RULES & ~left_out
    for count in (2, 3, 4, 5, 6) * 12:
        ranges, sizes = random_problem(generator, count, 7, 4)
        lowest = lowest_packing(ranges, sizes)
        for capacity in (lowest - 1, lowest, lowest + 1):
            assert verdict(ranges, sizes, capacity, rules) == (capacity >= lowest)


def test_the_solver_that_has_turns_decides_every_capacity_too():
    generator = np.random.RandomState(32)
    for count in (1, 2, 4, 5, 6, 6):
        ranges, sizes = random_problem(generator, count, 7, 9)
        lowest = lowest_packing(ranges, sizes)
        problem = kernel.problem_of(ranges, sizes)
        offsets, decided = solve(problem, lowest, 30.0)
        assert decided and check_offsets(ranges, sizes, offsets) == lowest
        assert solve(problem, lowest - 1, 30.0) == (None, True)


def test_parts_of_time_are_packed_on_their_own():
    generator = np.random.RandomState(33)
    ranges, sizes = random_problem(generator, 6, 6, 9)
    twice = np.concatenate([ranges, ranges + ranges.max() + 1])
    label = parts_of_time(twice)
    # What is alive at once is in one part, and no part has both halves.
    assert all(label[i] == label[j]
               for i in range(12)
               for j in range(12)
               if alive_together(twice[i], twice[j]))
    assert label[:6].max() < label[6:].min()
    lowest = lowest_packing(ranges, sizes)
    offsets, decided = fit(twice, np.tile(sizes, 2), lowest, np.inf)
    assert decided and check_offsets(twice, np.tile(sizes, 2), offsets) == lowest
    assert fit(twice, np.tile(sizes, 2), lowest - 1, np.inf) == (None, True)


def test_a_part_that_fits_keeps_its_offsets():
    ranges, sizes = np.array([[0, 1], [2, 3], [2, 3]]), np.array([4, 5, 6])
    given = np.array([7, 0, 9])
    offsets, decided = fit(ranges, sizes, 11, np.inf, offsets=given)
    assert decided and offsets[0] == 7 and check_offsets(ranges, sizes, offsets) == 11


def test_solutions_of_glued_values_are_solutions_of_all():
    generator = np.random.RandomState(34)
    smaller = 0
    for _ in range(40):
        instance = split(generator, cut(generator, count=30, span=12, height=40))
        problem = kernel.problem_of(instance.ranges, instance.sizes)
        pieces = glued(problem.begin, problem.end, problem.size, instance.capacity, generator)
        smaller += len(pieces.sizes) < len(instance.sizes)
        assert pieces.sizes.max() <= instance.capacity
        stacked = np.cumsum(pieces.sizes) - pieces.sizes
        check_offsets(instance.ranges, instance.sizes, pieces.offsets(stacked))
    assert smaller == 40


def test_lengths_of_restarts_are_lubys():
    assert [luby(turn) for turn in range(1, 16)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]


def test_a_search_without_nodes_says_that_it_decided_nothing():
    instance = cut(np.random.RandomState(35), count=12, span=6, height=20)
    problem = kernel.problem_of(instance.ranges, instance.sizes)
    status = kernel.search(instance.capacity, np.zeros(12), np.ones(len(problem.member_at) - 1), 3,
                           kernel.ALL_RULES, problem, kernel.new_state(problem))
    assert status == kernel.OUT_OF_NODES
