"""Operators run once for each part of the batch: the same bytes, in less memory, for every batch size."""
from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, Optional

import numpy as np
import paddle
import pytest
from click.testing import CliRunner
from paddle import inference, static

from benchmarks.apart import apart
from benchmarks.programs import small_options
from transpiler.backends.scopes import fresh_scope
from tests.serving.programs import refused, save_benchmark, training_program
from tests.serving.test_predictor import optimized
from transpiler.cli import main
from transpiler.errors import InvalidArgumentError
from transpiler.planning import PlanOptions
from transpiler.request import Request
from transpiler.serving import comparing, row_wise
from transpiler.serving.enclosure import enclose
from transpiler.serving.files import read_program
from transpiler.serving.in_parts import Chain, run_in_parts
from transpiler.serving.offline import optimize_saved
from transpiler.serving.wanted import Serving
from transpiler.serving.probing import Probe
from transpiler.serving.apart import RunSpec
from transpiler.serving.running import SETTINGS, run

IN_PARTS = Serving(in_parts=True)
MODELS = ('mobilenet_v2', 'densenet121', 'inception_v3', 'transformer')


def results(path: str, **feed: np.ndarray):
    predictor = inference.create_predictor(inference.Config(path + '.pdmodel', path + '.pdiparams'))
    for name, value in feed.items():
        predictor.get_input_handle(name).copy_from_cpu(value)
    predictor.run()
    return [predictor.get_output_handle(n).copy_to_cpu() for n in predictor.get_output_names()]


_IN_A_PROCESS = comparing.answer_apart


@pytest.fixture(autouse=True)
def forked_probes(monkeypatch) -> None:
    """Programs are compared in a process of their own all the same, but it need not import Paddle each time."""

    def forked(_module: str, question: Dict[str, Any], _program: str) -> Optional[str]:
        return apart(comparing.compare, comparing.ProbeSpec(**question))

    monkeypatch.setattr(comparing, 'answer_apart', forked)


def test_programs_are_compared_in_a_process_of_the_users(tiny, monkeypatch):
    _, forked = optimized(tiny, 2, IN_PARTS)
    monkeypatch.setattr(comparing, 'answer_apart', _IN_A_PROCESS)
    _, usual = optimized(tiny, 2, IN_PARTS)
    assert saving(usual) == saving(forked) > 0


def saving(report) -> int:
    return dict(report.savings)['run in parts']


@pytest.mark.parametrize('name', MODELS)
def test_every_setting_gives_the_bytes_of_the_default_predictor(name, tmp_path):
    path = save_benchmark(tmp_path, name)
    feed = str(path) + '.npz'
    batch = small_options(name).batch_size
    out, report = optimized(path, batch, IN_PARTS)
    assert saving(report) > 0
    expected = run(RunSpec(str(path), feed, runs=1)).digests
    wrong = [
        s for s in SETTINGS
        if run(RunSpec(out, feed, settings=list(s), runs=2)).digests != expected * 2
    ]
    assert wrong == []


def assert_close(tiny: Path, out: str, rows: int) -> None:
    image = np.random.RandomState(rows).randn(rows, 3, 8, 8).astype('float32')
    (ours,), (plain,) = results(out, image=image), results(str(tiny), image=image)
    assert ours.shape == plain.shape == (rows, 10)
    assert np.abs(ours - plain).max() <= 1e-5 * np.abs(plain).max()


@pytest.mark.parametrize('release', [False, True])
def test_other_batch_sizes_than_that_of_the_hint_are_right(tiny, release):
    out, report = optimized(tiny, 8, Serving(release_inputs=release, in_parts=True))
    assert saving(report) > 0
    for rows in (1, 3, 8, 9, 16):
        assert_close(tiny, out, rows)


