"""What is sure bears a collector that gets no turn for as many runs as it counts."""
from __future__ import annotations

import importlib
from typing import Any, List, Tuple

import numpy as np
import paddle
import pytest
from paddle.base import core

from benchmarks.apart import ApartError, apart
from tests.asleep import others_asleep
from tests.harness import Case, Mode, executor_mode, fresh_scope, new_programs
from tests.processor import needs_bfloat16
from tests.scenarios.common import data, fc, floats, random_feed, train
from tests.test_sure_bytes import mixed_precision
from transpiler import memory_optimize
from transpiler.runtime import COLLECTING

# One thread runs all ops: what the others would free stays.
_SERIAL = Mode(order='serial')
_AWAKE = 2


def _branches() -> Case:
    """The gradient of a branch is through with what that has kept."""
    with new_programs() as (main, startup):
        hidden = paddle.tanh(fc(data('x', 16, 32), 32))

        def taken() -> Any:
            wide = paddle.concat([paddle.clip(hidden, -0.5, 0.5), hidden], axis=1)
            return paddle.mean(paddle.tanh(paddle.nn.functional.relu(wide)))

        loss = paddle.static.nn.cond(paddle.mean(hidden) > -5.0, taken, lambda: paddle.mean(hidden))
        train(loss)
    return Case(main, startup, random_feed(x=floats(16, 32)), [loss.name])


def _fetched() -> Case:
    with new_programs() as (main, startup):
        rows = paddle.sum(data('x', 10, 100), axis=1)
        few = paddle.tanh(rows)[:7] * 1.0
    return Case(main, startup, random_feed(x=floats(10, 100)), [rows.name, few.name])


def _branch_in_loop() -> Case:
    """What the gradient of a branch hands out has names in there, too, which keep it when all outside have let go of it."""
    with new_programs() as (main, startup):
        hidden = paddle.tanh(fc(data('x', 16, 32), 32))
        weight = paddle.create_parameter([32, 32], 'float32')
        step, end = (paddle.full([1], each, 'int64') for each in (0, 1))

        def body(step: Any, hidden: Any) -> Tuple[Any, Any]:
            hidden = paddle.matmul(hidden, weight)
            branches = (lambda: hidden * 3.0), (lambda: hidden * 2.0)
            return step + 1, paddle.static.nn.cond(paddle.mean(hidden) > -5.0, *branches)

        hidden = paddle.static.nn.while_loop(lambda step, _: step < end, body, [step, hidden])[1]
        loss = paddle.mean(hidden)
        train(loss)
    return Case(main, startup, random_feed(x=floats(16, 32)), [loss.name])


def _in_other_layouts() -> Case:
    """What kernels of oneDNN and others exchange has another name, which lasts. Small, so that a step is over before anyone wakes up."""
    return mixed_precision(32, 64)


def peaks_asleep(builder: str, budget: int) -> Tuple[List[int], Tuple[int, ...]]:
    """The highest since the start, behind each run that is begun while the collector sleeps; what the report says. In a process of
    its own."""
    case, found = getattr(importlib.import_module(__name__), builder)(), []
    options = {'budget': budget, 'trip_count': 1} if budget else {'trip_count': 1}
    executor = paddle.static.Executor(paddle.CPUPlace())
    with executor_mode(_SERIAL), fresh_scope():
        report = memory_optimize(case.main, fetch_list=list(case.fetch), **options)
        executor.run(case.startup)

        def step(number: int) -> None:
            executor.run(case.main, feed=case.feed(number), fetch_list=list(case.fetch))
            found.append(core.host_memory_stat_peak_value('Allocated', 0))

        for number in range(_AWAKE):
            step(number)
        with others_asleep():
            for number in range(_AWAKE, _AWAKE + 1 + COLLECTING.delays.runs):
                step(number)
    return found[_AWAKE:], (report.resting_bytes, report.needed_bytes, report.sure_bytes,
                            report.budget_bytes)


def _measured(builder: str, budget: int) -> Any:
    try:
        return apart(peaks_asleep, builder, budget, seconds=120)
    except ApartError as error:
        if PermissionError.__name__ in str(error):
            pytest.skip('this system lets nobody stop a thread')
        raise


@pytest.mark.parametrize(
    'builder', ['_branches', '_fetched',
                pytest.param('_in_other_layouts', marks=needs_bfloat16)])
@pytest.mark.parametrize('budget', [False, True])
def test_no_run_needs_more_than_is_sure_where_the_collector_gets_no_turn(
        builder: str, budget: bool) -> None:
    most = 0
    if budget:
        _, (resting, _, _, least) = _measured(builder, 0)
        most = resting + least
    peaks, (resting, needed, sure, _) = _measured(builder, most)
    assert resting + needed < peaks[0] < peaks[-1]  # so that it sleeps, and they pile up
    assert np.all(np.diff(peaks) > 0)
    assert peaks[-1] <= resting + sure
    assert not budget or peaks[-1] <= most


def test_a_run_leaves_no_more_than_is_sure_where_a_loop_runs_branches() -> None:
    peaks, (_, needed, sure, _) = _measured('_branch_in_loop', 0)
    assert np.all(np.diff(peaks) > 0)
    assert peaks[-1] - peaks[0] <= sure - needed
