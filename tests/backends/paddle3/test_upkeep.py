"""What Paddle 3's executor keeps for ops, and for pairs of them, besides tensors: measured, against what the model says."""
from __future__ import annotations

from typing import Tuple

import numpy as np
import paddle

from benchmarks.apart import apart
from benchmarks.measure import process_bytes
from benchmarks.programs import PROGRAMS, Options
from tests.backends.paddle3.running import optimized
from transpiler import memory_optimize

OPS = 1500


def _grown(kind: str, ops: int) -> Tuple[int, Tuple[int, int]]:
    """Bytes by which this process grows in the first run of `ops` ops on one number, and the report's figures."""
    paddle.enable_static()
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        given = made = paddle.static.data('x', [1], 'float32')
        for _ in range(ops):
            made = paddle.tanh(made if kind == 'chain' else given)
    report = memory_optimize(main, fetch_list=[made])
    executor = paddle.static.Executor(paddle.CPUPlace())
    before = process_bytes('VmRSS')
    executor.run(main, feed={'x': np.ones(1, 'float32')}, fetch_list=[made])
    return process_bytes('VmHWM') - before, report.upkeep_bytes


def test_ops_take_what_the_model_says_between_those_without_any_order_and_those_in_one() -> None:
    wide, (predicted, same) = apart(_grown, 'wide', OPS)
    chain, (again, _) = apart(_grown, 'chain', OPS)
    assert predicted == same == again
    assert wide / 2 < predicted < chain


def test_pairs_take_more_than_ops() -> None:
    """Twice the ops take more than twice as much."""
    half, (predicted_half, _) = apart(_grown, 'chain', OPS // 2)
    whole, (predicted, _) = apart(_grown, 'chain', OPS)
    assert whole > 2.2 * half and predicted > 2.2 * predicted_half


def _for_releases() -> Tuple[int, int]:
    case = PROGRAMS['resnet50'](Options(batch_size=8, image_size=64, static_batch=True))
    before, after = optimized(case).upkeep_bytes
    return after - before, before


def test_releases_do_not_double_what_the_executor_keeps() -> None:
    """Each takes two ops for each value: only those of values that a late collector may hold."""
    more, before = apart(_for_releases)
    assert 0 < more < before
