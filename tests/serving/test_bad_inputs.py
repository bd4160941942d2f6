"""Wrong inputs: one clear line, an exit code that is not 0, no traceback, nothing written."""
from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path
from typing import Callable, List

import numpy as np
import pytest
from click.testing import CliRunner
from paddle.base.proto import framework_pb2

from tests.serving.programs import contents, save_tiny, training_program
from transpiler.arguments import byte_count
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


def test_the_parameters_in_place_of_the_program(folder):
    failing(folder, ['optimize', 'tiny.pdiparams', '-o', 'out'], 'Did you mean tiny.pdmodel?')


@pytest.mark.parametrize('seed', range(24))
def test_a_damaged_program_is_refused_in_one_line_or_still_is_one(folder, seed):
    path, random = folder / 'tiny.pdmodel', np.random.RandomState(seed)
    damaged = bytearray(path.read_bytes())
    for at in random.randint(0, len(damaged), 1 + seed % 4):
        damaged[at] = random.randint(256)
    path.write_bytes(bytes(damaged))
    done = CliRunner().invoke(main, ['optimize', str(folder / 'tiny'), '-o', str(folder / 'out')])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith('error: ' if done.exit_code else 'wrote ')


def test_a_name_that_is_no_text(folder):
    path = folder / 'tiny.pdmodel'
    path.write_bytes(path.read_bytes().replace(b'conv2d_0.w_0', b'conv2d_0.w\xff0'))
    failing(folder, OPTIMIZE, 'a name in block 0 is no text')


def test_source_lines_that_are_no_text_are_read(folder):
    path = folder / 'tiny.pdmodel'
    path.write_bytes(path.read_bytes().replace(b'programs.py', b'program\xff.py'))
    done = CliRunner().invoke(main, ['optimize', str(folder / 'tiny'), '-o', str(folder / 'out')])
    assert done.exit_code == 0, done.output


def test_a_program_without_a_required_field(folder):
    path = folder / 'tiny.pdmodel'
    message = framework_pb2.ProgramDesc.FromString(path.read_bytes())
    message.blocks[0].ops[2].attrs[0].ClearField('type')
    path.write_bytes(message.SerializePartialToString())
    failing(folder, OPTIMIZE, 'blocks[0].ops[2].attrs[0].type is missing')


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

    monkeypatch.setattr('tempfile.mkdtemp', refuse)
    failing(folder, OPTIMIZE, 'Permission denied')


