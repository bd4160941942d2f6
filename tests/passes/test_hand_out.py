"""Gradients leave a branch without a copy: one of each at a time, bytes as before."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Tuple

import pytest

pytest.importorskip('paddle')  # make test-core has none

import numpy as np
import paddle

from tests.harness import Case, Mode, check, fingerprint, least_peak, measure_peak, new_programs
from tests.scenarios.common import data, fc, floats, random_feed, train
from transpiler import memory_optimize
from transpiler.backends.paddle2.importer import import_program
from transpiler.errors import VerificationError
from transpiler.ir import MOVE
from transpiler.passes.context import PassContext
from transpiler.passes.hand_out import hand_out_of_branches
from transpiler.runtime import COLLECTING
from transpiler.verify import verify

_MIB = 1 << 20
_BATCH, _WIDTH, _LAYERS = 128, 512, 5
_IN_ORDER = Mode(order='sequential')


def deep_branch(least: float = -5.0) -> Case:
    """A branch of five layers, taken at every step; or left out, where the mean of what is fed must be large."""
    with new_programs() as (main, startup):
        inputs = data('x', _BATCH, _WIDTH)
        hidden = fc(inputs, _WIDTH, 'relu')

        def layers() -> Any:
            found = hidden
            for _ in range(_LAYERS):
                found = fc(found, _WIDTH, 'relu')
            return found

        chosen = paddle.static.nn.cond(paddle.mean(inputs) > least, layers, lambda: hidden * 2.0)
        loss = paddle.mean(chosen)
        train(loss)
    return Case(main, startup, random_feed(x=floats(_BATCH, _WIDTH)), [loss.name])


def untaken_branch() -> Case:
    return deep_branch(5.0)


def switch_with_weights() -> Case:
    """Four ways, each with a layer of its own: branches in branches in branches."""
    with new_programs() as (main, startup):
        index = data('index', 1, dtype='int32')
        hidden = fc(data('x', 32, 64), 64, 'tanh')
        ways = {i: (lambda: fc(hidden, 64, 'tanh')) for i in range(4)}
        chosen = paddle.static.nn.switch_case(index, ways)
        loss = paddle.mean(paddle.square(fc(chosen, 64)))
        train(loss)
    drawn = random_feed(x=floats(32, 64))
    return Case(main, startup, lambda step: dict(drawn(step), index=np.array([step % 4], 'int32')),
                [loss.name])


def weights_in_both_branches() -> Case:
    """Each branch at every second step, a weight of both, and branches within branches, under Momentum."""
    with new_programs() as (main, startup):
        inputs = data('x', 6, 32)
        hidden = fc(inputs, 32, 'tanh')
        common = paddle.create_parameter([32, 32], 'float32')

        def upper() -> Any:
            side = paddle.matmul(hidden, common)
            return paddle.static.nn.cond(
                paddle.mean(hidden) > 0, lambda: fc(side, 32, 'tanh'),
                lambda: paddle.matmul(side, common))

        chosen = paddle.static.nn.cond(
            paddle.mean(inputs) > 0, upper, lambda: paddle.tanh(paddle.matmul(hidden, common)))
        loss = paddle.mean(paddle.square(chosen))
        train(loss, paddle.optimizer.Momentum(0.1))
    drawn = random_feed(x=floats(6, 32))
    return Case(main, startup, lambda step: {'x': drawn(step)['x'] + np.float32(0.4 * (-1)**step)},
                [loss.name])


def branch_in_loop() -> Case:
    """A branch with a weight in the body of a loop."""
    with new_programs() as (main, startup):
        weight = paddle.create_parameter([32, 32], 'float32')
        state = fc(data('x', 6, 32), 32, 'tanh')

        def body(index: Any, carried: Any) -> Any:
            found = paddle.static.nn.cond(
                paddle.mean(carried) > 0, lambda: paddle.tanh(paddle.matmul(carried, weight)),
                lambda: paddle.matmul(carried, weight) * 0.5)
            return [index + 1, found]

        zero, limit = paddle.full([], 0, 'int64'), paddle.full([], 4, 'int64')
        _, state = paddle.static.nn.while_loop(lambda i, s: i < limit, body, [zero, state])
        loss = paddle.mean(paddle.square(state))
        train(loss)
    return Case(main, startup, random_feed(x=floats(6, 32)), [loss.name])


def types_in_one_branch() -> Case:
    """A branch that hands out gradients in single and in double precision."""
    with new_programs() as (main, startup):
        inputs = data('x', 6, 32)
        hidden = fc(inputs, 32, 'tanh')
        exact = paddle.create_parameter([32, 32], 'float64')

        def upper() -> Any:
            return paddle.cast(paddle.matmul(paddle.cast(hidden, 'float64'), exact), 'float32')

        chosen = paddle.static.nn.cond(
            paddle.mean(inputs) > 0, upper, lambda: paddle.tanh(fc(hidden, 32)))
        loss = paddle.mean(paddle.square(chosen))
        train(loss)
    drawn = random_feed(x=floats(6, 32))
    return Case(main, startup, lambda step: {'x': drawn(step)['x'] + np.float32(0.4 * (-1)**step)},
                [loss.name])


def _moved(case: Case) -> int:
    """Values that MOVE ops of the main block and of others hand on."""
    graph = import_program(fingerprint(case.main), case.fetch).graph
    return sum(len(op.operands) for op in graph.walk() if op.kind == MOVE)


@pytest.mark.parametrize(
    'build', [weights_in_both_branches, branch_in_loop, types_in_one_branch, switch_with_weights])
def test_moved_gradients_are_the_same_bytes_in_every_mode(build: Any) -> None:
    optimised = build()
    memory_optimize(optimised.main, fetch_list=list(optimised.fetch))
    assert _moved(optimised) > 0
    check(build)


@pytest.mark.parametrize('build', [switch_with_weights, deep_branch, branch_in_loop])
def test_what_moves_gradients_out_is_proved_after_all_other_passes(build: Any) -> None:
    """A tenant in the memory of such a gradient, or a second op that hands the same buffer on, could not be."""
    report = memory_optimize(build().main)
    assert report.changed and 'dropped' not in str(report)


def test_gradients_that_are_moved_to_the_wrong_variables_are_rejected() -> None:
    case = weights_in_both_branches()
    old = import_program(fingerprint(case.main), case.fetch).graph
    new = hand_out_of_branches(old.copy(), PassContext(COLLECTING, {}))
    origins = {op.id: op.id for op in old.ops}
    verify(old, new, origins)
    moves = [op for op in new.walk() if op.kind == MOVE and len(op.operands) > 1]
    assert moves
    for move in moves:
        new.ops[move.id] = replace(move, operands=move.operands[::-1])
        with pytest.raises(VerificationError):
            verify(old, new, origins)
        new.ops[move.id] = move


def test_a_gradient_that_is_read_before_it_has_its_name_is_rejected() -> None:
    case = weights_in_both_branches()
    old = import_program(fingerprint(case.main), case.fetch).graph
    new = hand_out_of_branches(old.copy(), PassContext(COLLECTING, {}))
    main = new.regions[0]
    main.ops.append(
        main.ops.pop(next(at for at, op in enumerate(new.region_ops(0)) if op.kind == MOVE)))
    with pytest.raises(VerificationError):
        verify(old, new, {op.id: op.id for op in old.ops})


@pytest.fixture(scope='module')
def report_and_peaks() -> Tuple[Any, int, int]:
    case = deep_branch()
    report = memory_optimize(case.main, fetch_list=list(case.fetch))
    said = {False: report.peak_bytes_before, True: report.peak_bytes_after}
    plain, optimised = (least_peak(f'{__name__}:deep_branch',
                                   1.03 * said[each],
                                   each,
                                   mode=_IN_ORDER).above_resting() for each in (False, True))
    return report, plain, optimised


def test_a_gradient_that_leaves_a_branch_is_there_once(report_and_peaks: Any) -> None:
    _, plain, optimised = report_and_peaks
    weights = _LAYERS * _WIDTH * _WIDTH * 4
    assert optimised <= 8.5 * _MIB < plain - weights


def test_the_peak_of_a_branch_that_is_taken_is_predicted(report_and_peaks: Any) -> None:
    report, plain, optimised = report_and_peaks
    assert report.peak_bytes_before == pytest.approx(plain, rel=0.03)
    assert report.peak_bytes_after == pytest.approx(optimised, rel=0.03)


def test_a_run_that_leaves_the_branch_out_needs_no_more_than_before() -> None:
    """What is dead is not kept up to the peak of a branch that is not taken."""
    name = f'{__name__}:untaken_branch'
    plain = measure_peak(name, False, _IN_ORDER).above_resting()
    assert least_peak(name, plain, mode=_IN_ORDER).above_resting() <= plain