@pytest.mark.parametrize('parts', [2, 4, 8])
def test_any_number_of_rows_is_shared_out_whatever_the_number_of_parts(tiny, parts, tmp_path):
    saved = read_program(str(tiny))
    block = saved.message.blocks[0]
    ops = [op for op in block.ops if op.type not in ('feed', 'fetch')]
    chain = Chain(tuple(tuple(n for s in op.outputs for n in s.arguments) for op in ops), parts,
                  frozenset({'image'}), 'image')
    message = enclose(run_in_parts(saved.message, [chain]))
    (tmp_path / 'x.pdmodel').write_bytes(message.SerializeToString())
    (tmp_path / 'x.pdiparams').write_bytes(Path(str(tiny) + '.pdiparams').read_bytes())
    for rows in (1, 2, 3, 5, 8, 13):
        assert_close(tiny, str(tmp_path / 'x'), rows)


def test_paddles_own_kernels_give_the_bytes_of_a_predictor_without_onednn(tmp_path):
    path = save_benchmark(tmp_path, 'mobilenet_v2')
    feed = str(path) + '.npz'
    out, report = optimized(path, 2, Serving(onednn=False, in_parts=True))
    assert saving(report) > 0
    expected = run(RunSpec(str(path), feed, settings=['no_onednn'])).digests
    assert run(RunSpec(out, feed)).digests == expected


@pytest.mark.parametrize('setting', [(), ('memory_optim',), ('new_executor',)])
def test_the_measured_peak_is_the_predicted_one_and_lower_than_without_parts(tiny, setting):
    feed = str(tiny) + '.npz'
    whole = optimized(tiny, 2)[1]
    out, report = optimized(tiny, 2, IN_PARTS)
    measured = apart(run, RunSpec(out, feed, settings=list(setting)))
    assert report.peak_bytes_after == whole.peak_bytes_after - saving(report)
    assert max(measured.peak_bytes) <= 1.05 * report.peak_bytes_after + 1024
    assert max(measured.peak_bytes) < 0.9 * whole.peak_bytes_after


def test_many_runs_give_the_same_bytes(tiny):
    out, _ = optimized(tiny, 2, IN_PARTS)
    assert len(set(run(RunSpec(out, str(tiny) + '.npz', runs=30)).digests)) == 1


def test_without_the_flag_nothing_is_split(tiny):
    out, report = optimized(tiny, 8)
    assert b'.part.of.' not in Path(out + '.pdmodel').read_bytes()
    assert 'run in parts' not in dict(report.savings)


def test_the_report_says_what_is_proved_and_where(tiny):
    text = str(optimized(tiny, 8, IN_PARTS)[1])
    assert 'run in parts: ' in text
    flat = ' '.join(text.split())
    assert 'on this machine' in flat and 'one thread' in flat and '`check` repeats that' in flat


def test_a_written_program_reports_the_peak_that_it_has(tiny):
    out, report = optimized(tiny, 8, IN_PARTS)
    again = optimize_saved(read_program(out), Request(batch_size=8), PlanOptions())
    assert again.report.peak_bytes_after == report.peak_bytes_after


@pytest.mark.usefixtures('forked_checks')
def test_check_finds_equal_bytes(tiny):
    out, _ = optimized(tiny, 8, IN_PARTS)
    done = CliRunner().invoke(main, ['check', str(tiny), out, '--batch-size', '8', '--json'])
    assert done.exit_code == 0 and [row['equal'] for row in json.loads(done.stdout)] == [True] * 2


def test_in_parts_needs_a_batch_size(tiny):
    assert 'give --batch-size' in refused(tiny, '--in-parts')


