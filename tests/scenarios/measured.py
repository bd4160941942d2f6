"""Programs that are there to be measured, not compared: large tensors, few operators."""
from __future__ import annotations

import paddle

from tests.harness import Case, new_programs
from tests.scenarios.common import data, floats, random_feed

WIDTH = 1 << 18


def hoisted() -> Case:
    """Independent towers of 16 MB tensors: one at a time in program order, all at once otherwise."""
    with new_programs() as (main, startup):
        seed = data("x", -1, 1)
        totals = []
        for scale in range(1, 9):
            wide = paddle.expand(seed * float(scale), [16, WIDTH])
            totals.append(paddle.mean(paddle.cumsum(wide, axis=1)))
        total = paddle.add_n(totals)
    return Case(main, startup, random_feed(x=floats(16, 1)), [total.name])
