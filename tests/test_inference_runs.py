"""What runs again in programs that train nothing, run for real: equal bytes, and a lower first peak, which is the predicted one."""
from __future__ import annotations

from typing import Any, Dict, List

import numpy as np
import paddle
import pytest

from tests.builds import needs_cpu_build
from tests.harness import (ALL_MODES, DEFAULT_MODE, WITHOUT_INPLACE, Case, Mode, check,
                           executor_mode, fingerprint, fresh_scope, least_peak, measure_peak,
                           new_programs)
from tests.scenarios.common import data, floats, random_feed
from transpiler import MemoryBudgetError, memory_optimize

ORDERED = Mode(order="sequential")
# Statistics of the batch, which a batch norm that only tests names as results, a number each at the least, and does not make.
_NOT_MADE = 4 * len(("SavedMean", "SavedVariance"))


def _block(hidden: Any) -> Any:
    wide = paddle.static.nn.conv2d(hidden, 16, 1, bias_attr=False)
    inner = paddle.nn.functional.relu(paddle.static.nn.batch_norm(wide, is_test=True))
    return hidden + paddle.static.nn.conv2d(inner, 16, 1, bias_attr=False)


def global_skip() -> Case:
    """A batch norm that only tests makes what the end reads again, over blocks that need room of their own, as in networks that make
    images larger."""
    with new_programs() as (main, startup):
        image = data("x", 4, 4, 64, 64)
        skip = paddle.static.nn.batch_norm(paddle.static.nn.conv2d(image, 16, 1, bias_attr=False),
                                           is_test=True)
        hidden = skip
        for _ in range(3):
            hidden = _block(hidden)
        result = paddle.static.nn.conv2d(hidden + skip, 2, 1)
    return Case(main.clone(for_test=True), startup, random_feed(x=floats(4, 4, 64, 64)),
                [result.name])


def _options(**options: Any) -> Any:

    def optimise(case: Case) -> Any:
        return memory_optimize(case.main, fetch_list=list(case.fetch), **options)

    return optimise


def _clones(program: paddle.static.Program) -> List[str]:
    return [
        op.type for op in program.global_block().ops if any("@REBUILT" in name
                                                            for name in op.output_arg_names)
    ]


def test_nothing_runs_again_unless_it_is_asked_for() -> None:
    case, same = global_skip(), global_skip()
    report = _options()(case)
    assert report.recompute is None and _clones(case.main) == []
    _options(recompute=False)(same)
    assert fingerprint(case.main) == fingerprint(same.main)


@pytest.mark.parametrize("mode", ["max", "cheap"])
def test_what_runs_again_gives_equal_bytes_in_every_mode(mode: str) -> None:
    report = check(global_skip, _options(recompute=mode), modes=WITHOUT_INPLACE)
    assert (report.recompute is not None) == (mode == "max")
    if report.recompute is not None:
        case = global_skip()
        _options(recompute=mode)(case)
        assert {"batch_norm", "conv2d"} <= set(_clones(case.main))
        check(global_skip, _options(recompute=mode), modes=ALL_MODES[::3])


@pytest.mark.parametrize("mode", [DEFAULT_MODE, ORDERED], ids=str)
def test_the_first_run_needs_less_and_what_was_predicted(mode: Mode) -> None:
    free, lowest = _options()(global_skip()), _options(recompute="max")(global_skip())
    assert lowest.peak_bytes_after < free.peak_bytes_after == free.peak_bytes_before
    before = measure_peak("tests.test_inference_runs:global_skip", False, ORDERED, steps=1)
    assert before.first_above_resting() >= free.peak_bytes_before
    after = least_peak("tests.test_inference_runs:global_skip",
                       lowest.needed_bytes,
                       mode=mode,
                       options={"recompute": "max"})
    assert after.first_above_resting() == lowest.needed_bytes - _NOT_MADE


def test_a_budget_takes_what_costs_least_and_no_more() -> None:
    free, lowest = _options()(global_skip()), _options(recompute="max")(global_skip())
    least = lowest.resting_bytes + lowest.budget_bytes
    report = check(global_skip, _options(budget=least), modes=[DEFAULT_MODE, ORDERED])
    assert report.sure_bytes <= lowest.budget_bytes
    assert report.recompute.extra_seconds == lowest.recompute.extra_seconds > 0
    peak = measure_peak("tests.test_inference_runs:global_skip", True, options={"budget": least})
    assert max(peak.first, peak.later) <= least
    roomy = _options(budget=free.resting_bytes + free.budget_bytes)(global_skip())
    assert roomy.recompute is None
    case = global_skip()
    before = fingerprint(case.main)
    with pytest.raises(MemoryBudgetError):
        _options(budget=least - 1)(case)
    assert fingerprint(case.main) == before


