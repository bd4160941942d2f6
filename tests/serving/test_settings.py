"""What a process that serves should set: named for the program and the machine, and measured to bound what it grows by."""
from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import paddle
import pytest
from click.testing import CliRunner
from paddle import static
from paddle.base.proto import framework_pb2

from benchmarks.requests import EARLY, SIZES, WAYS, Row, requests
from benchmarks.requests import table as benchmark_table
from transpiler.backends.scopes import passing_scope
from transpiler.backends.settings import has_cpu_kernels_alone
from tests.serving.programs import training_program
from transpiler.cli import main
from transpiler.planning import PlanOptions
from transpiler.request import Request
from transpiler.serving import requests as serving_requests
from transpiler.serving import running
from transpiler.serving.files import read_program, write_program
from transpiler.serving.offline import optimize_saved
from transpiler.serving.wanted import Serving
from transpiler.serving.requests import RequestSpec, Served, serve_apart
from transpiler.serving.apart import CACHE_OF_ONE, SWITCHES, RunResult
from transpiler.serving.settings import (Settings, heap_settings, serve_settings, text)

_CHANNELS, _LAYERS, _SHAPES = 192, 4, 12
_WEIGHTS = _LAYERS * _CHANNELS * _CHANNELS * 9 * 4
_MIB = 2**20


@pytest.fixture(scope='module')
def wide(tmp_path_factory) -> Path:
    """Convolutions with large weights on images of any size, as a saved model."""
    paddle.enable_static()
    program, startup = static.Program(), static.Program()
    with static.program_guard(program, startup), paddle.utils.unique_name.guard():
        paddle.seed(1)
        image = hidden = static.data('image', [-1, _CHANNELS, -1, -1])
        for _ in range(_LAYERS):
            hidden = paddle.nn.Conv2D(_CHANNELS, _CHANNELS, 3, padding=1)(hidden)
        path = tmp_path_factory.mktemp('wide') / 'wide'
        executor = static.Executor(paddle.CPUPlace())
        with passing_scope() as scope, static.scope_guard(scope):
            executor.run(startup)
            static.save_inference_model(str(path), [image], [hidden], executor, program=program)
    return path


@pytest.fixture(scope='module')
def optimized(wide) -> Path:
    return written(wide, Serving())


def written(program: Path, serving: Serving) -> Path:
    saved, out = read_program(str(program)), program.with_name(f'small{serving.onednn}')
    done = optimize_saved(saved, Request(batch_size=1), PlanOptions(), serving)
    write_program(str(out), saved, done.serialized, done.replaced, force=True)
    return out


def names(settings: Settings):
    return settings.switches, [each.name for each in settings.file]


def test_a_program_as_it_is_is_told_what_optimize_would_do(wide):
    assert names(serve_settings(read_program(str(wide)))) == ([CACHE_OF_ONE,
                                                               'new_executor'], ['optimize'])


def test_what_optimize_wrote_needs_the_cache_alone_and_only_where_onednn_runs(wide, optimized):
    assert names(serve_settings(read_program(str(optimized)))) == ([CACHE_OF_ONE], [])
    plain = written(wide, Serving(onednn=False))
    assert names(serve_settings(read_program(str(plain)))) == ([], [])


def test_inputs_of_one_shape_need_no_cache_of_one(wide):
    saved = read_program(str(wide))
    message = framework_pb2.ProgramDesc.FromString(saved.serialized)
    dims = next(v for v in message.blocks[0].vars if v.name == 'image').type.lod_tensor.tensor.dims
    dims[:] = [1, _CHANNELS, 8, 8]
    assert serve_settings(replace(saved, message=message)).switches == ['new_executor']


@pytest.mark.parametrize('glibc, huge_pages, expected',
                         [((2, 36), True, ['GLIBC_TUNABLES']),
                          ((2, 36), False, ['MALLOC_MMAP_THRESHOLD_', 'MALLOC_ARENA_MAX']),
                          ((2, 31), True, ['MALLOC_MMAP_THRESHOLD_', 'MALLOC_ARENA_MAX']),
                          ((), True, [])])
def test_the_heap_is_set_as_the_machine_allows(glibc, huge_pages, expected):
    settings = Settings((), tuple(heap_settings(glibc, huge_pages)))
    assert list(settings.variables) == expected
    assert all(each.line == f'{each.name}={settings.variables[each.name]}'
               for each in settings.environment)


def test_this_glibc_takes_the_tunables_that_are_named():
    tunables, = heap_settings((2, 35), True)
    loader = next(Path('/').glob('lib*/ld-linux-*.so.*'))
    shown = subprocess.run([str(loader), '--list-tunables'],
                           env={
                               tunables.name: tunables.line.split('=', 1)[1]
                           },
                           stdout=subprocess.PIPE,
                           universal_newlines=True,
                           check=True).stdout
    values = dict(line.split(':', 1) for line in shown.splitlines())
    asked = dict(each.split('=') for each in tunables.line.split('=', 1)[1].split(':'))
    assert len(asked) == 3
    assert {name: int(values[name].split()[0], 16) for name in asked} == \
        {name: int(value) for name, value in asked.items()}


