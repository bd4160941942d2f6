"""Weight decay on Paddle 3: a gradient, and its sum with what decays the weight, are one tensor."""
from __future__ import annotations

from typing import Any, Callable, Tuple

import numpy as np
import paddle
import pytest

from benchmarks.programs.case import Case, Options, drafting
from tests import settled
from tests.backends.paddle3.running import (MIB, assert_equal, in_order, kept_uncollected,
                                            optimized, run)

WIDTH, ROWS = 512, 8
TERM = 4 * WIDTH * WIDTH  # bytes of a weight, its gradient, and what decays it
_REGULARIZERS: Tuple[Callable[[], Any], ...] = (lambda: paddle.regularizer.L2Decay(0.1),
                                                lambda: paddle.regularizer.L1Decay(0.1))
both = pytest.mark.parametrize('decay', _REGULARIZERS, ids=['L2', 'L1'])


def net(decay: Any, fetched: bool = False, clip: Any = None) -> Case:
    """Three layers of one size; where it is `fetched`, also the sum of the last gradient and what decays its weight."""
    with drafting(Options(static_batch=True), batch_size=ROWS) as draft:
        hidden = draft.floats('x', [ROWS, WIDTH])
        for _ in range(3):
            hidden = paddle.static.nn.fc(hidden, WIDTH, activation='tanh')
        loss = paddle.mean(hidden * hidden)
        paddle.optimizer.SGD(0.5, weight_decay=decay, grad_clip=clip).minimize(loss)
        sums = [op.result(0) for op in draft.main.global_block().ops if op.name() == 'pd_op.add_n']
        return draft.case([loss, *sums[-1:]] if fetched else [loss])


@both
def test_decay_needs_but_its_term_more(decay: Callable[[], Any]) -> None:
    """As said and as measured; the bytes are those of the untouched program."""
    bare, case = optimized(net(None)), net(decay())
    report = optimized(case)
    assert report.peak_bytes_before > 4 * TERM
    assert report.peak_bytes_after <= bare.peak_bytes_after + TERM
    assert_equal(run(net(decay())), run(case))
    with in_order():
        settled.assert_as_predicted(lambda: run(case, 1).peaks, (report.needed_bytes / MIB,))


@both
@pytest.mark.parametrize('clip', [None, paddle.nn.ClipGradByGlobalNorm(0.1)], ids=['', 'clipped'])
def test_the_bytes_are_the_same_without_a_collector(decay: Callable[[], Any], clip: Any) -> None:
    assert kept_uncollected(lambda: net(decay(), clip=clip)).count('pd_op.add_n') > 3


def test_a_sum_that_is_fetched_is_there() -> None:
    plain, case = run(net(_REGULARIZERS[0](), fetched=True)), net(_REGULARIZERS[0](), fetched=True)
    optimized(case)
    assert_equal(plain, run(case))
    assert any(np.frombuffer(each, np.float32)[1:].any() for each in plain.fetched)
