"""What is written, is written whole, even if the process is killed; and no file is more open than what it is made of."""
from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Set, Tuple

import numpy as np
import paddle
import pytest
from click.testing import CliRunner
from paddle import inference, static

from transpiler.backends.scopes import fresh_scope
from tests.serving.programs import contents, names, training_program
from transpiler.cli import main
from transpiler.errors import SavedFileError
from transpiler.serving import copying, writing
from transpiler.serving.files import read_program, write_program
from transpiler.serving.writing import Together, finish_interrupted, write_all

OLD, NEW = b'old', b'new'
# What changes the file system, by the name that it is called by.
STEPS = ('open', 'replace', 'rename', 'link', 'mkdir', 'fsync', 'unlink', 'rmdir')
SUFFIXES = ('.pdmodel', '.pdiparams', '.pdparams', '.pdopt')


def write_pair(folder: Path, what: bytes) -> None:
    files = {f'out{suffix}': what + suffix.encode() for suffix in reversed(SUFFIXES)}
    finish_interrupted(folder)
    write_all([
        Together(folder, {'trace.json': what}),
        Together(folder, files, ('out.pdiparams.info',) if what == NEW else ())
    ], [])


def killed_at(step: int, folder: Path, what: bytes) -> bool:
    """Whether a process that writes was killed before its change number `step` of the file system."""
    child = os.fork()
    if not child:
        try:
            left = [step]

            def dying(function):

                def stepped(*arguments, **options):
                    left[0] -= 1
                    if left[0] < 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*arguments, **options)

                return stepped

            for name in STEPS:
                setattr(os, name, dying(getattr(os, name)))
            write_pair(folder, what)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def found(folder: Path) -> Dict[str, bytes]:
    """What a reader of OUT finds, by suffix."""
    return {
        s: (folder / f'out{s}').read_bytes()[:3] for s in SUFFIXES if (folder / f'out{s}').exists()
    }


@pytest.mark.parametrize('before', [OLD, None])
def test_killed_at_any_step_there_is_the_old_set_or_the_new_one_or_no_program(before, tmp_path):
    seen: Set[Tuple[str, ...]] = set()
    steps = 0
    while True:
        folder = tmp_path / str(steps)
        folder.mkdir()
        if before:
            write_pair(folder, before)
            (folder / 'out.pdiparams.info').write_bytes(before)
        was_killed = killed_at(steps, folder, NEW)
        there = found(folder)
        if '.pdmodel' in there:
            assert set(there) == set(SUFFIXES) and len(set(there.values())) == 1
        if '.pdparams' in there:  # Paddle loads these two without the program
            assert there['.pdparams'] == there.get('.pdopt')
        seen.add((there.get('.pdmodel', b'').decode(), there.get('.pdiparams', b'').decode()))
        finish_interrupted(folder)
        after = found(folder)
        assert len(set(after.values())) <= 1 and len(after) in (0, len(SUFFIXES))
        assert not [n for n in os.listdir(folder) if n.startswith('.')]
        assert not before or after
        assert (folder / 'out.pdiparams.info').exists() == (after.get('.pdmodel') == OLD)
        write_pair(folder, NEW)
        assert set(found(folder).values()) == {NEW}
        if not was_killed:
            break
        steps += 1
    assert steps > 20
    half = {('old', 'old'), ('', 'old')} if before else set()
    assert seen == {('', ''), ('', 'new'), ('new', 'new'), *half}


@pytest.mark.parametrize('at', range(14))
def test_a_disk_that_fails_at_any_move_leaves_what_was_there(at, tmp_path, monkeypatch):
    write_pair(tmp_path, OLD)
    (tmp_path / 'out.pdiparams.info').write_bytes(OLD)
    before, calls = contents(tmp_path), []
    monkeypatch.setattr(os, 'rename', _failing(os.rename, at, calls))
    monkeypatch.setattr(os, 'replace', _failing(os.replace, at, calls))
    try:
        write_pair(tmp_path, NEW)
    except SavedFileError as error:
        assert 'Input/output error' in str(error)
        assert contents(tmp_path) == before
    else:
        assert len(calls) == 11 <= at


def _failing(function, at: int, calls: List[int]):

    def failing_once(*arguments, **options):
        calls.append(at)
        if len(calls) == at + 1:
            raise OSError(5, 'Input/output error')
        return function(*arguments, **options)

    return failing_once


def test_what_a_living_call_is_about_to_write_is_not_cleaned(tmp_path):
    with _another_writer(tmp_path) as stage:
        finish_interrupted(tmp_path)
        assert (stage / 'new' / 'file').read_bytes() == NEW
    finish_interrupted(tmp_path)
    assert not stage.exists()


class _another_writer:

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Path:
        from transpiler.serving import writing
        self._context = writing._staged(Together(self._folder, {'file': NEW}))
        stage = self._context.__enter__()
        (stage.path / 'new' / 'file').write_bytes(NEW)
        stage.is_needed = True  # as if it were killed at the end
        return stage.path

    def __exit__(self, *_) -> None:
        self._context.__exit__(None, None, None)


