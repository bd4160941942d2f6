"""The callback that logs memory."""
from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import paddle
import pytest

from transpiler.callbacks import MemoryLog
from transpiler.errors import InvalidArgumentError

STEPS = [2, 4, 5]


class Written:

    def __init__(self) -> None:
        self.rows: List[Tuple[str, int, int]] = []

    def add_scalar(self, tag: str, value: int, step: int) -> None:
        self.rows.append((tag, value, step))


def test_each_step_that_was_asked_for_is_logged() -> None:
    was_dynamic = paddle.in_dynamic_mode()
    paddle.disable_static()
    try:
        lines: List[str] = []
        written, network = Written(), paddle.nn.Linear(64, 64)
        model = paddle.Model(network)
        model.prepare(paddle.optimizer.SGD(0.1, parameters=network.parameters()),
                      paddle.nn.MSELoss())
        data = [(np.ones([64], 'float32'), np.zeros([64], 'float32'))] * 5
        callback = MemoryLog(every=2, log=lines.append, writer=written)
        model.fit(data, batch_size=4, epochs=1, verbose=0, callbacks=[callback])
    finally:
        if not was_dynamic:
            paddle.enable_static()
    assert [use.step for use in callback.usages] == STEPS
    assert STEPS == [int(l.split()[1][:-1]) for l in lines]
    assert all(0 < use.process_bytes <= use.process_peak_bytes for use in callback.usages)
    peaks = [use.peak_bytes for use in callback.usages]
    assert peaks == sorted(peaks) and peaks[0] >= 64 * 64 * 4
    assert [row[2] for row in written.rows if row[0] == 'memory/peak_bytes'] == STEPS


@pytest.mark.parametrize('given', [{
    'every': 0
}, {
    'every': None
}, {
    'log': 'out.txt'
}, {
    'writer': 'logs'
}])
def test_what_cannot_be_logged_by_is_refused_at_once(given: Dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=f'^{list(given)[0]} '):
        MemoryLog(**given)
