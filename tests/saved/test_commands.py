"""The command line on good inputs."""
from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import paddle
import pytest
from click.testing import CliRunner
from paddle import static
from paddle.base.proto import framework_pb2

from benchmarks.programs import build, small_options
from tests.saved.programs import contents, save_tiny, training_program
from transpiler.cli import main


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


def test_report_changes_nothing_and_names_the_peak(folder):
    before = contents(folder)
    text = done(folder, 'report', 'tiny', '--batch-size', '8').stdout
    assert contents(folder) == before
    assert 'Largest at the peak' in text and 'lower bound' in text


def test_check_finds_equal_bytes_and_measures_both(folder):
    done(folder, 'optimize', 'tiny', '-o', 'small')
    rows = json.loads(done(folder, 'check', 'tiny', 'small', '--batch-size', '8', '--json').stdout)
    assert [row['equal'] for row in rows] == [True, True]
    assert max(rows[1]['peak_bytes']) < max(rows[0]['peak_bytes'])


def test_check_finds_weights_that_differ(folder):
    done(folder, 'optimize', 'tiny', '-o', 'small')
    path = folder / 'small.pdiparams'
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2  # in the largest weight, that of the classifier
    raw[middle:middle + 400] = bytes(400)
    path.write_bytes(bytes(raw))
    result = CliRunner().invoke(main, ['check', str(folder / 'tiny'), str(folder / 'small')])
    assert result.exit_code == 3 and 'different bytes' in result.output


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


def test_a_program_of_static_save_keeps_its_parameters_as_links(folder):
    program = training_program()
    with static.scope_guard(static.Scope()):
        for variable in program.list_vars():
            if variable.persistable:
                static.global_scope().var(variable.name).get_tensor().set(
                    np.full(variable.shape, 0.01, 'float32'), paddle.CPUPlace())
        static.save(program, str(folder / 'state'))
    done(folder, 'optimize', 'state', '-o', 'new', '--fetch', 'loss', '--batch-size', '64')
    for suffix in ('.pdparams', '.pdopt'):
        assert os.path.samefile(str(folder / f'state{suffix}'), str(folder / f'new{suffix}'))
    done(folder, 'check', 'state', 'new', '--fetch', 'loss', '--batch-size', '64')


def test_parameters_are_copied_where_links_cannot_be_made(folder, monkeypatch):

    def refuse(*_):
        raise OSError(18, 'Invalid cross-device link')

    monkeypatch.setattr('transpiler.program_desc.files.os.link', refuse)
    done(folder, 'optimize', 'tiny', '-o', 'small')
    done(folder, 'optimize', 'small', '-o', 'smaller')
    assert (folder / 'smaller.pdiparams').read_bytes() == (folder / 'small.pdiparams').read_bytes()


def test_force_replaces(folder):
    (folder / 'small.pdmodel').write_bytes(b'old')
    done(folder, 'optimize', 'tiny', '-o', 'small', '--force')
    assert framework_pb2.ProgramDesc.FromString((folder / 'small.pdmodel').read_bytes()).blocks


def test_a_budget_that_is_enough_is_accepted(folder):
    done(folder, 'optimize', 'tiny', '-o', 'small', '--budget', '6GB')


def _training_chain(folder: Path) -> int:
    """A chain to train in `folder`, as chain.pdmodel; bytes that are not enough without recomputing."""
    case = build('tanh_chain', small_options('tanh_chain', batch_size=64, width=64, layers=12))
    (folder / 'chain.pdmodel').write_bytes(case.main.desc.serialize_to_string())
    given = json.loads(_on_chain(folder, 'report', case.fetch[0], '--json').stdout)
    return given['resting_bytes'] + given['peak_bytes_before'] // 2


def _on_chain(folder: Path, command: str, fetch: str, *more: str):
    return done(folder, command, 'chain', '--fetch', fetch, '--batch-size', '64', *more)


def test_a_budget_makes_a_training_program_compute_again(folder):
    budget = _training_chain(folder)
    fetch = build('tanh_chain', small_options('tanh_chain')).fetch[0]
    report = json.loads(
        _on_chain(folder, 'optimize', fetch, '-o', 'less', '--budget', str(budget),
                  '--json').stdout)
    assert report['resting_bytes'] + report['peak_bytes_after'] <= budget
    assert report['recompute']['clones'] > 0
    kept = json.loads(_on_chain(folder, 'report', fetch, '--max-overhead', '0', '--json').stdout)
    assert kept['recompute'] is None


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