@pytest.fixture(scope='module')
def pairs(tmp_path_factory) -> Path:
    """Two programs with other weights and another number of layers, each with what it computes."""
    paddle.enable_static()
    folder = tmp_path_factory.mktemp('pairs')
    for seed, name in enumerate(('old', 'new')):
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), paddle.utils.unique_name.guard():
            paddle.seed(seed)
            x = static.data('x', [-1, 8])
            y = static.nn.fc(x, 8, activation='relu' if seed else 'tanh')
            executor = static.Executor()
            with fresh_scope():
                executor.run(startup)
                static.save_inference_model(str(folder / name), [x], [y], executor)
    return folder


def predicted(stem: Path) -> Optional[bytes]:
    """What Paddle's predictor computes; None if it refuses to load."""
    try:
        config = inference.Config(f'{stem}.pdmodel', f'{stem}.pdiparams')
        config.disable_glog_info()
        predictor = inference.create_predictor(config)
    except (RuntimeError, ValueError, OSError):
        return None
    predictor.get_input_handle('x').copy_from_cpu(np.ones([2, 8], 'float32'))
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu().tobytes()


def executed(stem: Path) -> Optional[bytes]:
    """The same of its executor."""
    executor = static.Executor()
    with fresh_scope():
        try:
            program, _, fetches = static.load_inference_model(str(stem), executor)
        except (RuntimeError, ValueError, OSError):
            return None
        return executor.run(program, {'x': np.ones([2, 8], 'float32')}, fetches)[0].tobytes()


def test_paddle_loads_the_old_pair_or_the_new_one_or_says_that_it_cannot(pairs, tmp_path):
    """The folders that the test above sees; of them, only that without any file is left out."""
    raw = {n: (pairs / n).read_bytes() for n in os.listdir(pairs)}
    right = {name: (predicted(pairs / name), executed(pairs / name)) for name in ('old', 'new')}
    assert len({*right['old'], *right['new']}) >= 2 and None not in right['old'] + right['new']
    loaded = {}
    for model, parameters in (('old', 'old'), ('', 'old'), ('', 'new'), ('new', 'new')):
        folder = tmp_path / f'{model}-{parameters}'
        folder.mkdir()
        if model:
            (folder / 'out.pdmodel').write_bytes(raw[f'{model}.pdmodel'])
        (folder / 'out.pdiparams').write_bytes(raw[f'{parameters}.pdiparams'])
        loaded[model, parameters] = predicted(folder / 'out'), executed(folder / 'out')
    assert loaded == {
        ('old', 'old'): right['old'],
        ('', 'old'): (None, None),
        ('', 'new'): (None, None),
        ('new', 'new'): right['new']
    }
    # Which is why a mixed pair must never be there: it loads, and is wrong.
    (tmp_path / 'out.pdmodel').write_bytes(raw['new.pdmodel'])
    (tmp_path / 'out.pdiparams').write_bytes(raw['old.pdiparams'])
    assert predicted(tmp_path / 'out') not in (None, *right['old'], *right['new'])


def test_a_pair_that_is_half_replaced_is_named_when_it_is_read(pairs, tmp_path):
    for suffix in ('.pdmodel', '.pdiparams'):
        shutil.copy(pairs / f'old{suffix}', tmp_path / f'out{suffix}')
    for step in range(60):
        copy = tmp_path / str(step)
        copy.mkdir()
        write_pair(copy, OLD)
        killed_at(step, copy, NEW)
        if found(copy) and '.pdmodel' not in found(copy):
            done = CliRunner().invoke(main, ['report', str(copy / 'out')])
            assert done.exit_code == 1 and 'by a call that was killed' in done.output
            return
    pytest.fail('no step leaves a half-replaced pair')


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize('mask, given, expected', [(0o022, 0o644, 0o644), (0o077, 0o644, 0o600),
                                                   (0o022, 0o600, 0o600), (0o002, 0o666, 0o664),
                                                   (0, 0o640, 0o640), (0o022, 0o755, 0o644)])
def test_the_umask_holds_and_nothing_is_more_open_than_the_input(mask, given, expected, pairs,
                                                                 tmp_path, umask):
    for suffix in ('.pdmodel', '.pdiparams'):
        shutil.copy(pairs / f'old{suffix}', tmp_path / f'in{suffix}')
    (tmp_path / 'in.pdiparams').chmod(given)
    (tmp_path / 'in.pdmodel').chmod(0o666)
    os.umask(mask)
    saved = read_program(str(tmp_path / 'in'))
    paths = write_program(str(tmp_path / 'out'), saved, saved.serialized, {}, False,
                          {str(tmp_path / 'trace.json'): b'{}'})
    assert {mode(p) for p in [*paths, tmp_path / 'trace.json']} == {expected}
    assert names(tmp_path) == [
        'in.pdiparams', 'in.pdmodel', 'out.pdiparams', 'out.pdmodel', 'trace.json'
    ]


