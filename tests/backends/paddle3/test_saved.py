"""The command line on programs of Paddle 3 in files: what it says, what it writes, and that this gives the same bytes."""
from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, List, Optional

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from click.testing import CliRunner
from paddle import static

from benchmarks.programs import simple
from benchmarks.programs.case import Options
from transpiler.backends.scopes import fresh_scope
from tests import settled
from tests.backends.paddle3.running import MIB, assert_equal, optimized, run
from tests.backends.paddle3.saved import contents, save, save_arrays, wide
from transpiler.backends.paddle3.marks import mark_of
from transpiler.backends.paddle3.packing import load
from transpiler.cli import main
from transpiler.serving.apart import RunSpec, predictor_of
from transpiler.serving.pir import running
from transpiler.serving.pir.files import read_model

paddle.enable_static()


@pytest.fixture(scope='module')
def original(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp('saved')
    save(folder / 'wide', wide, [None, 64])
    save_arrays(folder / 'x.npz', 64, 64)
    (folder / 'old.pdmodel').write_bytes(b'\x0a\x00')
    (folder / 'empty.json').write_bytes(b'')
    (folder / 'cut.json').write_bytes((folder / 'wide.json').read_bytes()[:900])
    (folder / 'other.json').write_text('{"name": "x"}')
    (folder / 'list.json').write_text('[1]')
    (folder / 'deep.json').write_text('{"a":' + '[' * 100_000)
    (folder /
     'none.json').write_text('{"base_code": {"magic": "pir", "version": 4}, "program": {}}')
    (folder / 'odd.json').write_text(
        (folder / 'wide.json').read_text().replace('matmul', 'matmull'))
    (folder / 'alone.json').write_bytes((folder / 'wide.json').read_bytes())
    for name, change in (('short', lambda b: b[:-9]), ('long', lambda b: b + b'1234'),
                         ('swapped', lambda b: b[:40])):
        (folder / f'{name}.json').write_bytes((folder / 'wide.json').read_bytes())
        (folder / f'{name}.pdiparams').write_bytes(change((folder / 'wide.pdiparams').read_bytes()))
    (folder / 'both.pdmodel').write_bytes(b'\x0a\x00')
    (folder / 'folder').mkdir()
    training(folder / 'train')
    save(folder / 'loop', looped, [None, 4])
    pair(folder / 'pair')
    save(folder / 'inside',
         lambda x: static.nn.cond(paddle.mean(x) > 0, lambda: dense(x), lambda: x), [4, 8])
    save(folder / 'by_name', lambda x: dense(paddle.tanh(dense(x, 'shared')), 'shared'), [4, 8])
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(str(original), str(tmp_path / 'saved')))


def training(path: Path) -> None:
    case = simple.fc_chain(Options(static_batch=True, layers=2, width=8, batch_size=4))
    with fresh_scope():
        static.Executor().run(case.startup)
        static.save(case.main, str(path))


def looped(x: Any) -> Any:
    zero = paddle.full([1], 0, 'int64')
    return static.nn.while_loop(lambda i, _: i < 3, lambda i, y: [i + 1, y * 2], [zero, x])[1]


def dense(x: Any, weight: Optional[str] = None) -> Any:
    return static.nn.fc(x, 8, weight_attr=paddle.ParamAttr(name=weight), bias_attr=False)


def pair(path: Path) -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), fresh_scope():
        a, b = (static.data(name, [None, 4]) for name in 'ab')
        y = static.nn.fc(a + b, 3)
        executor = static.Executor(paddle.CPUPlace())
        executor.run(startup)
        static.save_inference_model(str(path), [a, b], [y], executor, program=main)


def called(folder: Path, arguments: List[str]) -> Any:
    here = os.getcwd()
    os.chdir(str(folder))
    try:
        return CliRunner().invoke(main, arguments)
    finally:
        os.chdir(here)


def done(folder: Path, *arguments: str) -> Any:
    result = called(folder, list(arguments))
    assert result.exit_code == 0, result.output
    return result


