"""memory_optimize(verify_runs=N) on Paddle 3."""
from __future__ import annotations

import re
from typing import Any

import numpy as np
import paddle
import pytest

from benchmarks.measure import state_names
from benchmarks.programs import loops, simple
from benchmarks.programs.case import Case, Options
from transpiler.backends.scopes import fresh_scope
from tests.backends.paddle3.running import optimized
from transpiler import VerificationError


def started() -> Case:
    """A chain whose startup program, which is not the default one, has run."""
    case = simple.fc_chain(Options(static_batch=True, layers=4, width=256, batch_size=64))
    paddle.static.Executor(paddle.CPUPlace()).run(case.startup)
    return case


def dice() -> str:
    """What random numbers will come, as text."""
    return re.sub('0x[0-9a-f]+', '', str(paddle.get_rng_state()[0]))  # less where it is


def first_made(program: Any) -> int:
    """The first op that computes."""
    kinds = [op.name() for op in program.global_block().ops]
    return next(at for at, kind in enumerate(kinds) if kind.startswith('pd_op.full'))


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


@pytest.mark.parametrize('build', (loops.loop, loops.gru_loop, loops.weights_in_cond_in_loop))
def test_loops_and_branches_that_are_trained_run_here(build: Any) -> None:
    """Paddle cannot write them for another process, and would abort. From the startup program, which has not run; nothing of this
    process has changed but the program."""
    case = build(Options(static_batch=True, trip_count=12, width=64, batch_size=16))
    paddle.seed(3)
    before = dice()
    with paddle.static.program_guard(case.main, case.startup), fresh_scope() as scope:
        report = optimized(case, verify_runs=3, verify_feed=[case.feed(0), case.feed(1)])
        assert dice() == before
        assert not [n for n in state_names(case.main) if scope.find_var(n) is not None]
    found = report.measured
    assert report.changed and found.equal and not found.note and found.runs == 3
    assert found.states == len(state_names(case.main)) > 1
    for side in (found.untouched, found.optimized):
        assert side.growth_bytes is None and side.cpu_seconds > 0
        assert min(side.first_peak_bytes, side.later_peak_bytes) > 0
    assert 'Measured in 3 runs, in this process' in str(report)
    assert 'the process grew by' not in str(report)


def test_loops_that_give_other_bytes_raise_and_the_program_is_as_it_was(monkeypatch: Any) -> None:
    case = loops.loop(Options(static_batch=True, trip_count=5, width=16, batch_size=4))
    before = str(case.main)
    monkeypatch.setattr('transpiler.backends.paddle3.programs.places_in_copy',
                        lambda program, copy, found, copies: [(first_made(copy), 0)])
    with paddle.static.program_guard(case.main, case.startup), fresh_scope():
        with pytest.raises(VerificationError, match='run 1'):
            optimized(case, verify_runs=1, verify_feed=case.feed(0))
    assert str(case.main) == before
