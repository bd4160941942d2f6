"""A model that is saved from a program in which something runs again predicts what the untouched program's does."""
from __future__ import annotations

from pathlib import Path
from typing import Any, List

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import static

from transpiler import memory_optimize
from transpiler.backends.scopes import fresh_scope

paddle.enable_static()

X = np.random.RandomState(1).rand(4, 8, 16, 16).astype('float32')


def predicted(kind: str, optimise: bool, path: Path) -> List[bytes]:
    """What the end reads again is made by an op that does something else in tests."""
    paddle.seed(7)
    program, startup = static.Program(), static.Program()
    with static.program_guard(program, startup):
        x = static.data('x', [4, 8, 16, 16])
        hidden = paddle.nn.Conv2D(8, 16, 3, padding=1)(x)
        hidden = paddle.nn.BatchNorm2D(16)(hidden) if kind == 'batch norm' else F.dropout(
            hidden, 0.4)
        skip = F.relu(hidden)
        for _ in range(3):
            hidden = F.relu(paddle.nn.Conv2D(16, 16, 3, padding=1)(hidden))
        wide = paddle.concat([hidden, paddle.exp(-hidden), paddle.tanh(hidden)], 1)
        out = paddle.mean(skip * paddle.mean(wide, 1, keepdim=True), [1, 2, 3])
    executor = static.Executor(paddle.CPUPlace())
    with fresh_scope():
        paddle.seed(7)
        executor.run(startup)
        if optimise:
            memory_optimize(program, fetch_list=[out], recompute='max')
        static.save_inference_model(str(path / kind), [x], [out], executor, program=program)
        loaded, _, fetch = static.load_inference_model(str(path / kind), executor)
        return [
            executor.run(loaded, feed={'x': X + step}, fetch_list=fetch)[0].tobytes()
            for step in range(2)
        ]


@pytest.mark.parametrize('kind', ['batch norm', 'dropout'])
def test_it_predicts_the_same(kind: str, tmp_path: Path) -> None:
    assert predicted(kind, True, tmp_path) == predicted(kind, False, tmp_path)
