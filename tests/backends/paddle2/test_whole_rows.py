"""Every second of an odd number of rows: sizes at the rows that are fed are those of the tensors that come out."""
from __future__ import annotations

from fractions import Fraction

import numpy as np
import paddle
import pytest

from tests.harness import fingerprint, fresh_scope, new_programs
from tests.scenarios.common import data, train
from transpiler import memory_optimize
from transpiler.backends.paddle2.importer import import_program
from transpiler.ir import Graph, Size, ValueKind
from transpiler.ir.whole_rows import count_whole_rows


@pytest.mark.parametrize('rows', [1, 2, 3, 5, 7, 12])
def test_sizes_are_those_of_the_tensors(rows: int) -> None:
    with new_programs() as (main, startup):
        x = data('x', -1, 3, 16)
        x.stop_gradient = False
        second = paddle.tanh(x[::2])
        fourth = second[::2]
        columns = paddle.transpose(fourth, [1, 0, 2]).unsqueeze(0)
        strided = paddle.static.nn.conv2d(columns, 2, 3, stride=2, padding=1)
        train(paddle.mean(strided) + paddle.mean(second))
    gradients = [main.global_block().var(f'{each.name}@GRAD') for each in (x, second, fourth)]
    fetched = [second, fourth, columns, strided, *gradients]
    graph = import_program(fingerprint(main)).graph
    count_whole_rows(graph, {'N': rows})
    sizes = {value.name: value.size for value in graph.values}
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        found = executor.run(main, {'x': np.ones((rows, 3, 16), 'float32')}, fetched)
    for variable, value in zip(fetched, found):
        assert sizes[variable.name].evaluate({'N': rows}) == value.nbytes, variable.name


def test_figures_count_the_row_that_a_stride_rounds_up() -> None:
    with new_programs() as (main, _):
        paddle.nn.functional.softmax(data('x', -1, 64)[::2])
    row = 64 * 4
    report = memory_optimize(main, batch_size=5)
    assert report.peak_bytes_before == (5 + 3) * row


def test_sizes_that_are_no_product_of_the_shape_stay() -> None:
    graph, n = Graph(), Size.dim('N')
    value = graph.new_value('rows',
                            0,
                            kind=ValueKind.SELECTED_ROWS,
                            shape=(n * Fraction(1, 2),),
                            size=n * 4 + 8)
    count_whole_rows(graph, {'N': 3})
    assert value.size == n * 4 + 8