def test_a_process_with_the_settings_does_not_grow_with_each_shape(wide, optimized):
    feeds = []
    for index in range(_SHAPES):
        feeds.append(f'{wide}{index}.npz')
        np.savez(feeds[-1], image=np.full((1, _CHANNELS, 8, 8 + index), 0.1, 'float32'))
    order = list(range(_SHAPES)) * 2
    advice = serve_settings(read_program(str(optimized)))
    plain = serve_apart(RequestSpec(str(wide), feeds, order))
    kept = serve_apart(RequestSpec(str(optimized), feeds, order, advice.switches), advice.variables)
    assert kept.digests == plain.digests and len(set(plain.digests)) == _SHAPES
    # In a process with paddlepaddle-gpu the copies for the first two shapes fit into what loading left free.
    free = 0 if has_cpu_kernels_alone() else 2
    assert plain.growth_bytes > (_SHAPES - 1 - free) * _WEIGHTS
    assert kept.growth_bytes < plain.growth_bytes - (_SHAPES - 2 - free) * _WEIGHTS
    # From the second shape on nothing is kept of each.
    assert kept.resident_bytes[-1] - kept.resident_bytes[1] < 2 * _WEIGHTS


def test_the_command_names_lines_to_copy_and_json(wide, optimized):
    shown = CliRunner().invoke(main, ['serve-settings', str(optimized)])
    advice = serve_settings(read_program(str(optimized)))
    assert shown.exit_code == 0 and shown.output == text(advice)
    lines = [line.strip() for line in shown.output.splitlines()]
    for each in (*advice.predictor, *advice.environment):
        assert lines[lines.index(each.line) - 1] == f'# {each.does}'
    as_json = CliRunner().invoke(main, ['serve-settings', str(wide), '--json'])
    assert json.loads(as_json.output)['file'][0]['line'] in text(
        serve_settings(read_program(str(wide))))


def test_check_serves_both_and_the_second_with_the_settings_too(wide, optimized, monkeypatch):
    asked = []

    def answer(module, question, program, environment):
        asked.append((module.rsplit('.')[-1], program, question['settings'], dict(environment)))
        if module.endswith('requests'):
            assert question['order'] == [0] * 7
            return asdict(served([len(asked) * _MIB] * 7))
        return asdict(RunResult(0, [2, 1], 0, ['a'] * 2, ''))

    for module in (running, serving_requests):
        monkeypatch.setattr(module, 'answer_apart', answer)
    options = ['--requests', '7', '--feed', f'{wide}.npz', '--json']
    np.savez(f'{wide}.npz', image=np.zeros((1, _CHANNELS, 8, 8), 'float32'))
    rows = json.loads(CliRunner().invoke(
        main, ['check', str(wide), str(optimized), *options]).output)
    advice = serve_settings(read_program(str(optimized)))
    ways = [(f'{wide}.pdmodel', [], {}), (f'{optimized}.pdmodel', [], {}),
            (f'{optimized}.pdmodel', advice.switches, advice.variables)]
    assert asked == [(module, *way) for way in ways for module in ('running', 'requests')]
    assert [row['growth_bytes'] for row in rows] == [2 * _MIB, 4 * _MIB, 6 * _MIB]
    assert rows[-1]['run'] == f'{optimized}.pdmodel serve-settings'


def test_every_switch_that_is_named_is_one_of_paddles_config(wide):
    from paddle import inference
    for switch in SWITCHES.values():
        switch(inference.Config(*read_program(str(wide)).location))


def test_a_training_program_is_refused_in_one_line(tmp_path):
    path = tmp_path / 'train.bin'
    path.write_bytes(training_program().desc.serialize_to_string())
    shown = CliRunner().invoke(main, ['serve-settings', str(path)])
    assert shown.exit_code == 1 and shown.output.startswith('error: ')
    assert len(shown.output.splitlines()) == 1 and 'no predictor' in shown.output


def served(highest) -> Served:
    count = len(highest)
    return Served(0, highest, highest, 10 * _MIB, [0.1] * count, ['a'] * count)


def test_the_benchmark_tells_late_growth_as_a_share_of_growth():
    steady = [80 * _MIB] * EARLY
    row = Row('detector', 'default', served([*steady, 90 * _MIB, 100 * _MIB]), True)
    assert row.late_growth == pytest.approx(0.25)
    assert Row('detector', 'ours', served(steady), True).late_growth == 0
    cells = [list(column.cells)[0] for column in benchmark_table([row]).columns]
    assert cells[2:5] == ['100', '10.0', '25.0 %'] and cells[-1] == 'equal'


def test_each_size_has_come_before_growth_counts_as_late(tmp_path):
    files, order = requests('recogniser', tmp_path, EARLY)
    assert len(files) == SIZES and set(order) == set(range(SIZES)) and len(order) == EARLY
    assert WAYS['ours, serve-settings'].advised and not WAYS['default'].optimized
