"""Copies in other layouts that Paddle 3 makes of what oneDNN's kernels have computed, as most do in bfloat16."""
from __future__ import annotations

from typing import Any, Dict, Tuple

import paddle
import paddle.nn.functional as F
import pytest

from benchmarks.apart import apart
from benchmarks.programs.case import Case, Options, drafting
from tests import settled
from tests.backends.paddle3.running import (MIB, Build, assert_equal, in_order, optimized, run,
                                            uncollected)
from tests.processor import needs_bfloat16
from transpiler.backends.paddle3.importer import import_program


def layers(rows: int, width: int, inference: bool = False, halves: bool = True) -> Case:
    with drafting(Options(static_batch=True, inference=inference), batch_size=rows) as draft:
        weight = lambda: paddle.create_parameter([width, width], 'float32')
        hidden = paddle.matmul(draft.floats('x', [rows, 4, width]), weight())
        with paddle.amp.auto_cast(halves, level='O1', dtype='bfloat16'):
            for _ in range(3):
                hidden = F.gelu(paddle.matmul(hidden, weight()))
        loss = paddle.mean(paddle.cast(hidden, 'float32'))
        return draft.finish(loss, [loss])


def convolutions() -> Case:
    """What those of oneDNN make is of FP32, whatever the program says."""
    with drafting(Options(static_batch=True), batch_size=64) as draft:
        hidden = paddle.nn.Conv2D(3, 16, 3, padding=1)(draft.floats('x', [64, 3, 16, 16]))
        with paddle.amp.auto_cast(level='O1', dtype='bfloat16'):
            for _ in range(2):
                hidden = F.relu(
                    paddle.nn.BatchNorm2D(16)(paddle.nn.Conv2D(16, 16, 3, padding=1)(hidden)))
        return draft.finish(paddle.mean(hidden), [])


def test_who_reads_what_onednn_has_made_reads_a_copy() -> None:
    halves, whole = (
        import_program(layers(8, 16, halves=each).main).graph for each in (True, False))
    copied = [op for op in halves.ops if op.facts.relaid]
    assert copied and not any(op.facts.relaid for op in whole.ops)
    makers = {v: op.kind for op in halves.ops for v in op.results}
    made = {makers[op.operands[at]] for op in copied for at in op.facts.relaid}
    assert made and made.isdisjoint(op.kind for op in copied)


BUILDS: Dict[str, Build] = {
    'trained': lambda: layers(256, 256),
    'not trained': lambda: layers(256, 256, inference=True),
    'convolutions': convolutions
}


@needs_bfloat16
@pytest.mark.parametrize('name', BUILDS)
def test_they_are_in_what_a_program_is_said_to_need(name: str) -> None:
    build = BUILDS[name]
    report = optimized(build())
    assert not report.unknown_workspaces

    def first() -> Tuple[float]:
        settled.long_at_rest()
        case = build()
        optimized(case)
        return (run(case, 1).peaks[0],)

    settled.assert_as_predicted(first, (report.needed_bytes / MIB,))


@needs_bfloat16
@pytest.mark.parametrize('recompute', ['auto', 'max'])
def test_no_run_needs_more_than_is_sure_if_nothing_is_collected(recompute: str) -> None:
    with in_order():
        plain = run(layers(16, 64))
    case = layers(16, 64)
    report = optimized(case, recompute=recompute)
    with uncollected():
        seen = run(case)
    assert_equal(plain, seen)
    assert max(seen.peaks) * MIB <= report.sure_bytes


def _without_collection() -> Tuple[int, float]:
    paddle.set_flags({'FLAGS_eager_delete_tensor_gb': -1.0})
    case = layers(64, 64)
    report: Any = optimized(case)
    return report.sure_bytes, max(run(case, steps=3).peaks) * MIB


@needs_bfloat16
def test_nor_where_collection_is_off() -> None:
    surely, measured = apart(_without_collection)
    assert measured <= surely
