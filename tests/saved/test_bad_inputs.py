"""Wrong inputs: one clear line, an exit code that is not 0, no traceback, nothing written."""
from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Callable, List

import numpy as np
import pytest
from click.testing import CliRunner
from paddle.base.proto import framework_pb2

from tests.saved.programs import contents, save_tiny, training_program
from transpiler.cli import main


@pytest.fixture(scope='module')
def original(tmp_path_factory) -> Path:
    return save_tiny(tmp_path_factory.mktemp('original'))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    for path in original.parent.iterdir():
        shutil.copy(str(path), str(tmp_path / path.name))
    return tmp_path


def failing(folder: Path, arguments: List[str], said: str, code: int = 1) -> None:
    """Runs the command in `folder`, which must stay as it was."""
    before, here = contents(folder), os.getcwd()
    os.chdir(str(folder))
    try:
        done = CliRunner().invoke(main, arguments)
    finally:
        os.chdir(here)
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert 'Traceback' not in done.output
    if code == 1:
        assert len(done.output.strip().splitlines()) == 1 and done.output.startswith('error: ')
    assert said in done.output
    assert contents(folder) == before


def edited(folder: Path, edit: Callable[[framework_pb2.ProgramDesc], None]) -> None:
    path = folder / 'tiny.pdmodel'
    message = framework_pb2.ProgramDesc.FromString(path.read_bytes())
    edit(message)
    path.write_bytes(message.SerializeToString())


OPTIMIZE = ['optimize', 'tiny', '-o', 'out']


def test_a_program_that_is_not_there(folder):
    failing(folder, ['optimize', 'nothing', '-o', 'out'], 'no such program: nothing')


def test_a_directory_without_a_program(folder):
    (folder / 'empty').mkdir()
    failing(folder, ['optimize', 'empty', '-o', 'out'], 'is a directory without __model__')


def test_an_empty_program(folder):
    (folder / 'tiny.pdmodel').write_bytes(b'')
    failing(folder, OPTIMIZE, 'the file is empty')


def test_a_truncated_program(folder):
    path = folder / 'tiny.pdmodel'
    path.write_bytes(path.read_bytes()[:-100])
    failing(folder, OPTIMIZE, 'not a serialized Paddle program')


def test_a_file_that_is_no_program(folder):
    (folder / 'tiny.pdmodel').write_bytes(b'\x89PNG\r\n' + bytes(range(256)))
    failing(folder, OPTIMIZE, 'not a serialized Paddle program')


def test_a_program_of_paddle_3(folder):
    (folder / 'tiny.pdmodel').write_bytes(b'{"base_code": {"magic": "pir"}}')
    failing(folder, OPTIMIZE, 'JSON program of Paddle 3')


def test_a_version_that_is_newer(folder):
    edited(folder, lambda m: setattr(m.version, 'version', 3001000))
    failing(folder, OPTIMIZE, 'saved by Paddle 3.1.0')


def test_an_operator_that_is_gone_is_named(folder):
    edited(folder, lambda m: setattr(m.blocks[0].ops[2], 'type', 'dropped_long_ago'))
    failing(folder, OPTIMIZE, "operator 'dropped_long_ago' (op 2 of block 0)")


def test_missing_parameters(folder):
    (folder / 'tiny.pdiparams').unlink()
    failing(folder, OPTIMIZE, 'parameters are missing')


def test_truncated_parameters(folder):
    path = folder / 'tiny.pdiparams'
    path.write_bytes(path.read_bytes()[:-10])
    failing(folder, OPTIMIZE, 'cut off in parameter')


def test_parameters_with_a_tail(folder):
    path = folder / 'tiny.pdiparams'
    path.write_bytes(path.read_bytes() + b'more')
    failing(folder, OPTIMIZE, '4 bytes too many')


def test_parameters_that_are_garbage(folder):
    (folder / 'tiny.pdiparams').write_bytes(bytes(range(256)) * 20)
    failing(folder, OPTIMIZE, 'tiny.pdiparams: ')


def test_parameters_of_another_program(folder):
    edited(
        folder,
        lambda m: [v for v in m.blocks[0].vars
                   if v.name == 'conv2d_0.w_0'][0].type.lod_tensor.tensor.dims.__setitem__(0, 9))
    failing(folder, OPTIMIZE, "where parameter 'conv2d_0.w_0' is [9, 3, 3, 3]")


def test_an_output_that_exists(folder):
    (folder / 'out.pdmodel').write_bytes(b'precious')
    failing(folder, OPTIMIZE, 'out.pdmodel exists; --force replaces it')


