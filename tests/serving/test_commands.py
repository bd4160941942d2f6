"""The command line on good inputs."""
from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import paddle
import pytest
from click.testing import CliRunner
from paddle import static
from paddle.base.proto import framework_pb2

from benchmarks.programs import build, small_options
from transpiler.backends.scopes import fresh_scope
from tests.serving.programs import contents, save_benchmark, save_tiny, training_program
from transpiler.cli import main
from transpiler.ir.text import parse, printed
from transpiler.report.data import human
from transpiler.report.lines import short_lines


@pytest.fixture
def folder(tmp_path) -> Path:
    save_tiny(tmp_path)
    (tmp_path / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    return tmp_path


def done(folder: Path, *arguments: str):
    here = os.getcwd()
    os.chdir(str(folder))
    try:
        result = CliRunner().invoke(main, list(arguments))
    finally:
        os.chdir(here)
    assert result.exit_code == 0, result.output
    return result


def test_optimize_says_what_it_wrote_and_what_it_saves(folder):
    result = done(folder, 'optimize', 'tiny.pdmodel', '-o', 'small', '--batch-size', '8', '--json')
    report = json.loads(result.stdout)
    assert 0 < report['peak_bytes_after'] < report['peak_bytes_before']
    assert 'small.pdmodel' in result.stderr and (folder / 'small.pdiparams').exists()


def test_help_says_of_each_command_and_option_what_it_is_and_breaks_nothing_off(folder):
    listed = done(folder, '--help').stdout.split('Commands:')[1].strip().splitlines()
    assert len(
        listed) == 8 and not [line for line in listed if not line.endswith('.') or '...' in line]
    for line in listed:
        name = line.split()[0]
        options = done(folder, name, '--help').stdout.split('Options:')[1]
        words = options.replace('\n', ' ').split('  -')[1:]
        assert [each for each in words if not re.search(r'[A-Za-z][.?]( |$)', each)] == [], name


def test_report_changes_nothing_and_tells_the_peak_as_it_is(folder):
    before = contents(folder)
    data = json.loads(done(folder, 'report', 'tiny', '--batch-size', '8', '--json').stdout)
    text = done(folder, 'report', 'tiny', '--batch-size', '8').stdout
    assert contents(folder) == before
    largest = data['peak_variables_before'][0]
    assert f"Largest at the peak, which is at {short_lines(data['peak_op_before'])}" in ' '.join(
        text.split())
    assert largest['name'] in text and 'programs.py' in largest['made_by']
    assert sum(v['bytes'] for v in data['peak_variables_before']) == data['peak_bytes_before']
    for size in (data['peak_bytes_before'], data['peak_bytes_after'], data['lower_bound_bytes']):
        assert human(size) in text


def test_report_tells_what_optimize_brings(folder):
    promised = json.loads(done(folder, 'report', 'tiny', '--batch-size', '8', '--json').stdout)
    kept = json.loads(
        done(folder, 'optimize', 'tiny', '-o', 'small', '--batch-size', '8', '--json').stdout)
    assert promised['peak_bytes_after'] == kept['peak_bytes_after']


def test_report_prints_the_graphs_that_are_compared(folder):
    said = done(folder, 'report', 'train.bin', '--fetch', 'loss', '--ir').stdout
    before, after = said[said.index('\n') + 1:].split('# after\n')
    graphs = parse(before), parse(after)
    assert [printed(graph) for graph in graphs] == [before, after]
    assert any(v.fed for v in graphs[0].values) and any(v.fetched for v in graphs[0].values)
    assert graphs[0] != graphs[1]


def test_report_has_a_row_for_each_block_with_its_loop(folder):
    case = build('loop', small_options('loop'))
    (folder / 'loop.bin').write_bytes(case.main.desc.serialize_to_string())
    arguments = ('report', 'loop.bin', '--fetch', case.fetch[0], '--trip-count', '4')
    data = json.loads(done(folder, *arguments, '--json').stdout)
    assert [(b['kind'], b['trips']) for b in data['blocks']] == [('block', 1), ('loop', 4),
                                                                 ('loop gradient', 4)]
    for side in ('before', 'after'):
        peaks = [b[f'peak_bytes_{side}'] for b in data['blocks']]
        assert max(peaks) == peaks[0] == data[f'peak_bytes_{side}']
    assert all(b['run_by'].startswith('while') for b in data['blocks'][1:])
    text = done(folder, *arguments).stdout
    assert '│ block 1, ' in text and '│ loop ' in text and 'kept per trip' in text


def test_blocks_of_a_served_program_are_found_again_in_what_optimize_makes(folder):
    path = save_benchmark(folder, 'demo')
    data = json.loads(done(folder, 'report', path.name, '--trip-count', '3', '--json').stdout)
    assert [(b['kind'], b['trips']) for b in data['blocks']] == [('block', 1), ('loop', 3)]
    assert all(0 < b['own_bytes_after'] <= b['own_bytes_before'] for b in data['blocks'])


def test_check_finds_equal_bytes_and_measures_both(folder):
    done(folder, 'optimize', 'tiny', '-o', 'small')
    rows = json.loads(done(folder, 'check', 'tiny', 'small', '--batch-size', '8', '--json').stdout)
    assert [row['equal'] for row in rows] == [True, True]
    assert max(rows[1]['peak_bytes']) < max(rows[0]['peak_bytes'])


@pytest.mark.usefixtures('forked_checks')
def test_a_program_without_parameters_is_optimised_without_a_file_of_them(folder):
    program = paddle.static.Program()
    with paddle.static.program_guard(program):
        x = paddle.static.data('x', [None, 64])
        y = paddle.tanh(paddle.scale(x, 2.0))
        paddle.static.save_inference_model(str(folder / 'bare'), [x], [y], paddle.static.Executor())
    done(folder, 'optimize', 'bare', '-o', 'less', '--batch-size', '8')
    assert [path.name for path in folder.glob('less.*')] == ['less.pdmodel']
    assert 'equal' in done(folder, 'check', 'bare', 'less', '--batch-size', '8').stdout


def test_check_finds_weights_that_differ(folder):
    done(folder, 'optimize', 'tiny', '-o', 'small')
    path = folder / 'small.pdiparams'
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2  # in the largest weight, that of the classifier
    raw[middle:middle + 400] = bytes(400)
    path.write_bytes(bytes(raw))
    result = CliRunner().invoke(main, ['check', str(folder / 'tiny'), str(folder / 'small')])
    assert result.exit_code == 3 and 'different bytes' in result.output


@pytest.mark.usefixtures('forked_checks')
def test_a_training_program_is_optimised_and_trains_to_the_same_bytes(folder):
    case = build('loop', small_options('loop'))
    (folder / 'loop.bin').write_bytes(case.main.desc.serialize_to_string())
    np.savez(str(folder / 'feed.npz'), **case.feed(0))
    loss = case.fetch[0]
    done(folder, 'optimize', 'loop.bin', '-o', 'better.bin', '--fetch', loss, '--trip-count', '4')
    assert (folder / 'better.bin').read_bytes() != (folder / 'loop.bin').read_bytes()
    rows = json.loads(
        done(folder, 'check', 'loop.bin', 'better.bin', '--fetch', loss, '--feed', 'feed.npz',
             '--json').stdout)
    assert [row['equal'] for row in rows] == [True, True]


@pytest.mark.usefixtures('forked_checks')
def test_parameters_of_static_save_are_copied_so_that_saving_again_keeps_those_of_the_input(folder):
    program = training_program()
    with fresh_scope():
        for value, name in ((0.01, 'state'), (0.02, 'new')):
            for variable in program.list_vars():
                if variable.persistable:
                    static.global_scope().var(variable.name).get_tensor().set(
                        np.full(variable.shape, value, 'float32'), paddle.CPUPlace())
            static.save(program, str(folder / name))
            if name == 'state':
                done(folder, 'optimize', 'state', '-o', 'new', '--fetch', 'loss')
                was = contents(folder)
                assert was['new.pdparams'] == was['state.pdparams']
                assert was['new.pdopt'] == was['state.pdopt']
                done(folder, 'check', 'state', 'new', '--fetch', 'loss', '--batch-size', '64')
    now = contents(folder)
    assert now['new.pdparams'] != was['new.pdparams']
    assert {
        n: now[n] for n in was if n.startswith('state')
    } == {
        n: raw for n, raw in was.items() if n.startswith('state')
    }


def test_force_replaces(folder):
    (folder / 'small.pdmodel').write_bytes(b'old')
    done(folder, 'optimize', 'tiny', '-o', 'small', '--force')
    assert framework_pb2.ProgramDesc.FromString((folder / 'small.pdmodel').read_bytes()).blocks


def test_a_budget_that_is_enough_is_accepted(folder):
    done(folder, 'optimize', 'tiny', '-o', 'small', '--budget', '6GB')


@pytest.mark.usefixtures('forked_checks')
def test_a_training_program_keeps_to_its_budget_by_recomputing(folder):
    """Between what parameters and the lowest peak need and what the plan without recomputing needs."""
    arguments = ('optimize', 'train.bin', '--fetch', 'loss', '--batch-size', '512', '--json')
    plain = json.loads(done(folder, *arguments, '-o', 'plain', '--max-overhead', '0').stdout)
    budget = plain['resting_bytes'] + plain['peak_bytes_after'] - 1
    fitting = json.loads(
        done(folder, *arguments, '-o', 'fitting', '--recompute', 'max', '--budget',
             str(budget)).stdout)
    assert fitting['resting_bytes'] + fitting['peak_bytes_after'] <= budget
    assert fitting['recompute']['clones'] > 0 and plain['recompute'] is None
    rows = json.loads(
        done(folder, 'check', 'train.bin', 'fitting', '--fetch', 'loss', '--batch-size', '512',
             '--json').stdout)
    assert all(row['equal'] for row in rows)


@pytest.mark.parametrize('name', ['a name', 'nämé 模型', './tiny', '../{folder}/tiny'])
def test_names_of_any_kind_are_read_and_written(folder, name):
    name = name.format(folder=folder.name)
    for suffix in ('.pdmodel', '.pdiparams'):
        (folder / f'tiny{suffix}').rename(folder / (name + suffix))
    done(folder, 'optimize', name, '-o', f'{name} out')
    assert (folder / f'{name} out.pdmodel').exists() and (folder / f'{name} out.pdiparams').exists()


def test_pack_writes_offsets_that_reach_the_bound(folder):
    (folder / 'p.csv').write_text('id,lower,upper,size\na,0,3,4\nb,1,2,4\nc,3,5,8\n')
    assert 'height 8, lower bound 8' in done(folder, 'pack', 'p.csv', '-o', 'q.csv').stdout
    assert (folder / 'q.csv').read_text().splitlines()[0] == 'id,lower,upper,size,offset'


def test_a_trace_holds_the_peak_as_a_counter(folder):
    done(folder, 'report', 'tiny', '--batch-size', '8', '--trace', 'trace.json')
    report = json.loads(done(folder, 'report', 'tiny', '--batch-size', '8', '--json').stdout)
    events = json.loads((folder / 'trace.json').read_text())['traceEvents']
    peaks = [
        max(e['args']['bytes'] for e in events if e['ph'] == 'C' and e['pid'] == p) for p in (1, 2)
    ]
    assert peaks == [report['peak_bytes_before'], report['peak_bytes_after']]
