"""What Paddle makes of a program whose loops have storage from one trip to the next: a test program, a pruned and a saved one."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import paddle
import pytest

from tests.harness import Case, Mode, executor_mode, fresh_scope, new_programs
from tests.scenarios.common import data, fc, floats, random_feed, train
from transpiler import memory_optimize

HOLDING = Mode(collect=False)


def _loop(trains: bool) -> Case:
    with new_programs() as (main, startup):
        hidden = fc(data('x', 8, 32), 32, 'tanh')
        weight = paddle.create_parameter([32, 32], 'float32')
        trips = paddle.full([1], 3, 'int64')

        def step(index: Any, hidden: Any) -> List[Any]:
            return [index + 1, paddle.tanh(paddle.matmul(hidden, weight)) + paddle.sin(hidden)]

        start = [paddle.zeros([1], 'int64'), hidden]
        _, last = paddle.static.nn.while_loop(lambda index, _: index < trips, step, start)
        loss = paddle.mean(last * last)
        if trains:
            train(loss)
    return Case(main, startup, random_feed(x=floats(8, 32)), [loss.name])


def _for_test(case: Case, executor: Any, path: Path) -> Any:
    return case.main.clone(for_test=True), case.fetch


def _pruned(case: Case, executor: Any, path: Path) -> Any:
    return case.main._prune_with_input(['x'], list(case.fetch)), case.fetch


def _normalized(case: Case, executor: Any, path: Path) -> Any:
    block = case.main.global_block()
    return paddle.static.normalize_program(case.main, [block.var('x')],
                                           [block.var(case.fetch[0])]), case.fetch


def _saved(case: Case, executor: Any, path: Path) -> Any:
    block = case.main.global_block()
    paddle.static.save_inference_model(str(path / 'model'), [block.var('x')],
                                       [block.var(case.fetch[0])],
                                       executor,
                                       program=case.main)
    program, _, fetch = paddle.static.load_inference_model(str(path / 'model'), executor)
    return program, fetch


WAYS: Dict[str, Callable[..., Any]] = {
    'for test': _for_test,
    'pruned': _pruned,
    'normalized': _normalized,
    'saved': _saved
}


@pytest.mark.parametrize('way', WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize('trains', [True, False])
def test_what_paddle_makes_of_it_gives_equal_bytes(trains: bool, way: Callable[..., Any],
                                                   tmp_path: Path) -> None:

    def found(optimise: bool) -> List[bytes]:
        case, executor = _loop(trains), paddle.static.Executor(paddle.CPUPlace())
        with executor_mode(HOLDING), fresh_scope():
            executor.run(case.startup)
            if optimise:
                report = memory_optimize(case.main, fetch_list=list(case.fetch))
                assert report.changed and report.runtime == 'retaining'
            program, fetch = way(case, executor, tmp_path)
            return [
                np.asarray(executor.run(program, feed=case.feed(step),
                                        fetch_list=fetch)[0]).tobytes() for step in range(2)
            ]

    assert found(True) == found(False)