def test_optimize_writes_an_order_that_a_predictor_holds(folder: Path) -> None:
    before = contents(folder)
    promised = json.loads(done(folder, 'report', 'wide', '--batch-size', '64', '--json').stdout)
    assert contents(folder) == before
    written = done(folder, 'optimize', 'wide', '-o', 'small', '--batch-size', '64', '--json')
    report = json.loads(written.stdout)
    assert report['changed'] and report['peak_bytes_after'] == promised['peak_bytes_after']
    assert 'small.json' in written.stderr and 'predictor fuses' in report['note']
    assert (folder / 'small.pdiparams').read_bytes() == (folder / 'wide.pdiparams').read_bytes()
    assert {**contents(folder), **before} == contents(folder)
    plain, small = (seen(folder, name) for name in ('wide', 'small'))
    assert small.digests == plain.digests and len(set(small.digests)) == 1
    most = report['peak_bytes_after'] + 0.2 * MIB
    peak, = settled.least(lambda: [min(seen(folder, 'small').peak_bytes)], [most])
    assert peak <= most < 2.1 * MIB < 4 * MIB <= min(plain.peak_bytes)


def seen(folder: Path, name: str) -> Any:
    return running.run(RunSpec(str(folder / name), str(folder / 'x.npz'), runs=6))


def test_check_compares_both_in_fresh_processes(folder: Path) -> None:
    done(folder, 'optimize', 'wide.json', '-o', 'small.json', '--batch-size', '8')
    rows = json.loads(done(folder, 'check', 'wide', 'small', '--batch-size', '8', '--json').stdout)
    assert [row['equal'] for row in rows] == [True, True]


