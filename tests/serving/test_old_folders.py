"""Folders as Paddle 1.x wrote them: optimised like any other program, and refused in one line where something is missing."""
from __future__ import annotations

import shutil
from pathlib import Path
from typing import List, Sequence

import pytest
from click.testing import CliRunner

from tests.serving.programs import contents, refused, save_benchmark, save_old_folder
from transpiler.cli import main
from transpiler.serving.files import read_program
from transpiler.serving.apart import RunSpec
from transpiler.serving.running import SETTINGS, run


@pytest.fixture
def old(tiny: Path, tmp_path: Path) -> Path:
    return save_old_folder(tiny, tmp_path / 'old')


def command(*arguments: object) -> str:
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def digests(program: Path, feed: str, setting: Sequence[str] = ()) -> List[str]:
    return run(RunSpec(str(program), feed, settings=list(setting), runs=1)).digests


@pytest.mark.parametrize('name', ['mobilenet_v2', 'demo'])
def test_a_file_for_each_parameter_gives_the_bytes_of_the_default_predictor(name, tmp_path):
    path = save_benchmark(tmp_path, name)
    feed, old = str(path) + '.npz', save_old_folder(path, tmp_path / 'old')
    command('optimize', old, '-o', tmp_path / 'new', '--batch-size', 2)
    expected = digests(old, feed)
    assert expected == digests(path, feed)
    assert [s for s in SETTINGS if digests(tmp_path / 'new', feed, s) != expected] == []


@pytest.mark.usefixtures('forked_checks')
def test_report_check_and_view_take_the_folder_and_leave_it_as_it_was(old, tmp_path):
    before = contents(old)
    assert 'optimize would bring' in command('report', old)
    command('optimize', old, '-o', tmp_path / 'new')
    assert command('check', old, tmp_path / 'new', '--batch-size', 2).count('equal') == 2
    command('view', old, '-o', tmp_path / 'page.html')
    assert contents(old) == before and (tmp_path / 'page.html').exists()


@pytest.mark.parametrize('model, parameters', [('__model__', '__params__'), ('__model__', 'params'),
                                               ('__model__', 'weights'), ('model', 'params')])
def test_one_file_of_all_parameters_is_found_next_to_the_program(tiny, tmp_path, model, parameters):
    folder = tmp_path / 'combined'
    folder.mkdir()
    shutil.copy(f'{tiny}.pdmodel', folder / model)
    shutil.copy(f'{tiny}.pdiparams', folder / parameters)
    feed = str(tiny) + '.npz'
    for given in (folder, folder / model):
        command('optimize', given, '-o', tmp_path / 'new', '--force')
        assert digests(tmp_path / 'new', feed) == digests(tiny, feed)


def test_a_folder_with_one_program_of_today_is_that_program(tiny, tmp_path):
    folder = tmp_path / 'today'
    folder.mkdir()
    for suffix in ('.pdmodel', '.pdiparams'):
        shutil.copy(f'{tiny}{suffix}', folder / f'inference{suffix}')
    assert read_program(str(folder)).path == folder / 'inference.pdmodel'
    shutil.copy(f'{tiny}.pdmodel', folder / 'other.pdmodel')
    assert 'with 2 .pdmodel files; name' in refused(folder)


def test_a_program_that_stays_as_it_is_takes_its_parameters_along(old, tmp_path):
    """What optimize wrote, put into a folder of 1.x with a file for each parameter."""
    command('optimize', old, '-o', tmp_path / 'new')
    again = save_old_folder(tmp_path / 'new', tmp_path / 'again')
    command('optimize', again, '-o', tmp_path / 'same')
    assert (tmp_path / 'same.pdiparams').read_bytes() == (tmp_path / 'new.pdiparams').read_bytes()


def test_a_folder_without_any_parameter(old):
    for path in old.iterdir():
        if path.name != '__model__':
            path.unlink()
    assert 'parameters are missing' in refused(old)


def test_parameters_that_have_no_file_are_named(old):
    (old / 'conv2d_0.w_0').unlink()
    assert "no file for parameter 'conv2d_0.w_0'" in refused(old)
    (old / 'fc_0.b_0').unlink()
    assert "no file for parameter 'conv2d_0.w_0' and for 1 more" in refused(old)


def test_a_file_that_is_cut_off_is_named(old):
    path = old / 'conv2d_2.w_0'
    path.write_bytes(path.read_bytes()[:-10])
    assert f"{path}: cut off in parameter 'conv2d_2.w_0'" in refused(old)


def test_a_file_of_another_parameter_is_named(old):
    shutil.copy(str(old / 'fc_0.b_0'), str(old / 'conv2d_0.w_0'))
    assert "has [10] where parameter 'conv2d_0.w_0' is [8, 3, 3, 3]" in refused(old)


def test_the_output_may_not_be_a_file_of_the_folder(old):
    (old / 'page.html').write_text('precious')
    for name in ('__model__', 'fc_0.b_0'):
        done = CliRunner().invoke(main, ['view', str(old), '-o', str(old / name), '--force'])
        assert done.exit_code == 1 and 'is part of the input' in done.stderr