def test_an_output_that_is_the_input(folder):
    failing(folder, ['optimize', 'tiny', '-o', 'tiny', '--force'], 'is part of the input')


def test_an_output_in_a_directory_that_is_not_there(folder):
    failing(folder, ['optimize', 'tiny', '-o', 'no/out'], 'No such file or directory')


def test_an_output_below_a_file(folder):
    failing(folder, ['optimize', 'tiny', '-o', 'tiny.pdmodel/out'], 'Not a directory')


def test_a_read_only_target(folder, monkeypatch):
    # Root may write anywhere, so the refusal of the system is simulated.
    def refuse(*_, **__):
        raise PermissionError(13, 'Permission denied')

    monkeypatch.setattr('transpiler.program_desc.files.tempfile.mkstemp', refuse)
    failing(folder, OPTIMIZE, 'Permission denied')


def test_a_full_disk(folder, monkeypatch):

    def full(_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('transpiler.program_desc.files.os.fsync', full)
    failing(folder, OPTIMIZE, 'No space left on device')


def test_a_disk_that_fails_at_the_last_rename_leaves_what_was_there(folder, monkeypatch):
    (folder / 'out.pdmodel').write_bytes(b'precious')
    (folder / 'out.pdiparams').write_bytes(b'precious too')
    replace, done = os.replace, []

    def failing_once(source, target):
        done.append(target)
        if len(done) == 2:
            raise OSError(5, 'Input/output error')
        replace(source, target)

    monkeypatch.setattr('transpiler.program_desc.files.os.replace', failing_once)
    failing(folder, OPTIMIZE + ['--force'], 'Input/output error')


def test_an_unknown_name_to_fetch(folder):
    (folder / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    failing(folder, ['optimize', 'train.bin', '-o', 'out', '--fetch', 'los'],
            "no variable 'los'. Did you mean 'loss'?")


def test_a_training_program_without_a_name_to_fetch(folder):
    (folder / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    failing(folder, ['optimize', 'train.bin', '-o', 'out'], 'name with --fetch')


def test_an_impossible_budget(folder):
    failing(folder, OPTIMIZE + ['--budget', '1KB'], 'no plan fits into 1000 B')


def test_a_budget_that_no_plan_of_a_training_program_meets(folder):
    (folder / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    failing(folder, ['optimize', 'train.bin', '-o', 'out', '--fetch', 'loss', '--budget', '100'],
            'the lowest peak reached is')


def test_a_budget_that_is_no_size(folder):
    failing(folder, OPTIMIZE + ['--budget', 'six'], "'six' is no size", code=2)


def test_a_batch_of_nothing(folder):
    failing(folder, OPTIMIZE + ['--batch-size', '0'], '--batch-size', code=2)


def test_the_executor_runtime_for_a_program_that_predictors_load(folder):
    failing(folder, OPTIMIZE + ['--runtime', 'executor'], 'Use --runtime predictor')


def test_the_predictor_runtime_for_a_training_program(folder):
    (folder / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    failing(folder,
            ['optimize', 'train.bin', '-o', 'out', '--fetch', 'loss', '--runtime', 'predictor'],
            'Use --runtime executor')


def test_inputs_that_are_no_arrays(folder):
    (folder / 'feed.npz').write_bytes(b'nothing')
    failing(folder, ['check', 'tiny', 'tiny', '--feed', 'feed.npz'], 'no .npz file of arrays')


def test_inputs_that_lack_one(folder):
    np.savez(str(folder / 'feed.npz'), other=np.zeros(3))
    failing(folder, ['check', 'tiny', 'tiny', '--feed', 'feed.npz'], "no array for input 'image'")


def test_a_page_that_exists(folder):
    (folder / 'memory.html').write_text('precious')
    failing(folder, ['view', 'tiny', '-o', 'memory.html'], 'memory.html exists')


def test_a_packing_problem_with_a_bad_cell(folder):
    (folder / 'p.csv').write_text('id,lower,upper,size\na,0,x,4\n')
    failing(folder, ['pack', 'p.csv', '-o', 'q.csv'], 'upper is not a whole number')


def test_a_capacity_below_the_bound(folder):
    (folder / 'p.csv').write_text('id,lower,upper,size\na,0,3,4\nb,1,2,4\n')
    failing(folder, ['pack', 'p.csv', '-o', 'q.csv', '--capacity', '7'], 'cannot exist')