def test_with_collection_off_a_budget_takes_it_too() -> None:
    lowest = _options(runtime="retaining", recompute="max")(global_skip())
    budget = lowest.resting_bytes + lowest.budget_bytes
    modes = [mode for mode in WITHOUT_INPLACE if not mode.collect]
    report = check(global_skip, _options(runtime="retaining", budget=budget), modes=modes)
    assert report.recompute is not None and report.sure_bytes <= lowest.budget_bytes


def test_clones_belong_to_the_forward_part_so_a_clone_for_test_keeps_them() -> None:
    case = global_skip()
    _options(recompute="max")(case)
    clones = _clones(case.main)
    assert clones and _clones(case.main.clone(for_test=True)) == clones


@needs_cpu_build
@pytest.mark.parametrize("said", [{"is_test": True}, {"use_global_stats": True}], ids=str)
def test_a_batch_norm_that_only_tests_leaves_its_statistics_alone(said: Dict[str, bool]) -> None:
    """What lets it run again: its results for them are the variables themselves, as they were."""
    with new_programs() as (main, startup):
        image = data("x", 4, 4, 8, 8)
        paddle.static.nn.batch_norm(image, **said)
    (op,) = [op for op in main.global_block().ops if op.type == "batch_norm"]
    names = op.input("Mean") + op.input("Variance")
    assert names == op.output("MeanOut") + op.output("VarianceOut")
    with executor_mode(DEFAULT_MODE), fresh_scope() as scope:
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        for name in names:
            scope.find_var(name).get_tensor().set(np.arange(1, 5, dtype="float32"),
                                                  paddle.CPUPlace())
        executor.run(main,
                     feed={"x": np.random.RandomState(1).rand(4, 4, 8, 8).astype("float32")},
                     fetch_list=op.output("Y"))
        assert [np.array(scope.find_var(n).get_tensor()).tolist() for n in names
               ] == [[1.0, 2.0, 3.0, 4.0]] * 2


def _trained_statistics(kind: str) -> Case:
    """What the end reads again is made by an op that does something else in tests."""
    with new_programs() as (main, startup):
        image = data("x", 4, 4, 32, 32)
        hidden = paddle.static.nn.conv2d(image, 16, 1, bias_attr=False)
        if kind == "batch norm":
            hidden = paddle.static.nn.batch_norm(hidden)
        else:
            hidden = paddle.nn.functional.dropout(hidden, 0.4)
        skip = paddle.nn.functional.relu(hidden)
        for _ in range(3):
            hidden = paddle.nn.functional.relu(paddle.static.nn.conv2d(hidden, 16, 1))
        wide = paddle.concat([hidden, paddle.exp(-hidden), paddle.tanh(hidden)], axis=1)
        result = paddle.mean(skip * paddle.mean(wide, axis=1, keepdim=True), axis=[1, 2, 3])
    return Case(main, startup, random_feed(x=floats(4, 4, 32, 32)), [result.name])


@pytest.mark.parametrize("kind", ["batch norm", "dropout"])
def test_a_test_program_made_of_one_in_which_something_runs_again_gives_equal_bytes(
        kind: str) -> None:
    """A clone would read statistics that nobody carries on, or a mask that nobody makes."""

    def tested(optimise: bool) -> List[bytes]:
        case = _trained_statistics(kind)
        if optimise:
            _options(recompute="max")(case)
        executor = paddle.static.Executor(paddle.CPUPlace())
        with fresh_scope():
            executor.run(case.startup)
            program = case.main.clone(for_test=True)
            return [
                executor.run(program, feed=case.feed(step), fetch_list=case.fetch)[0].tobytes()
                for step in range(2)
            ]

    assert tested(True) == tested(False)


def _with_a_metric() -> Case:
    """Behind the backward part something reads what was made early, and is no part of the training."""
    with new_programs() as (main, startup):
        hidden, made = data("x", 64, 128), []
        for _ in range(6):
            hidden = paddle.tanh(paddle.static.nn.batch_norm(paddle.static.nn.fc(hidden, 128)))
            made.append(hidden)
        loss = paddle.mean(hidden * hidden)
        paddle.optimizer.SGD(0.1).minimize(loss)
        metric = paddle.mean(paddle.exp(made[1])) + paddle.max(made[3])
    return Case(main, startup, random_feed(x=floats(64, 128)), [loss.name, metric.name])


def test_a_metric_behind_the_backward_part_is_the_same_in_a_test_program() -> None:
    """That has none of the clones of a training program."""

    def tested(optimise: bool) -> List[bytes]:
        case = _with_a_metric()
        if optimise:
            report = _options(recompute="max")(case)
            assert report.recompute is not None and report.recompute.clones > 0
        executor = paddle.static.Executor(paddle.CPUPlace())
        with fresh_scope():
            executor.run(case.startup)
            found = executor.run(case.main.clone(for_test=True),
                                 feed=case.feed(0),
                                 fetch_list=case.fetch)
            return [each.tobytes() for each in found]

    assert tested(True) == tested(False)
    check(_with_a_metric, _options(recompute="max"), modes=[DEFAULT_MODE, ORDERED], steps=2)
