"""The search for offsets, against exhaustive search: its verdicts, and those without each of its rules."""
from __future__ import annotations

import numpy as np
import pytest

from benchmarks.packing_variants import cut
from tests.assignment.checker import check_offsets, lowest_packing
from tests.assignment.generate import random_problem
from transpiler.assignment import packing_kernel as kernel
from transpiler.assignment.packing_cp import solve

RULES = {
    name: getattr(kernel, name) for name in ('HEADS', 'SUPPORT', 'REST', 'EQUALS', 'LOCAL', 'JUMPS')
}
WITHOUT = [0, *RULES.values(), kernel.ALL_RULES]


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
    rules, feasible = kernel.ALL_RULES & ~left_out, 0
    for count in (2, 3, 4, 5, 6) * 12:
        ranges, sizes = random_problem(generator, count, 7, 4)
        lowest = lowest_packing(ranges, sizes)
        for capacity in (lowest - 1, lowest, lowest + 1):
            assert verdict(ranges, sizes, capacity, rules) == (capacity >= lowest)
    for single in RULES.values():
        assert verdict(ranges, sizes, lowest, left_out and rules & single)
        assert not verdict(ranges, sizes, lowest - 1, left_out and rules & single)
