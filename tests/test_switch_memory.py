"""A switch whose ways have weights needs, in the way that needs most, what is predicted, to the byte but for fetched scalars."""
from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest

from benchmarks.measure import Peaks
from tests.harness import Case, Mode, executor_mode, fresh_scope, new_programs
from tests.scenarios.common import data, fc, floats, random_feed, train
from tests.wild.children import in_child
from transpiler import memory_optimize

BATCH, WIDTH, WAYS = 128, 256, 4
SECONDS = 120
SCALARS = 64
TRIES = 5


def switch(taken: int) -> Case:
    """Each way has a layer more than the one before; the last are branches in branches."""
    with new_programs() as (main, startup):
        index, hidden = data('index', 1, dtype='int32'), fc(data('x', BATCH, WIDTH), WIDTH, 'tanh')

        def way(layers: int) -> Any:
            made = hidden
            for _ in range(layers):
                made = fc(made, WIDTH, 'tanh')
            return made

        ways = {i: (lambda i=i: way(i + 1)) for i in range(WAYS)}
        loss = paddle.mean(fc(paddle.static.nn.switch_case(index, ways), WIDTH, 'relu'))
        train(loss)
    drawn = random_feed(x=floats(BATCH, WIDTH))
    return Case(main, startup, lambda step: dict(drawn(step), index=np.array([taken], 'int32')),
                [loss.name])


def said_and_measured(taken: int, optimized: bool) -> tuple:
    """Bytes predicted, and those of the first run in the program's order."""
    case = switch(taken)
    # A scope of its own: what other tests have left under the program's names would be let go in the run.
    with executor_mode(Mode(order='sequential')), fresh_scope():
        target = case.main if optimized else case.main.clone()
        report = memory_optimize(target, fetch_list=list(case.fetch))
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        peaks, feed = Peaks(), case.feed(0)
        peaks.start_run()
        executor.run(case.main, feed=feed, fetch_list=list(case.fetch))
    said = report.peak_bytes_after if optimized else report.peak_bytes_before
    return said, peaks.above_resting()


def said_and_least(taken: int, optimized: bool) -> tuple:
    """The same, and the least of some runs: on a busy machine the collector is late now and then, never early."""
    found = []
    for _ in range(TRIES):
        found.append(in_child(lambda: said_and_measured(taken, optimized), SECONDS).value)
        said, measured = found[-1]
        if measured < said + SCALARS:
            break
    return min(found, key=lambda each: each[1])


@pytest.mark.parametrize('optimized', [False, True])
def test_the_way_that_needs_most_is_predicted(optimized: bool) -> None:
    found = [said_and_least(taken, optimized) for taken in range(WAYS)]
    said, = {each[0] for each in found}
    assert abs(max(each[1] for each in found) - said) < SCALARS, found
