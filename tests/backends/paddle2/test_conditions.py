"""What is known of when a program's branches run."""
from __future__ import annotations

from itertools import combinations
from typing import Any, List

import paddle
import pytest
from paddle.static.nn.control_flow import Switch

from tests.harness import fingerprint, new_programs
from tests.scenarios.common import data, fc, train
from transpiler.backends.paddle2.importer import import_program
from transpiler.ir import Region, RegionKind, exclude

BRANCHES = (RegionKind.BRANCH, RegionKind.BRANCH_GRADIENT)


def branches(main: Any) -> List[Region]:
    return [r for r in import_program(fingerprint(main)).graph.regions if r.kind in BRANCHES]


def alternatives(found: List[Region]) -> int:
    """Pairs of branches in one region that exclude each other."""
    return sum(a.parent == b.parent and exclude(a.when, b.when) for a, b in combinations(found, 2))


def test_the_two_sides_of_a_cond_and_their_gradients_exclude_each_other() -> None:
    with new_programs() as (main, _):
        x = fc(data('x', 4, 8), 8)
        out = paddle.static.nn.cond(paddle.mean(x) > 0, lambda: paddle.tanh(x), lambda: x * 2.0)
        train(paddle.mean(out))
    found = branches(main)
    forward = [r for r in found if r.kind is RegionKind.BRANCH]
    assert len(found) == 4 and len(forward) == 2
    assert exclude(forward[0].when, forward[1].when)
    for region in found[2:]:  # a gradient runs when its branch has run
        assert region.when == next(r.when for r in forward if r.id == region.forward)


@pytest.mark.parametrize('cases', [2, 5])
def test_of_a_switch_case_each_level_excludes_the_next(cases: int) -> None:
    with new_programs() as (main, _):
        x, i = data('x', 4, 8), data('i', 1, dtype='int32')
        make = lambda j: lambda: paddle.tanh(x) * float(j)
        paddle.static.nn.switch_case(i, {j: make(j) for j in range(cases)})
    found = branches(main)
    assert len(found) == 2 * (cases - 1) == 2 * alternatives(found)


def test_all_cases_of_a_switch_exclude_each_other() -> None:
    with new_programs() as (main, _):
        x = data('x', 4, 8)
        out = paddle.scale(x, 1.0)
        mean = paddle.mean(x)
        with Switch() as switch:
            for limit in (1.0, 2.0, 3.0):
                with switch.case(mean < limit):
                    paddle.assign(x * limit, out)
            with switch.default():
                paddle.assign(paddle.tanh(x), out)
    found = branches(main)
    assert len(found) == 4 and alternatives(found) == 6


def test_conditions_of_their_own_do_not_exclude_each_other() -> None:
    with new_programs() as (main, _):
        x = data('x', 4, 8)
        for limit in (0.0, 1.0):
            paddle.static.nn.cond(
                paddle.mean(x) > limit, lambda: paddle.tanh(x), lambda: paddle.exp(x))
    found = branches(main)
    assert len(found) == 4 and alternatives(found) == 2


def test_a_condition_that_is_written_again_says_nothing() -> None:
    """The second branch may run although the first has."""
    with new_programs() as (main, _):
        x = data('x', 4, 8)
        test = paddle.mean(x) > 0.0
        paddle.static.nn.cond(test, lambda: paddle.tanh(x), lambda: paddle.exp(x))
        paddle.assign(paddle.mean(x) > 1.0, test)
    found = branches(main)
    assert len(found) == 2 and alternatives(found) == 0
