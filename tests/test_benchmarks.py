"""The benchmark programs build, and what the command measures can be trusted."""
from __future__ import annotations

import dataclasses
import gc
import json
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import paddle
import pytest
from click.testing import CliRunner

from benchmarks import curves, equality, measure, recompute, runner
from benchmarks.__main__ import main
from benchmarks.planning import Planning, growth, layers_for
from benchmarks.programs import (OPTIMIZERS, PROGRAMS, Options, UnknownProgramError, build,
                                 small_options)
from benchmarks.runner import EQUAL, difference, measure_in_child
from benchmarks.saving import save
from benchmarks.spec import Result, Spec
from tests.settled import at_rest, long_at_rest

LOOPS = ("loop", "gru_loop", "attention_loop", "nested_loops", "loop_in_cond", "cond_in_loop")


def op_types(case):
    return [op.type for block in case.main.blocks for op in block.ops]


# Are inference programs whatever the options say.
UNTRAINED = ("wide", "super_resolution", "residual_dense", "nested_unet")


def small_spec(name, steps=2, **changes):
    values = dataclasses.asdict(small_options(name))
    return Spec(name,
                tuple(sorted((key, value) for key, value in values.items() if value is not None)),
                steps=steps,
                **changes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_builds_small_and_for_training(name):
    case = build(name, small_options(name))
    assert set(case.feed(0)) <= {each.name for each in case.main.list_vars()}
    rows = case.batch_size
    assert case.fetch and (rows if isinstance(rows, int) else rows["label"]) == 2
    assert case.training == (name not in UNTRAINED)
    assert case.training == ("sgd" in op_types(case))


@pytest.mark.parametrize("name", [each for each in PROGRAMS if each != "resnet152"])
def test_every_program_builds_for_inference_without_gradients(name):
    case = build(name, small_options(name, inference=True))
    assert not case.training
    assert not [each for each in op_types(case) if each.endswith("_grad") or each in OPTIMIZERS]


@pytest.mark.parametrize("name", LOOPS)
def test_small_loops_change_all_their_parameters(name):
    case = build(name, small_options(name))
    executor, scope = paddle.static.Executor(), paddle.static.Scope()
    with paddle.static.scope_guard(scope):
        executor.run(case.startup)
        names = [each.name for each in case.main.all_parameters()]
        before = {each: np.array(scope.find_var(each).get_tensor()) for each in names}
        for step in range(6):
            loss, = executor.run(case.main, feed=case.feed(step), fetch_list=list(case.fetch))
            assert np.isfinite(loss)
        assert not [
            each for each in names
            if np.array_equal(before[each], np.array(scope.find_var(each).get_tensor()))
        ]


def test_the_table_shows_the_process_beside_the_tensors(tmp_path):
    out = tmp_path / "figures.json"
    asked = [
        "fc_chain", "--both", "--collection", "on", "--steps", "2", "--markdown", "--json",
        str(out)
    ]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    plain, optimized = (each["results"][0] for each in json.loads(out.read_text()))
    # What the tensors of a run took above resting, the process grew by at least.
    assert plain["growth_bytes"] > plain["peak_bytes"][0] > optimized["peak_bytes"][0] > 0
    assert optimized["growth_bytes"] > optimized["peak_bytes"][0]
    assert 0 < plain["anonymous_growth_bytes"] <= plain["growth_bytes"]
    head, _, row = done.output.strip().splitlines()[-3:]
    cells = dict(zip(head.split(" | "), row.split(" | ")))
    assert cells["process: untouched"] == "{:.0f}".format(plain["growth_bytes"] / 2**20)
    assert row.split(" | ")[2] == "{:.0f}".format(optimized["growth_bytes"] / 2**20)
    assert "{:.1f}".format(plain["step_seconds"][0]) in row and "equal" in row


def test_a_saved_program_leaves_no_parameters_in_memory(tmp_path):
    before = long_at_rest()
    save(tmp_path, "mobilenet_v2", small_options("mobilenet_v2"))
    gc.collect()
    # Less, if a test before left something to the collector.
    assert at_rest() <= before


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_optimizer_updates_the_parameters(optimizer):
    case = build("fc_chain", small_options("fc_chain", optimizer=optimizer))
    assert op_types(case).count(optimizer) == len(case.main.all_parameters())


def test_a_batch_is_symbolic_unless_asked_otherwise():
    symbolic = build("fc_chain", small_options("fc_chain"))
    concrete = build("fc_chain", small_options("fc_chain", static_batch=True))
    assert symbolic.main.global_block().var("x").shape == (-1, 8)
    assert concrete.main.global_block().var("x").shape == (2, 8)


def test_dropout_can_be_put_in_a_cell_and_left_out_of_a_network():
    assert "dropout" in op_types(build("gru_loop", small_options("gru_loop", dropout=0.5)))
    assert "dropout" not in op_types(build("vgg16", small_options("vgg16", dropout=0.0)))


def test_the_feed_of_a_step_is_the_same_each_time_and_differs_between_steps():
    feed = build("demo", small_options("demo")).feed
    assert all(np.array_equal(value, feed(3)[name]) for name, value in feed(3).items())
    assert not all(np.array_equal(value, feed(4)[name]) for name, value in feed(3).items())


@pytest.mark.parametrize("name", ["transformer", "cond_in_loop"])
def test_two_processes_give_equal_bytes(name):
    first, second = (measure_in_child(small_spec(name)) for _ in range(2))
    assert difference(first, second) == EQUAL
    assert first.resting_bytes == second.resting_bytes > 0
    assert len(first.peak_bytes) == len(first.step_seconds) == len(first.fetched) == 2
    assert Result.from_dict(json.loads(json.dumps(first.to_dict()))) == first


def hold(count):
    """A tensor of that many floats."""
    tensor = paddle.base.core.LoDTensor()
    tensor._set_dims([count])
    tensor._alloc_float(paddle.CPUPlace())
    return tensor


def test_a_watcher_sees_a_peak_that_the_counter_misses():
    """The counter looks only when a thread holds more than it ever did, and this one did hold more."""
    paddle.enable_static()
    long_at_rest()  # what earlier tests have left is not freed in between
    with ThreadPoolExecutor(max_workers=1) as worker:
        worker.submit(lambda: hold(2 << 20)._clear()).result()
        peaks = measure.Peaks()
        peaks.start_run()
        with measure.Watcher() as watcher:
            held = worker.submit(hold, 1 << 20).result()
            while watcher.highest < measure.current_bytes():
                time.sleep(0.001)
        seen = peaks.above_resting(), peaks.above_resting(watcher.highest)
        worker.submit(held._clear).result()
    counted, watched = seen  # what other threads of this process free in the meantime is some bytes
    assert counted < 1 << 20 and watched >= 4 << 20


def test_a_lower_peak_of_a_later_run_is_seen():
    paddle.enable_static()
    long_at_rest()
    peaks = measure.Peaks()
    seen = []
    for count in (1 << 20, 1 << 18, 1 << 19):
        peaks.start_run()
        tensor = hold(count)
        del tensor
        seen.append(peaks.above_resting())
    assert seen == [4 << 20, 4 << 18, 4 << 19]
    assert peaks.held() == 0


def test_differences_name_the_step_or_the_state():
    spec = Spec("fc_chain")
    result = Result(spec, 1, 0, (1, 1), 0, 0, (1.0, 1.0), (("aa",), ("bb",)), "cc")
    other_loss = dataclasses.replace(result, fetched=(("aa",), ("dd",)))
    other_state = dataclasses.replace(result, state_sha256="dd")
    assert difference(result, result) == EQUAL
    assert difference(result, other_loss) == "fetched values differ at step 1"
    assert difference(result, other_state) == "parameters or statistics differ"


def test_memory_optimize_gets_only_the_hints_that_it_knows(monkeypatch):
    seen = {}

    def memory_optimize(input_program, *, fetch_list=None, batch_size=None, trip_count=None):
        seen.update(fetch_list=fetch_list, batch_size=batch_size, trip_count=trip_count)
        return types.SimpleNamespace(changed=True,
                                     peak_bytes_before=3,
                                     peak_bytes_after=2,
                                     lower_bound_bytes=1,
                                     needed_bytes=4,
                                     sure_bytes=5,
                                     budget_bytes=7,
                                     resting_bytes=6,
                                     recompute=None)

    monkeypatch.setitem(sys.modules, "transpiler",
                        types.SimpleNamespace(memory_optimize=memory_optimize))
    case = build("loop", small_options("loop"))
    prediction = measure.optimize(case, Spec("loop", optimized=True, level=1, recompute="max"))
    assert seen == {"fetch_list": list(case.fetch), "batch_size": 2, "trip_count": 3}
    assert (prediction.peak_bytes_before, prediction.peak_bytes_after) == (3, 2)
    assert (prediction.needed_bytes, prediction.sure_bytes) == (4, 5)
    assert (prediction.resting_bytes, prediction.budget_bytes) == (6, 7)


def test_an_unknown_program_gives_one_clear_error():
    with pytest.raises(UnknownProgramError, match="unknown program 'nonsense': choose from"):
        build("nonsense", Options())
    outcome = CliRunner().invoke(main, ["nonsense"])
    assert outcome.exit_code == 1
    assert outcome.output.startswith("Error: unknown program 'nonsense'")


def test_the_list_names_every_program():
    outcome = CliRunner().invoke(main, ["--list"])
    assert outcome.exit_code == 0
    assert [line.split()[0] for line in outcome.output.splitlines()] == list(PROGRAMS)


def test_the_command_prints_a_table_and_writes_json(tmp_path):
    out = tmp_path / "figures.json"
    outcome = CliRunner().invoke(main, [
        "fc_chain", "--collection", "on", "--steps", "2", "--width", "8", "--batch-size", "2",
        "--json",
        str(out)
    ])
    assert outcome.exit_code == 0, outcome.output
    assert "fc_chain" in outcome.output
    figures, = json.loads(out.read_text())
    assert figures["spec"]["options"] == {"batch_size": 2, "optimizer": "sgd", "width": 8}
    assert figures["first_peak_bytes"]["minimum"] > 0


def test_a_row_of_the_table_of_readme_has_both_or_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(runner, "measure_in_child", lambda spec: pytest.fail("measured"))
    outcome = CliRunner().invoke(main, ["lstm", "--optimized", "--markdown"])
    assert outcome.exit_code == 2 and "give --both, too" in outcome.output


def test_a_failed_measurement_is_shown_and_does_not_stop_the_others(monkeypatch):

    def fail(spec):
        if spec.program == "bert":
            raise runner.MeasurementError("no more memory")
        return Result(spec, 1, 0, (1, 1), 0, 0, (1.0, 1.0), (("aa",), ("bb",)), "cc")

    monkeypatch.setattr(runner, "measure_in_child", fail)
    outcome = CliRunner().invoke(main, ["bert", "lstm", "--collection", "on"])
    assert outcome.exit_code == 1
    assert "failed" in outcome.output and "no more memory" in outcome.output
    assert "lstm" in outcome.output and "reference" in outcome.output


def test_planning_sizes_programs_by_layers_and_reports_the_exponent():
    options = small_options("fc_chain")
    layers = layers_for("fc_chain", options, 200)
    sizes = [
        len(op_types(build("fc_chain", dataclasses.replace(options, layers=each))))
        for each in (layers - 1, layers)
    ]
    assert sizes[0] < 200 <= sizes[1]
    small, large = Planning("x", 100, 0, 9.0, 1.0), Planning("x", 200, 0, 9.0, 4.0)
    assert growth(small, large) == pytest.approx(2)


def test_the_equality_of_a_case_is_checked_in_every_mode():
    verdict = equality.check_in_child(equality.Request("lstm", "sgd", 1, 2))
    assert verdict.sound and verdict.changed == equality.RUNTIMES
    assert verdict.runs == len(equality.MODES) + 2


def test_a_difference_is_named_by_its_step_or_as_one_of_the_state():
    first = equality.Outcome((("00",), ("01",)), "a")
    assert first.difference(first) is None
    assert first.difference(equality.Outcome((("00",), ("02",)), "a")).endswith("step 1")
    assert first.difference(equality.Outcome(first.fetched, "b")).startswith("parameters")


def test_releasing_is_measured_as_well():
    result = measure_in_child(
        small_spec("fc_chain", optimized=True, released=True, collection=False))
    assert result.prediction.changed
    assert result.ops > measure_in_child(small_spec("fc_chain", collection=False)).ops


def test_budgets_fall_from_all_to_the_least_and_start_with_what_mirroring_reached():
    mib = 2**20
    study = recompute.Study("p", {}, mirrored_mib=3.0, parameter_gradients_mib=1.0)
    assert [b / mib for b in recompute.budgets(study, 2 * mib, 6 * mib, 3)] == [4, 6, 2]
    assert recompute.budgets(dataclasses.replace(study, mirrored_mib=9.0), 2, 6,
                             5) == [6, 5, 4, 3, 2]
    assert recompute.budgets(recompute.Study("p", {}), 2, 2, 4) == [2]


def test_a_document_s_table_has_the_columns_in_which_something_stands():
    spec = Spec("fc_chain", budget=20)
    result = Result(spec, 1, 10, (10, 11), 0, 0, (1.0, 1.0), (("aa",), ("bb",)), "cc", None, True,
                    (2.0, 1.5))
    row = recompute.Row("case1", "budget", result, result)
    head, rule, line = recompute.markdown([row]).splitlines()
    assert "budget" in head and "mirrored" not in head and rule == "|" + "---|" * head.count(
        " | ") + "---|"
    assert not row.meets_budget and "| broken |" in line and "+0.0%" in line


def test_a_picture_shows_our_plans_as_a_curve_and_the_others_beside_it(tmp_path):
    mib = 2**20
    said = {"peak_bytes_after": 1}
    rows = [
        dict(study="nmt", kind="untouched", extra=0.0, peak_bytes=[9 * mib], prediction=None),
        dict(study="nmt", kind="max", extra=0.2, peak_bytes=[2 * mib, 3 * mib], prediction=said),
        dict(study="nmt", kind="auto", extra=0.1, peak_bytes=[4 * mib], prediction=said),
        dict(study="nmt",
             kind=curves.THEIRS,
             extra=0.3,
             peak_bytes=[5 * mib, 8 * mib],
             prediction=None)
    ]
    assert curves.points(rows) == [(20.0, 3.0), (10.0, 4.0)]
    panels = curves.draw({"nmt": rows}).axes
    assert [panel.get_visible() for panel in panels] == [True, False, False]
    lines = {line.get_label(): list(zip(*line.get_data())) for line in panels[0].lines}
    assert lines["memory_optimize"] == curves.points(rows)
    assert lines["untouched"] == [(0, 9.0)] and lines["its later runs"] == [(30.0, 8.0)]
    assert lines["MXNet's mirroring"] == [(pytest.approx(7.9), 506.0)]
    file, picture = tmp_path / "rows.json", tmp_path / "curves.png"
    file.write_text(json.dumps(rows))
    assert CliRunner().invoke(curves.main, [str(file), "--picture", str(picture)]).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
