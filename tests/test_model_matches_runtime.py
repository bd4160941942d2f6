"""The predicted peak is the measured one, each measured in a process of its own.

What kernels allocate for themselves is told apart by running each operator of the program alone: the
peak of one operator above its operands and results is its kernel's own. A program's peak lies
between the prediction and the prediction plus the most that one kernel takes.
"""
from __future__ import annotations

from typing import NamedTuple

import pytest

from benchmarks.apart import apart
from tests.measured_programs import main

STRAIGHT = ('fc_chain', 'elementwise', 'convolutions', 'normalised')
LOOPS = ('loop', 'loop_without_gradient')
STRAIGHT_TOLERANCE, LOOP_TOLERANCE = 0.01, 0.05


class Figures(NamedTuple):
    """Bytes above resting: predicted, and the least of several runs; kernels' own, at the most."""
    predicted: int
    measured: int
    kernels: int


def figures(name: str, collect: bool = True) -> Figures:
    """Measured by tests.measured_programs, in a fresh process."""
    return Figures(**apart(main, name, collect))


def check(name: str, tolerance: float, collect: bool = True) -> None:
    found = figures(name, collect)
    print(f'{name}: {found}')
    assert found.measured >= found.predicted * (1 - tolerance), found
    assert found.measured <= (found.predicted + found.kernels) * (1 + tolerance), found


@pytest.mark.parametrize('name', STRAIGHT)
def test_straight_line_programs_peak_within_one_percent_of_the_prediction(name: str) -> None:
    check(name, STRAIGHT_TOLERANCE)


@pytest.mark.parametrize('name', ['fc_chain', 'normalised'])
def test_a_runtime_that_holds_peaks_within_one_percent_of_the_prediction(name: str) -> None:
    check(name, STRAIGHT_TOLERANCE, collect=False)


@pytest.mark.parametrize('name', LOOPS)
def test_training_loops_peak_within_five_percent_of_the_prediction(name: str) -> None:
    check(name, LOOP_TOLERANCE)


def test_of_the_branches_of_a_switch_one_counts() -> None:
    check('switch', STRAIGHT_TOLERANCE)