def test_check_finds_weights_that_differ(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr('transpiler.serving.pir.checking.run_apart', running.run)
    monkeypatch.setattr('transpiler.serving.pir.checking.SETTINGS', ((), ('no_onednn',)))
    for suffix in ('.json', '.pdiparams'):
        shutil.copy(str(folder / f'wide{suffix}'), str(folder / f'same{suffix}'))
    text = done(folder, 'check', 'wide', 'same', '--feed', 'x.npz', '--every-setting').stdout
    assert text.count('equal') == 4 and 'no_onednn' in text
    raw = bytearray((folder / 'same.pdiparams').read_bytes())
    raw[-32:] = np.full(8, 1.5,
                        'float32').tobytes()  # of the last parameter; before it may stand a name
    (folder / 'same.pdiparams').write_bytes(bytes(raw))
    result = called(folder, ['check', 'wide', 'same'])
    assert result.exit_code == 3 and 'different bytes' in result.output


def test_every_setting_that_paddle_can_load_is_tried(folder: Path) -> None:
    """`enable_memory_optim` alone it cannot; when it can, this fails."""
    assert ('memory_optim', 'new_executor') in running.SETTINGS
    assert len(set(running.SETTINGS)) == len(running.SETTINGS)
    without = [each for each in running.SETTINGS if 'new_executor' not in each]
    assert without and not any('memory_optim' in each for each in without)
    for settings in without:
        with pytest.raises(ValueError, match='memory_optimize_pass'):
            predictor_of(read_model(str(folder / 'wide')).location, [*settings, 'memory_optim'])


def test_inputs_without_dims_are_drawn_too(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr('transpiler.serving.pir.checking.run_apart', running.run)
    save(tmp_path / 'number', lambda x: paddle.tanh(x) + static.nn.fc(paddle.ones([2, 2]), 2), [])
    rows = json.loads(done(tmp_path, 'check', 'number', 'number', '--json').stdout)
    assert [row['equal'] for row in rows] == [True, True]


def test_what_was_written_once_is_not_written_anew(folder: Path) -> None:
    done(folder, 'optimize', 'wide', '-o', 'small', '--batch-size', '8')
    again = json.loads(done(folder, 'optimize', 'small', '-o', 'smaller', '--json').stdout)
    assert not again['changed'] and 'earlier call' in again['note']
    assert (folder / 'smaller.json').read_bytes() == (folder / 'small.json').read_bytes()


@pytest.mark.parametrize('network', ['mobilenet_v2', 'resnet18'])
def test_networks_give_the_same_bytes(network: str, tmp_path: Path) -> None:
    make = getattr(paddle.vision.models, network)

    def build(x: Any) -> Any:
        net = make(num_classes=10)
        net.eval()
        return net(x)

    save(tmp_path / 'net', build, [None, 3, 32, 32])
    done(tmp_path, 'optimize', 'net', '-o', 'small', '--batch-size', '2')
    np.savez(str(tmp_path / 'x.npz'),
             x=np.random.RandomState(0).rand(2, 3, 32, 32).astype('float32'))
    both = [seen(tmp_path, name) for name in ('net', 'small')]
    assert both[0].digests == both[1].digests


def _read_twice(x: Any) -> Any:
    """What oneDNN's kernel makes is read by one that is not oneDNN's, and may work in place, and by another behind it, which needs less:
    in this order the predictor of 3.3.1 gives the other one what the first has made of it."""
    hidden = static.nn.fc(F.softmax(x), 64)
    return static.nn.fc(F.layer_norm(hidden, [64]) + paddle.cumsum(hidden, axis=-1), 8)


def _read_twice_in_its_order(x: Any) -> Any:
    hidden = static.nn.fc(F.softmax(x), 64)
    summed = paddle.cumsum(hidden, axis=-1)
    return static.nn.fc(F.layer_norm(F.layer_norm(hidden, [64]) + summed, [64]) * 1.0, 8)


@pytest.mark.parametrize('build', [_read_twice, _read_twice_in_its_order])
def test_readers_of_what_an_op_may_work_on_in_place_stay_on_their_side(build: Any,
                                                                       tmp_path: Path) -> None:
    save(tmp_path / 'net', build, [None, 64])
    done(tmp_path, 'optimize', 'net', '-o', 'small', '--batch-size', '8')
    np.savez(str(tmp_path / 'x.npz'), x=np.random.RandomState(0).rand(8, 64).astype('float32'))
    both = [seen(tmp_path, name) for name in ('net', 'small')]
    assert both[0].digests == both[1].digests


def test_a_program_without_parameters_is_written_without_a_file_of_them(tmp_path: Path) -> None:
    save(tmp_path / 'bare', lambda x: paddle.tanh(paddle.scale(x, 2.0)), [None, 64])
    done(tmp_path, 'optimize', 'bare', '-o', 'less')
    assert [path.name for path in tmp_path.glob('less.*')] == ['less.json']
    if paddle.__version__.startswith('3.0.'):
        return  # it loads no program without parameters, as it is either
    save_arrays(tmp_path / 'x.npz', 4, 64)
    assert seen(tmp_path, 'bare').digests == seen(tmp_path, 'less').digests


def test_a_program_that_trains_is_told_of_and_not_written(folder: Path) -> None:
    before = contents(folder)
    said = called(folder, ['optimize', 'train', '-o', 'out', '--fetch', 'x']).output
    assert 'call memory_optimize in the process that trains' in said and contents(folder) == before


def test_a_rewritten_program_can_be_saved_and_loaded(tmp_path: Path) -> None:
    """Its mark is in the file, and what is loaded trains as it did."""
    options = Options(static_batch=True, layers=3, width=64, batch_size=16)
    plain, case = (simple.fc_chain(options) for _ in range(2))
    assert optimized(case).changed
    with fresh_scope():
        static.Executor().run(case.startup)
        static.save(case.main, str(tmp_path / 'train'))
    program = load((tmp_path / 'train.json').read_bytes())
    assert mark_of(program)
    kinds = [[op.name() for op in each.global_block().ops] for each in (case.main, program)]
    assert kinds[0] == kinds[1]
    assert_equal(run(plain, 3), run(case, 3))


OPTIMIZE = ['optimize', 'wide', '-o', 'out']
REFUSED = {
    'no such file': (['report', 'nothing'], 'no such program: nothing'),
    'no such file to write from': (['optimize', 'nothing', '-o', 'out'], 'no such program'),
    'a program of Paddle 2': (['report', 'old.pdmodel'], 'a program of Paddle 2'),
    'a program of Paddle 2, by its stem': (['optimize', 'old', '-o', 'out'], 'Install paddlepaddle 2.6.2'),
    'a program of Paddle 2 to check': (['check', 'old', 'wide'], 'a program of Paddle 2'),
    'a folder with several': (['report', '.'], 'name the .json file'),
    'a folder with none': (['report', 'folder'], 'no .json file'),
    'the parameters': (['report', 'wide.pdiparams'], 'Did you mean wide.json?'),
    'arrays': (['report', 'x.npz'], 'not a JSON program'),
    'an empty file': (['report', 'empty'], 'the file is empty'),
    'a file that is cut off': (['report', 'cut'], 'damaged'),
    'JSON of something else': (['report', 'other'], 'not a program of Paddle 3'),
    'a JSON list': (['report', 'list.json'], 'not a JSON program'),
    'JSON without end': (['report', 'deep'], 'damaged'),
    'a header without a program': (['report', 'none'], 'damaged'),
    'an operator that is none': (['report', 'odd'], 'damaged'),
    'parameters that Paddle does not save': (['report', 'inside'], 'declared in a loop or a branch: Paddle saves no value'),
    'a parameter that Paddle saves once and reads twice': (['optimize', 'by_name', '-o', 'out'], "'shared' is declared 2 times"),
    'no parameters': (['report', 'alone'], 'parameters are missing'),
    'parameters that are cut off': (['report', 'short'], 'cut off'),
    'parameters with more behind them': (['report', 'long'], 'too many'),
    'parameters without data': (['optimize', 'swapped', '-o', 'out'], 'swapped.pdiparams'),
    'output that is the input': (['optimize', 'wide', '-o', 'wide'], 'part of the input'),
    'output that is there': (['optimize', 'wide', '-o', 'alone'], 'exists'),
    'output that is a folder': (['optimize', 'wide', '-o', 'folder'], 'is a directory'),
    'output in a folder to be': (['optimize', 'wide', '-o', 'new/'], 'new/ names a directory'),
    'no output': (['optimize', 'wide', '-o', ''], 'no file is named to write to'),
    'no program': (['report', ''], 'no program is named to read'),
    'output beside another program': (['optimize', 'wide', '-o', 'both'], 'both.pdmodel is there'),
    'a trace over the program': ([*OPTIMIZE, '--trace', 'out.pdiparams'], 'out.pdiparams'),
    'a name that is not fetched': (['report', 'wide', '--fetch', 'x'], 'fetches fetch_name_0'),
    'a name to skip that is none': (['report', 'wide', '--skip', 'nowhere'], "'nowhere'"),
    'in parts of no batch': ([*OPTIMIZE, '--in-parts'], 'give --batch-size'),
    'in parts, for the executor': (['report', 'train', '--fetch', 'x', '--in-parts'], 'planned for the executor'),
    'in parts of several batches': (['optimize', 'pair', '-o', 'out', '--in-parts', '--batch-size', '4'], 'several of open rows: a, b'),
    'in parts of a loop': (['optimize', 'loop', '-o', 'out', '--in-parts', '--batch-size', '4'], 'loops or branches'),
    'inputs given back': ([*OPTIMIZE, '--release-inputs'], '--release-inputs'),
    'without oneDNN': ([*OPTIMIZE, '--no-onednn'], 'disable_mkldnn'),
    'the executor': ([*OPTIMIZE, '--runtime', 'executor'], '--runtime predictor'),
    'a predictor for what trains': (['report', 'train', '--fetch', 'x', '--runtime', 'predictor'], 'no fetch operator'),
    'nothing to fetch': (['report', 'train'], '--fetch'),
    'a budget that nothing keeps': ([*OPTIMIZE, '--budget', '1KB'], 'no plan fits'),
    'requests': (['check', 'wide', 'wide', '--requests', '2'], '--requests'),
    'other arrays': (['check', 'wide', 'wide', '--feed', 'wide.pdiparams'], 'no .npz file'),
    'settings of a process': (['serve-settings', 'wide'], 'serve-settings'),
}  # yapf: disable


@pytest.mark.parametrize('name', REFUSED)
def test_what_cannot_be_done_gets_one_line_and_writes_nothing(name: str, original: Path) -> None:
    arguments, words = REFUSED[name]
    before = contents(original)
    result = called(original, arguments)
    assert result.exit_code == 1, result.output
    lines = result.output.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith('error: ') and 'internal' not in lines[0]
    assert words in lines[0] and contents(original) == before
