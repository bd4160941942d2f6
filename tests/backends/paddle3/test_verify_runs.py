"""memory_optimize(verify_runs=N) on Paddle 3."""
from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest

from benchmarks.programs import loops, simple
from benchmarks.programs.case import Case, Options
from transpiler.backends.scopes import fresh_scope
from tests.backends.paddle3.running import optimized
from transpiler import InvalidArgumentError, VerificationError
from transpiler.backends.paddle3.programs import LivePrograms


def started() -> Case:
    """A chain whose startup program, which is not the default one, has run."""
    case = simple.fc_chain(Options(static_batch=True, layers=4, width=256, batch_size=64))
    paddle.static.Executor(paddle.CPUPlace()).run(case.startup)
    return case


def test_what_was_predicted_is_measured_and_the_bytes_are_equal() -> None:
    with fresh_scope():
        case = started()
        names = [
            op.attrs()['parameter_name']
            for op in case.main.global_block().ops
            if op.name() == 'builtin.parameter'
        ]
        held = lambda: [
            np.array(paddle.static.global_scope().find_var(n).get_tensor()).tobytes() for n in names
        ]
        before = held()
        report = optimized(case, verify_runs=2, verify_feed=[case.feed(0), case.feed(1)])
        assert before and held() == before
        out = paddle.static.Executor(paddle.CPUPlace()).run(case.main,
                                                            feed=case.feed(0),
                                                            fetch_list=list(case.fetch))
        assert np.isfinite(out[0]).all()
    found = report.measured
    assert report.changed and found.equal and found.states >= len(names) and found.runs == 2
    assert found.untouched.first_peak_bytes > 0
    assert 0.99 * report.needed_bytes <= found.optimized.first_peak_bytes
    assert 'equal to the last bit' in str(report)


def test_other_bytes_raise_and_the_program_is_as_it_was(monkeypatch: Any) -> None:
    """What the rewritten program fetches is taken from another place than it stands at."""
    with fresh_scope():
        case = started()
        monkeypatch.setattr('transpiler.backends.paddle3.programs.places_in_copy',
                            lambda program, copy, found, copies: [(1, 0)])
        before = str(case.main)
        with pytest.raises(VerificationError, match='run 1'):
            optimized(case, verify_runs=1, verify_feed=case.feed(0))
        assert str(case.main) == before


def test_trained_loops_are_refused_which_paddle_cannot_write() -> None:
    """It would abort this process."""
    case = loops.loop(Options(static_batch=True, trip_count=5, width=16, batch_size=4))
    before = str(case.main)
    with pytest.raises(InvalidArgumentError, match='loops or branches are trained'):
        optimized(case, verify_runs=1, verify_feed=case.feed(0))
    assert str(case.main) == before