@pytest.mark.skipif(os.getuid() != 0, reason='only root can give files to other groups')
def test_another_group_may_do_no_more_than_others(pairs, tmp_path, umask):
    for suffix in ('.pdmodel', '.pdiparams'):
        shutil.copy(pairs / f'old{suffix}', tmp_path / f'in{suffix}')
        (tmp_path / f'in{suffix}').chmod(0o640)
        os.chown(tmp_path / f'in{suffix}', -1, os.getgid() + 1)
    os.umask(0)
    saved = read_program(str(tmp_path / 'in'))
    paths = write_program(str(tmp_path / 'out'), saved, saved.serialized, {}, False)
    assert {mode(p) for p in paths} == {0o600}


@pytest.mark.parametrize('at', [0, 1])
def test_where_links_are_refused_half_of_a_backup_never_comes_back(at, tmp_path, monkeypatch):
    """The disk is full while a single file that will be replaced is copied, or once it is replaced."""
    (tmp_path / 'page').write_bytes(OLD)
    calls = []

    def refuse(*_, **__):
        raise OSError(errno.EPERM, 'Operation not permitted')

    def full(source, target, **_):
        calls.append(target)
        Path(target).write_bytes(OLD[:1] if at == 0 else OLD)
        if at == 0:
            raise OSError(errno.ENOSPC, 'No space left on device')

    def failing(*_):
        raise OSError(errno.EIO, 'Input/output error')

    monkeypatch.setattr(os, 'link', refuse)
    monkeypatch.setattr(shutil, 'copy2', full)
    if at:
        monkeypatch.setattr(writing, '_sync', failing)
    with pytest.raises(SavedFileError):
        write_all([Together(tmp_path, {'page': NEW})], [])
    assert calls and contents(tmp_path) == {'page': OLD}


@pytest.mark.parametrize('has_links', [True, False])
@pytest.mark.parametrize('count', [1, 2])
def test_an_output_that_was_one_file_with_the_input_is_one_of_its_own(count, has_links, tmp_path,
                                                                      monkeypatch):
    """By hard links: what is written goes under the name of the output alone."""

    def refuse(*_, **__):
        raise OSError(1, 'Operation not permitted')

    inputs, outputs = ([tmp_path / f'{stem}{i}' for i in range(count)] for stem in ('in', 'out'))
    for source, target in zip(inputs, outputs):
        source.write_bytes(OLD)
        os.link(source, target)
    if not has_links:
        monkeypatch.setattr(os, 'link', refuse)
    write_all([Together(tmp_path, {path.name: NEW for path in outputs})], inputs)
    assert contents(tmp_path) == {**{p.name: OLD for p in inputs}, **{p.name: NEW for p in outputs}}
    assert {os.stat(path).st_nlink for path in (*inputs, *outputs)} == {1}
    write_all([Together(tmp_path, {path.name: inputs[0] for path in outputs})], inputs)
    assert {os.stat(path).st_nlink for path in (*inputs, *outputs)} == {1}


@pytest.mark.parametrize('refused', [(), ('_clone',), ('_clone', 'copy_file_range')])
def test_copies_have_the_same_bytes_however_the_system_copies(refused, tmp_path, monkeypatch):

    def refuse(*_):
        raise OSError(18, 'Invalid cross-device link')

    if '_clone' in refused:
        monkeypatch.setattr(copying.fcntl, 'ioctl', refuse)
    if 'copy_file_range' in refused:
        monkeypatch.setattr(os, 'copy_file_range', refuse)
    parts = []
    for i in range(3):
        parts.append(tmp_path / str(i))
        parts[-1].write_bytes(os.urandom(100_000 * i + 7))
    write_all([
        Together(tmp_path, {'one': parts[2]}),
        Together(tmp_path, {'all': tuple(parts)}),
    ], parts)
    assert (tmp_path / 'one').read_bytes() == parts[2].read_bytes()
    assert (tmp_path / 'all').read_bytes() == b''.join(p.read_bytes() for p in parts)
    assert os.stat(tmp_path / 'one').st_nlink == 1
    assert not os.path.samefile(tmp_path / 'one', parts[2])


def test_what_belonged_to_a_replaced_program_goes_with_it(tmp_path):
    """Else it would be read as part of the new one."""
    (tmp_path / 'train.pdmodel').write_bytes(training_program().desc.serialize_to_string())
    (tmp_path / 'out.pdopt').write_bytes(b'of another program')
    arguments = [
        'optimize',
        str(tmp_path / 'train'), '-o',
        str(tmp_path / 'out'), '--fetch', 'loss'
    ]
    before = contents(tmp_path)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1 and 'out.pdopt exists; --force replaces it' in done.output
    assert contents(tmp_path) == before
    assert CliRunner().invoke(main, [*arguments, '--force']).exit_code == 0
    assert names(tmp_path) == ['out.pdmodel', 'train.pdmodel']
