"""A model that is saved from a program in which something runs again predicts what the untouched program's does."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import static

from transpiler import memory_optimize
from transpiler.backends.scopes import fresh_scope

paddle.enable_static()

X = np.random.RandomState(1).rand(4, 8, 16, 16).astype('float32')


def batch_norm(x: Any) -> List[Any]:
    return _skipping(x, paddle.nn.BatchNorm2D(16))


def dropout(x: Any) -> List[Any]:
    return _skipping(x, lambda hidden: F.dropout(hidden, 0.4))


def _skipping(x: Any, changing: Callable[[Any], Any]) -> List[Any]:
    """What the end reads again is made by an op that does something else in tests."""
    hidden = changing(paddle.nn.Conv2D(8, 16, 3, padding=1)(x))
    skip = F.relu(hidden)
    for _ in range(3):
        hidden = F.relu(paddle.nn.Conv2D(16, 16, 3, padding=1)(hidden))
    wide = paddle.concat([hidden, paddle.exp(-hidden), paddle.tanh(hidden)], 1)
    return [paddle.mean(skip * paddle.mean(wide, 1, keepdim=True), [1, 2, 3])]


def metric(x: Any) -> List[Any]:
    """Behind the backward part something reads what was made early, and is no part of the training."""
    hidden, made = x.reshape([128, 64]), []
    for _ in range(6):
        hidden = paddle.tanh(paddle.nn.BatchNorm1D(64)(paddle.static.nn.fc(hidden, 64)))
        made.append(hidden)
    loss = paddle.mean(hidden * hidden)
    paddle.optimizer.SGD(0.1).minimize(loss)
    return [loss, paddle.mean(paddle.exp(made[1])) + paddle.max(made[3])]


def predicted(make: Callable[[Any], List[Any]], optimise: bool, path: Path) -> List[bytes]:
    paddle.seed(7)
    program, startup = static.Program(), static.Program()
    with static.program_guard(program, startup):
        x = static.data('x', [4, 8, 16, 16])
        made = make(x)
    executor = static.Executor(paddle.CPUPlace())
    with fresh_scope():
        paddle.seed(7)
        executor.run(startup)
        if optimise:
            report = memory_optimize(program, fetch_list=made, recompute='max')
            assert (report.recompute is not None) == (make is metric)
        static.save_inference_model(str(path / 'model'), [x], made, executor, program=program)
        loaded, _, fetch = static.load_inference_model(str(path / 'model'), executor)
        return [
            each.tobytes()
            for step in range(2)
            for each in executor.run(loaded, feed={'x': X + step}, fetch_list=fetch)
        ]


@pytest.mark.parametrize('make', [batch_norm, dropout, metric])
def test_it_predicts_the_same(make: Callable[[Any], List[Any]], tmp_path: Path) -> None:
    assert predicted(make, True, tmp_path) == predicted(make, False, tmp_path)