def test_a_full_disk(folder, monkeypatch):

    def full(_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('os.fsync', full)
    failing(folder, OPTIMIZE, 'No space left on device')


def test_an_unknown_name_to_fetch(folder):
    (folder / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    failing(folder, ['optimize', 'train.bin', '-o', 'out', '--fetch', 'los'],
            "no variable 'los'. Did you mean 'loss'?")


def test_an_unknown_name_to_fetch_from_an_inference_program(folder):
    failing(folder, OPTIMIZE + ['--fetch', 'scores'], "no variable 'scores'")


def test_a_name_that_an_inference_program_does_not_fetch(folder):
    failing(folder, OPTIMIZE + ['--fetch', 'relu_0.tmp_0'], 'nothing else: save it with')


def test_an_unknown_name_to_skip(folder):
    failing(folder, OPTIMIZE + ['--skip', 'scores'], "no variable 'scores'")


def test_an_output_that_ends_like_a_directory(folder):
    failing(folder, ['optimize', 'tiny', '-o', 'out/'],
            'out/ names a directory; name the file to write, as out/model')


@pytest.mark.parametrize('out', ['.', 'sub'])
def test_an_output_that_is_a_directory(folder, out):
    (folder / 'sub').mkdir()
    failing(folder, ['optimize', 'tiny', '-o', out], f'{out} is a directory; name the file')


def test_a_trace_that_cannot_be_written_keeps_the_program_from_being_written(folder):
    failing(folder, OPTIMIZE + ['--trace', 'no/trace.json'], 'No such file or directory')


def test_a_trace_that_exists(folder):
    (folder / 'trace.json').write_text('precious')
    failing(folder, OPTIMIZE + ['--trace', 'trace.json'], 'trace.json exists')
    failing(folder, ['view', 'tiny', '-o', 'page.html', '--trace', 'trace.json'],
            'trace.json exists')


def test_a_page_over_the_program(folder):
    failing(folder, ['view', 'tiny', '-o', 'tiny.pdmodel', '--force'], 'is part of the input')


def test_a_page_and_a_trace_in_one_file(folder):
    failing(folder, ['view', 'tiny', '-o', 'page', '--trace', 'page'], 'named for two files')


def test_a_training_program_without_a_name_to_fetch(folder):
    (folder / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    failing(folder, ['optimize', 'train.bin', '-o', 'out'], 'name with --fetch')


def test_an_impossible_budget(folder):
    failing(folder, OPTIMIZE + ['--budget', '1KB'], 'no plan fits into 1000 B')


def test_an_impossible_budget_for_a_training_program(folder):
    (folder / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    failing(folder, ['optimize', 'train.bin', '-o', 'out', '--fetch', 'loss', '--budget', '1KB'],
            'no plan fits into 1000 B, parameters and state included')


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


@pytest.mark.parametrize('damage', [lambda raw: raw[:-30], lambda raw: raw[:60], lambda raw: b''])
def test_inputs_that_are_cut_off(folder, damage):
    np.savez(str(folder / 'feed.npz'), image=np.zeros([1, 3, 8, 8], 'float32'))
    (folder / 'feed.npz').write_bytes(damage((folder / 'feed.npz').read_bytes()))
    failing(folder, ['check', 'tiny', 'tiny', '--feed', 'feed.npz'], 'no .npz file of arrays')


def test_one_array_in_place_of_named_ones(folder):
    np.save(str(folder / 'feed.npy'), np.zeros([1, 3, 8, 8], 'float32'))
    failing(folder, ['check', 'tiny', 'tiny', '--feed', 'feed.npy'], 'no .npz file of arrays')


def test_check_of_names_that_are_not_fetched(folder):
    failing(folder, ['check', 'tiny', 'tiny', '--fetch', 'scores'], "no variable 'scores'")
    failing(folder, ['check', 'tiny', 'tiny', '--fetch', 'relu_0.tmp_0'],
            'nothing else: save it with')


def test_check_of_a_training_program_without_the_name_to_fetch(folder):
    (folder / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    failing(folder, ['check', 'train.bin', 'train.bin', '--fetch', 'los'], "Did you mean 'loss'?")


def test_check_of_programs_with_other_inputs(folder):
    raw = (folder / 'tiny.pdmodel').read_bytes()
    (folder / 'other.pdmodel').write_bytes(raw.replace(b'\x05image', b'\x05photo'))
    shutil.copy(str(folder / 'tiny.pdiparams'), str(folder / 'other.pdiparams'))
    failing(folder, ['check', 'tiny', 'other'],
            "only one of tiny.pdmodel and other.pdmodel has an input 'image'")


def test_a_page_that_exists(folder):
    (folder / 'memory.html').write_text('precious')
    failing(folder, ['view', 'tiny', '-o', 'memory.html'], 'memory.html exists')


def test_a_packing_problem_with_a_bad_cell(folder):
    (folder / 'p.csv').write_text('id,lower,upper,size\na,0,x,4\n')
    failing(folder, ['pack', 'p.csv', '-o', 'q.csv'], 'upper is not a whole number')


def test_a_capacity_below_the_bound(folder):
    (folder / 'p.csv').write_text('id,lower,upper,size\na,0,3,4\nb,1,2,4\n')
    failing(folder, ['pack', 'p.csv', '-o', 'q.csv', '--capacity', '7'], 'cannot exist')


@pytest.mark.parametrize(
    'trace',
    ['out.pdmodel', './out.pdmodel', 'sub/../out.pdiparams', 'out.pdopt', 'out.pdiparams.info'])
def test_a_trace_that_would_be_a_part_of_the_output(folder, trace):
    (folder / 'sub').mkdir()
    failing(folder, OPTIMIZE + ['--trace', trace], 'out.pd')
    failing(folder, OPTIMIZE + ['--trace', trace, '--force'], 'out.pd')


def test_a_trace_through_a_linked_folder_that_would_be_a_part_of_the_output(folder):
    (folder / 'link').symlink_to('.')
    failing(folder, OPTIMIZE + ['--trace', 'link/out.pdiparams'], 'named for two files')
    failing(folder, OPTIMIZE + ['--trace', 'link/out.pdopt'],
            'would be read as part of out.pdmodel')


def test_a_trace_over_the_input(folder):
    failing(folder, OPTIMIZE + ['--trace', 'tiny.pdiparams', '--force'], 'is part of the input')


def test_an_output_that_is_a_circle_of_links(folder):
    (folder / 'out.pdmodel').symlink_to('out.pdmodel')
    (folder / 'loop').symlink_to('loop')
    failing(folder, OPTIMIZE, 'out.pdmodel exists; --force replaces it')
    failing(folder, ['optimize', 'tiny', '-o', 'loop/out'], 'Too many levels of symbolic links')
    failing(folder, ['optimize', 'loop', '-o', 'other'], 'no such program: loop')
    failing(folder, ['view', 'tiny', '-o', 'loop'], 'loop exists; --force replaces it')


def test_an_output_that_is_a_link_to_nothing(folder):
    (folder / 'out.pdiparams').symlink_to('not-there')
    failing(folder, OPTIMIZE, 'out.pdiparams exists; --force replaces it')


NO_UTF8 = os.fsdecode(b'name\xff')


def test_names_that_are_no_utf8(folder):
    for suffix in ('.pdmodel', '.pdiparams'):
        shutil.copy(str(folder / f'tiny{suffix}'), str(folder / (NO_UTF8 + suffix)))
    said = 'name\\udcff'
    failing(folder, ['optimize', NO_UTF8, '-o', 'out'], f'{said}: the name is no UTF-8')
    failing(folder, ['check', 'tiny', NO_UTF8], f'{said}: the name is no UTF-8')
    failing(folder, ['optimize', 'tiny', '-o', NO_UTF8], f'{said}.pdiparams: the name is no UTF-8')
    failing(folder, ['view', 'tiny', '-o', NO_UTF8], f'{said}: the name is no UTF-8')
    failing(folder, OPTIMIZE + ['--trace', NO_UTF8], f'{said}: the name is no UTF-8')
    failing(folder, OPTIMIZE + ['--fetch', NO_UTF8], "no variable 'name\\udcff'")
    failing(folder, OPTIMIZE + ['--skip', NO_UTF8], "no variable 'name\\udcff'")
    failing(folder, ['check', 'tiny', 'tiny', '--feed', NO_UTF8], f'cannot read {said}')
    failing(folder, [NO_UTF8], 'No such command', code=2)


def test_a_batch_of_more_than_64_bits(folder):
    for command in (OPTIMIZE, ['report', 'tiny'], ['view', 'tiny', '-o', 'page']):
        failing(folder, [*command, '--batch-size', str(2**70)], 'at most 64 bits; this one has 72')
        failing(folder, [*command, '--batch-size', str(2**62)], 'bytes, more than there are')
    failing(folder, ['check', 'tiny', 'tiny', '--batch-size', str(2**70)], 'at most 64 bits')


def test_a_budget_of_many_digits_behind_the_point():
    assert byte_count('budget', '1.' + '9' * 400 + 'TiB') == 2 * 2**40 - 1


@pytest.mark.parametrize('budget', ['9' * 400, '9' * 400 + 'GB', str(2**64)])
def test_a_budget_of_more_than_64_bits(folder, budget):
    failing(folder, OPTIMIZE + ['--budget', budget], '--budget takes a number of at most 64 bits')


def sparse(path: Path, start: bytes = b'') -> None:
    path.write_bytes(start)
    os.truncate(str(path), 3 << 30)


@pytest.mark.parametrize('start', [b'', b'\n\x80'])
def test_three_sparse_gigabytes_are_refused_without_being_read(folder, start):
    """As each of the files that are read; with the memory of this process limited, so that reading them would fail."""
    sparse(folder / 'tiny.pdmodel', start)
    limited(folder, OPTIMIZE, 'bytes are too many for a program')
    limited(folder, ['optimize', 'tiny.pdmodel', '-o', 'out'], 'bytes are too many for a program')
    limited(folder, ['pack', 'tiny.pdmodel', '-o', 'out.csv'], 'more than 268435456 bytes')
    limited(folder, ['check', 'tiny', 'tiny', '--feed', 'tiny.pdmodel'], 'too many for a program')


def test_three_sparse_gigabytes_of_parameters_are_refused_without_being_read(folder):
    sparse(folder / 'tiny.pdiparams')
    limited(folder, OPTIMIZE, 'not the parameters of this program')


def test_three_sparse_gigabytes_of_inputs_are_refused_without_being_read(folder):
    sparse(folder / 'feed.npz')
    limited(folder, ['check', 'tiny', 'tiny', '--feed', 'feed.npz'], 'no .npz file of arrays')


def test_parameters_that_paddle_could_not_write_whole_are_not_taken_for_whole(folder):
    """It says nothing of that where no file may become so long."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    length = (folder / 'tiny.pdiparams').stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (length - 1, before[1]))
    try:
        failing(folder, OPTIMIZE, 'the parameters could not be written')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize('arguments, said', [
    (['optimize', 'tiny', '-o', ''], 'no file is named to write to'),
    (['optimize', '', '-o', 'out'], 'no program is named to read'),
    (['check', 'tiny', ''], 'no program is named to read'),
    (['view', 'tiny', '-o', 'tiny'], 'tiny would be read in place of tiny.pdmodel'),
    (['optimize', 'tiny', '-o', 'out', '--trace', 'out'
     ], 'out would be read as part of out.pdmodel'),
    (['pack', 'five.csv', '-o', 'out.csv', '--alignment',
      str(2**62)], 'five.csv: of 5 values, each rounded up'),
    (['pack', 'five.csv', '-o', 'out.csv', '--alignment',
      str(2**64)], 'five.csv: of 5 values, each rounded up'),
])
def test_what_cannot_be_done_with_numbers_and_names_is_said(folder, arguments, said):
    rows = '\n'.join(f'b{i},0,5,{5 + i}' for i in range(5))
    (folder / 'five.csv').write_text(f'id,lower,upper,size\n{rows}\n')
    failing(folder, arguments, said)


@pytest.mark.parametrize('arguments', [['optimize', 'tiny', '-o', 'out', '--max-overhead', 'nan'],
                                       ['pack', 'five.csv', '-o', 'out.csv', '--seconds', 'nan']])
def test_what_is_no_number_is_refused(folder, arguments):
    failing(folder, arguments, "'nan' is no number", code=2)


def limited(folder: Path, arguments: List[str], said: str) -> None:
    """Runs the command where no more than a gigabyte can be allocated."""
    used = int(Path('/proc/self/statm').read_text().split()[0]) * os.sysconf('SC_PAGE_SIZE')
    before, here = resource.getrlimit(resource.RLIMIT_AS), os.getcwd()
    os.chdir(str(folder))
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    try:
        done = CliRunner().invoke(main, arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        os.chdir(here)
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.output
    assert len(done.output.splitlines()) == 1 and said in done.output, done.output
