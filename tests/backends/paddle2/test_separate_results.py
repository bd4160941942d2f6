"""Products whose gradients can be made one by one: found by running kernels, and run with the operand gone that is not read."""
from __future__ import annotations

import json
from typing import Any, Callable, Dict

import numpy as np
import paddle
import pytest

from benchmarks.kernels.recipes import all_recipes
from benchmarks.kernels.separate import find
from tests.builds import needs_cpu_build
from tests.harness import ALL_MODES, WITHOUT_INPLACE, Case, check, fingerprint, new_programs
from tests.scenarios.common import data
from transpiler import memory_optimize
from transpiler.backends.paddle2.importer import import_program
from transpiler.backends.paddle2.registry import EMPTY_NAME, SEPARATE
from transpiler.ir import Op

BATCH = 8


def test_the_table_says_what_the_kernels_do() -> None:
    kept = json.loads(SEPARATE.read_text(encoding='utf-8'))
    found = find({
        name: all_recipes()[name]
        for name in ('images.conv2d', 'images.conv3d', 'images.conv2d_depthwise', 'shapes.bmm',
                     'shapes.matmul_batch', 'shapes.matmul_txy', 'shapes.matmul_weight_ty')
    })
    assert {'bmm_grad', 'conv2d_grad', 'conv3d_grad', 'depthwise_conv2d_grad',
            'matmul_v2_grad'} == {*found}
    assert found == {kind: kept[kind] for kind in found}


def _gradient(build: Callable[[], Any], both: bool = True) -> Op:
    """The op that makes the gradients of the product that `build` returns."""
    with new_programs() as (main, _):
        product, *operands = build()
        left_out = set() if both else {operands[1].name}
        paddle.static.gradients(product, operands[:1 + both], no_grad_set=left_out)
    ops = import_program(fingerprint(main)).graph.walk()
    made, = (op for op in ops if op.kind.endswith('_grad') and op.operands)
    return made


def _variable(name: str, *shape: int) -> Any:
    made = data(name, *shape)
    made.stop_gradient = False
    return made


def _matmul(*shapes: Any) -> Callable[[], Any]:

    def build() -> Any:
        x, y = (_variable(name, *shape) for name, shape in zip('xy', shapes))
        return paddle.matmul(x, y), x, y

    return build


def _conv(layout: str) -> Callable[[], Any]:

    def build() -> Any:
        image = _variable('x', *((2, 3, 8, 8) if layout == 'NCHW' else (2, 8, 8, 3)))
        filters = _variable('y', 4, 3, 3, 3)
        return paddle.nn.functional.conv2d(image, filters, data_format=layout), image, filters

    return build


@needs_cpu_build
@pytest.mark.parametrize(
    'build', [_conv('NCHW'), _matmul([8, 16], [16, 4]),
              _matmul([2, 8, 16], [16, 4])])
def test_each_gradient_does_without_its_own_operand(build: Callable[[], Any]) -> None:
    op = _gradient(build)
    assert len(op.facts.separate) == 2
    for result, unread in op.facts.separate:
        operand, = unread
        assert op.facts.alone(result).shape_only == {operand}


@pytest.mark.parametrize('build', [
    _conv('NHWC'),
    _matmul([16], [16]),
    _matmul([8, 16], [16]),
    _matmul([2, 8, 16], [1, 16, 4]),
    _matmul([3, 2, 8, 16], [2, 16, 4])
])
def test_where_the_kernel_goes_other_ways_nothing_is_said(build: Callable[[], Any]) -> None:
    assert not _gradient(build).facts.separate


def test_one_that_is_asked_for_alone_names_what_the_runtime_keeps() -> None:
    """Nothing has released it: the runtime keeps it for the op."""
    op = _gradient(_matmul([8, 16], [16, 4]), both=False)
    assert not op.facts.separate and not op.facts.unread_alone and not op.shape_reads()


def convolutions() -> Case:
    with new_programs() as (main, startup):
        hidden = paddle.static.data('image', [-1, 3, 16, 16])
        for filters in (16, 16, 16):
            hidden = paddle.nn.functional.relu(
                paddle.static.nn.conv2d(hidden, filters, 3, padding=1))
        loss = paddle.mean(paddle.static.nn.fc(hidden, 4))
        paddle.optimizer.Momentum(0.05).minimize(loss)
    return Case(main, startup, _images, [loss.name])


def _images(step: int) -> Dict[str, Any]:
    return {'image': np.random.RandomState(step).rand(BATCH, 3, 16, 16).astype('float32')}


def products() -> Case:
    with new_programs() as (main, startup):
        hidden = paddle.static.data('x', [-1, 16, 32])
        for _ in range(2):
            keys = paddle.nn.functional.relu(paddle.static.nn.fc(hidden, 32, num_flatten_dims=2))
            scores = paddle.nn.functional.softmax(paddle.matmul(keys, hidden, transpose_y=True))
            hidden = paddle.matmul(scores, keys)
        loss = paddle.mean(hidden)
        paddle.optimizer.Adam(0.05).minimize(loss)
    return Case(main, startup, _rows, [loss.name])


def _rows(step: int) -> Dict[str, Any]:
    return {'x': np.random.RandomState(step).rand(BATCH, 16, 32).astype('float32')}


@needs_cpu_build
@pytest.mark.parametrize('segments', [False, True])
@pytest.mark.parametrize('build', [convolutions, products])
@pytest.mark.parametrize('recompute', ['auto', 'max'])
def test_the_bytes_are_the_same(build: Callable[[], Case], segments: bool, recompute: Any) -> None:

    def optimise(case: Case) -> Any:
        report = memory_optimize(case.main,
                                 fetch_list=case.fetch,
                                 batch_size=BATCH,
                                 recompute=recompute,
                                 segments=segments)
        parts = [
            op for block in case.main.blocks for op in block.ops
            if op.type in ('conv2d_grad', 'matmul_v2_grad') and EMPTY_NAME in op.output_arg_names
        ]
        assert len(parts) > 1 and len({tuple(op.input_arg_names) for op in parts}) > 1
        return report

    check(build, optimise, WITHOUT_INPLACE if segments else ALL_MODES)
