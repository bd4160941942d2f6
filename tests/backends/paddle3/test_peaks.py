"""What is measured on Paddle 3: its ops run in several threads."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Tuple

import paddle
import pytest
from paddle.base import core

from benchmarks.apart import apart
from benchmarks.programs.case import Case, Options, drafting
from tests.backends.paddle3.running import MIB, run
from transpiler import memory_optimize
from transpiler.serving.apart import Peaks, empty_tensor

KIB = 1 << 10


def held_for_a_moment(kib: int) -> None:
    tensor = empty_tensor()
    tensor._set_dims([kib * KIB // 4])
    tensor._alloc_float(core.CPUPlace())


def test_a_peak_below_an_earlier_one_of_its_thread_is_seen() -> None:
    """Another thread than the one that asks, which once held more: Paddle's counter by itself would not rise."""
    with ThreadPoolExecutor(max_workers=1) as other:
        other.submit(held_for_a_moment, 32 * KIB).result()
        peaks, seen = Peaks(), []
        for kib in (8 * KIB, 16 * KIB, 4 * KIB):
            peaks.start_run()
            other.submit(held_for_a_moment, kib).result()
            seen.append(peaks.above_resting() // KIB)
    assert seen == [8 * KIB, 16 * KIB, 4 * KIB]


def _turned(value: Any) -> Any:
    """Three times, none of them in place."""
    for _ in range(3):
        value = paddle.flip(value, [0])
    return value


def _branch(x: Any) -> Any:
    return paddle.static.nn.cond(paddle.mean(x) > -100, lambda: _turned(x), lambda: x * 2)


def _loop(x: Any) -> Any:
    count, most = paddle.full([1], 0, 'int64'), paddle.full([1], 3, 'int64')
    return paddle.static.nn.while_loop(lambda i, _: i < most,
                                       lambda i, h: [i + 1, _turned(h)], [count, x])[1]


def _without_collection(make: Callable[[Any], Any]) -> Tuple[float, float, float]:
    """MiB above resting: what a program that does it twice is said to need, and surely, and what it needs."""
    paddle.set_flags({'FLAGS_eager_delete_tensor_gb': -1.0})
    with drafting(Options(static_batch=True, inference=True), batch_size=1024) as draft:
        twice = make(make(draft.floats('x', [1024, 1024])))
        case: Case = draft.case([paddle.mean(twice)], training=False)
    report = memory_optimize(case.main, fetch_list=list(case.fetch))
    said = [
        (each - report.resting_bytes) / MIB for each in (report.peak_bytes_after, report.sure_bytes)
    ]
    return said[0], said[1], max(run(case, steps=3).peaks)


@pytest.mark.parametrize('make', [_branch, _loop], ids=['branch', 'loop'])
def test_without_collection_what_is_made_inside_stays_and_is_surely_counted(
        make: Callable[[Any], Any]) -> None:
    said, surely, measured = apart(_without_collection, make)
    assert said < measured <= surely
