"""What is measured on Paddle 3: its ops run in several threads."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from paddle.base import core

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