def test_in_parts_is_for_predictors(tmp_path):
    (tmp_path / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    with pytest.raises(InvalidArgumentError, match='executor'):
        optimize_saved(read_program(str(tmp_path / 'train.bin')),
                       Request(fetch_list=['loss'], batch_size=8), PlanOptions(), IN_PARTS)


def test_a_batch_of_one_row_has_no_parts(tiny):
    out, report = optimized(tiny, 1, IN_PARTS)
    assert saving(report) == 0 and 'Nothing is run in parts' in report.note
    assert b'.part.of.' not in Path(out + '.pdmodel').read_bytes()


def test_what_differs_in_parts_is_not_split_and_is_named(tiny, monkeypatch):
    seen = []

    def differs(_, chains):
        seen.append(chains)
        made = [n for c in chains for names in c.ops for n in names]
        return made[2] if len(seen) == 1 else None

    monkeypatch.setattr(Probe, '__call__', differs)
    _, report = optimized(tiny, 2, IN_PARTS)
    refused_op = seen[0][0].ops[2]
    assert all(refused_op not in c.ops for chains in seen[1:] for c in chains)
    assert refused_op[0] in report.note and 'other bytes' in report.note


def test_when_everything_differs_nothing_is_split(tiny, monkeypatch):
    monkeypatch.setattr(Probe, '__call__', lambda _, chains: chains[0].ops[0][0])
    out, report = optimized(tiny, 2, IN_PARTS)
    assert saving(report) == 0 and b'.part.of.' not in Path(out + '.pdmodel').read_bytes()


def save_sums(
    folder: Path, inside: Callable[[Any], Any] = lambda x: paddle.cumsum(x, axis=0)) -> Path:
    """Sums over the rows, or something else, between two operators whose rows are independent."""
    paddle.enable_static()
    program, startup = static.Program(), static.Program()
    with static.program_guard(program, startup), paddle.utils.unique_name.guard():
        x = static.data('x', [-1, 256], 'float32')
        y = static.nn.fc(inside(static.nn.fc(x, 1024)), 4)
        executor = static.Executor(paddle.CPUPlace())
        with fresh_scope():
            executor.run(startup)
            static.save_inference_model(str(folder / 'sums'), [x], [y], executor, program=program)
    np.savez(str(folder / 'sums.npz'), x=np.random.RandomState(0).randn(8, 256).astype('float32'))
    return folder / 'sums'


def looped(x: Any) -> Any:
    start = paddle.full([1], 0, 'int64')
    return static.nn.while_loop(
        lambda at, _: at < 2,
        lambda at, x: [at + 1, paddle.concat([paddle.exp(x), x, x], 1)[:, :1024]], [start, x])[1]


def test_why_nothing_runs_in_parts_is_said_where_a_loop_needs_most(tmp_path):
    _, report = optimized(save_sums(tmp_path, looped), 8, IN_PARTS)
    assert 'Nothing is run in parts. Not in parts: what needs most, as that is in a' in report.note


def test_the_probe_finds_an_operator_whose_rows_are_not_independent(tmp_path, monkeypatch):
    path = save_sums(tmp_path)
    wrong = {**row_wise._RULES, 'cumsum': row_wise._Rule()}
    monkeypatch.setattr(row_wise, '_RULES', MappingProxyType(wrong))
    out, report = optimized(path, 8, IN_PARTS)
    feed = str(path) + '.npz'
    assert 'cumsum' in report.note and 'other bytes' in report.note
    assert run(RunSpec(out, feed)).digests == run(RunSpec(str(path), feed)).digests


def test_an_operator_that_nothing_is_known_of_is_named(tmp_path):
    out, report = optimized(save_sums(tmp_path), 8, IN_PARTS)
    feed = str(tmp_path / 'sums.npz')
    assert 'cumsum' in report.note
    assert run(RunSpec(out, feed)).digests == run(RunSpec(str(tmp_path / 'sums'), feed)).digests


def test_a_variable_that_is_written_twice_keeps_both_values(tmp_path):
    paddle.enable_static()
    program, startup = static.Program(), static.Program()
    with static.program_guard(program, startup), paddle.utils.unique_name.guard():
        x = static.data('x', [-1, 64], 'float32')
        wide = static.nn.fc(x, 512)
        first = paddle.tanh(wide)
        paddle.assign(paddle.exp(wide), output=wide)
        y = static.nn.fc(first * wide, 4)
        executor = static.Executor(paddle.CPUPlace())
        with fresh_scope():
            executor.run(startup)
            static.save_inference_model(str(tmp_path / 'x'), [x], [y], executor, program=program)
    feed = str(tmp_path / 'feed.npz')
    np.savez(feed, x=np.random.RandomState(0).randn(8, 64).astype('float32'))
    out, _ = optimized(tmp_path / 'x', 8, IN_PARTS)
    assert run(RunSpec(out, feed)).digests == run(RunSpec(str(tmp_path / 'x'), feed)).digests
