"""What the report counts as large as the data of a run can make it, it names."""

from __future__ import annotations

import pytest

pytest.importorskip('paddle')  # make test-core has none

import paddle

from tests.harness import new_programs
from tests.scenarios.common import data, train
from transpiler import memory_optimize
from transpiler.report import MemoryReport

_BOUNDED = 'Counted as large as the data of a run can make them: '
_LAYOUTS = 'What kernels in layouts of their own exchange'


def _looked_up(sparse: bool) -> MemoryReport:
    with new_programs() as (main, _):
        rows = paddle.static.nn.embedding(data('ids', -1, 1, dtype='int64'), [1000, 8],
                                          is_sparse=sparse)
        train(paddle.mean(paddle.tanh(rows)))
    return memory_optimize(main, batch_size=4)


def test_rows_of_a_table_count_as_if_no_id_came_twice() -> None:
    report = _looked_up(sparse=True)
    assert report.bounded_sizes == ['embedding_0.w_0@GRAD']
    assert _BOUNDED + 'embedding_0.w_0@GRAD' in str(report)


def test_figures_that_no_data_changes_are_no_bounds() -> None:
    report = _looked_up(sparse=False)
    assert not report.bounded_sizes and not report.bounded_layouts
    assert _BOUNDED not in str(report) and _LAYOUTS not in str(report)


def test_what_data_picks_counts_as_if_it_picked_all() -> None:
    with new_programs() as (main, _):
        given = data('x', -1, 8)
        picked = paddle.masked_select(given, given > 0)
        paddle.mean(paddle.tanh(picked))
    assert picked.name in memory_optimize(main, batch_size=4).bounded_sizes


def test_what_is_in_other_layouts_counts_as_if_the_first_run_held_all_of_it() -> None:
    with new_programs() as (main, _):
        loss = paddle.mean(paddle.static.nn.fc(data('x', 4, 64), 64))
        lists = paddle.static.amp.bf16.AutoMixedPrecisionListsBF16()
        optimizer = paddle.static.amp.bf16.decorate_bf16(paddle.optimizer.SGD(0.1), amp_lists=lists)
        optimizer.minimize(loss)
    report = memory_optimize(main)
    assert report.bounded_layouts and _LAYOUTS in str(report)
