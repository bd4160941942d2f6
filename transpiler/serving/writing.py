"""Files that belong together, written all or none, so that a reader never finds half of them.

All are written into a hidden folder next to where they go. If that worked it is renamed, and from then on the switch is
made: by this call or, if that is killed, by the next one. To switch, the old files are moved away, the key first: the one
without which Paddle does not load the others (the program). Then the new ones are moved in, the key last. So whoever looks
in between finds the old files, the new ones, or no key, which Paddle says.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

from transpiler.errors import SavedFileError
from transpiler.serving.copying import append_copy

_PREFIX, _READY = '.transpiler-', '.ready'
_NEW, _OLD, _PLAN, _HALF = 'new', 'old', 'plan.json', '.half'
_GROUP, _OTHERS, _GROUP_SHIFT = 0o070, 0o007, 3

# What a file shall have: these bytes, or those of that file, or of those files one after the other.
Contents = Union[bytes, Path, Tuple[Path, ...]]


@dataclass(frozen=True)
class Together:
    """Files of one folder that are only right together, by name; the last one is the key.

    `gone`: names of files of an earlier set, which would be taken for part of this one.
    """

    folder: Path
    files: Dict[str, Contents]
    gone: Tuple[str, ...] = ()

    @property
    def key(self) -> Path:
        return self.folder / list(self.files)[-1]


def write_all(sets: Sequence[Together], inputs: Iterable[Path]) -> None:
    """Writes all sets or none, the last one last; replaces what is there.

    Args:
        inputs: what they are made of. No file is more open than these; the umask holds, too.

    Raises:
        SavedFileError: one cannot be written. What was there is there again.
    """
    mode, groups = _access(inputs)
    with contextlib.ExitStack() as stack:
        staged = []
        for files in sets:
            with _said(files.key):
                stage = stack.enter_context(_staged(files))
            for name, content in files.files.items():
                with _said(files.folder / name):
                    _write(stage.path / _NEW / name, content, mode, groups)
            staged.append(stage)
        _switch_all(staged)


def finish_interrupted(folder: Path) -> None:
    """Ends what killed calls left in `folder`: a switch that had begun is made, all else is deleted."""
    try:
        left = [p for p in folder.iterdir() if p.name.startswith(_PREFIX)]
    except OSError:
        return  # who writes there will say why
    for path in left:
        lock = _lock(path, wait=False)
        if lock is not None:
            with contextlib.suppress(OSError):
                if path.name.endswith(_READY):
                    with _locked(folder):
                        _resume(path)
                shutil.rmtree(str(path))
            os.close(lock)


def was_interrupted(path: Path) -> bool:
    """Whether `path` is missing because a call was killed while it replaced it."""
    stages = path.parent.glob(f'{_PREFIX}*{_READY}')
    return not path.exists() and any((s / _NEW / path.name).exists() for s in stages)


class _Stage:
    """A hidden folder with the new files and, once the switch has begun, the old ones."""

    def __init__(self, path: Path, files: Together) -> None:
        self.path = path
        self.is_needed = False  # by the next call
        self.key = files.key
        self._files = files

    def switch(self) -> None:
        files = self._files
        with _locked(files.folder):
            self.is_needed = True
            if len(files.files) > 1 or files.gone:
                plan = json.dumps({'files': list(files.files), 'gone': files.gone})
                _write(self.path / _PLAN, plan.encode(), 0o600, set())
                ready = Path(str(self.path) + _READY)
                os.rename(self.path, ready)
                self.path = ready
                _sync(files.folder)
            _switch(self.path, list(files.files), files.gone)
            self.is_needed = False

    def undo(self) -> None:
        """Puts back what was there."""
        folder, names = self._files.folder, list(self._files.files)
        new, old = self.path / _NEW, self.path / _OLD
        with _locked(folder):
            self.is_needed = True
            for name in reversed(names):
                if not os.path.lexists(new / name):
                    os.replace(folder / name, new / name)
            for name in [*self._files.gone, *names]:
                if os.path.lexists(old / name):
                    os.replace(old / name, folder / name)
            self.is_needed = False


def _switch_all(staged: Sequence[_Stage]) -> None:
    begun: List[_Stage] = []
    for stage in staged:
        begun.append(stage)
        try:
            with _said(stage.key):
                stage.switch()
        except BaseException:
            for each in reversed(begun):
                with contextlib.suppress(OSError):  # then it stays for the next call
                    each.undo()
            raise


def _switch(stage: Path, names: Sequence[str], gone: Sequence[str]) -> None:
    """Also goes on with a switch that ended anywhere."""
    folder, new, old = stage.parent, stage / _NEW, stage / _OLD
    if len(names) == 1 and not gone:
        _keep(folder / names[0], old / names[0])
    else:
        for name in [*reversed(names), *gone]:
            if os.path.lexists(folder / name) and (name in gone or os.path.lexists(new / name)):
                os.replace(folder / name, old / name)
    _sync(folder)
    for name in names:
        if os.path.lexists(new / name):
            os.replace(new / name, folder / name)
    _sync(folder)


def _keep(path: Path, backup: Path) -> None:
    """A single file is never missing: it is replaced at one stroke, and can still come back.

    The link is to what is about to lose its name, never to an input, and goes with the stage.
    """
    if os.path.lexists(path):
        try:
            os.link(path, backup, follow_symlinks=False)
        except OSError:  # not this file system; half of a copy would come back as the file
            half = backup.with_name(backup.name + _HALF)
            shutil.copy2(path, half, follow_symlinks=False)
            os.rename(half, backup)


def _resume(stage: Path) -> None:
    """Makes a switch that was killed, unless its key is there: then it was not begun, was done, or someone wrote since."""
    try:
        plan = json.loads((stage / _PLAN).read_text())
        names, gone = ([os.path.basename(n) for n in plan[key]] for key in ('files', 'gone'))
    except (OSError, ValueError, KeyError, TypeError):
        return
    key = names[-1] if names else ''
    if os.path.lexists(stage / _NEW / key) and not os.path.lexists(stage.parent / key):
        _switch(stage, names, gone)


@contextlib.contextmanager
def _staged(files: Together) -> Iterator[_Stage]:
    """A stage, locked, so that no other call takes it for one that was left."""
    lock = None
    while lock is None:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=str(files.folder)))
        lock = _lock(path)
        if lock is not None and not path.exists():  # another call had it for a moment
            os.close(lock)
            lock = None
    stage = _Stage(path, files)
    try:
        (path / _NEW).mkdir()
        (path / _OLD).mkdir()
        yield stage
    finally:
        if not stage.is_needed:
            shutil.rmtree(str(stage.path), ignore_errors=True)
        os.close(lock)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One call at a time; a lock ends with its process."""
    lock = _lock(folder)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, wait: bool = True) -> Optional[int]:
    """What to close to let go; None if the folder is gone or, where `wait` is not, another has it."""
    try:
        found = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(found, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another has it, or the file system has no locks
        if not wait:
            os.close(found)
            return None
    return found


def _write(path: Path, content: Contents, mode: int, groups: Set[int]) -> None:
    """A new file of at most `mode`, whose group may do no more than others if it is not of `groups`."""
    handle = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, 'wb') as stream:
        if isinstance(content, bytes):
            stream.write(content)
        else:
            for source in (content if isinstance(content, tuple) else (content,)):
                append_copy(source, stream)
        found = os.fstat(handle)
        if groups and {found.st_gid} != groups:
            allowed = stat.S_IMODE(found.st_mode)
            os.fchmod(handle, allowed & (~_GROUP | (allowed & _OTHERS) << _GROUP_SHIFT))
        stream.flush()
        os.fsync(handle)


def _access(inputs: Iterable[Path]) -> Tuple[int, Set[int]]:
    """The most that all `inputs` allow, and their groups."""
    found = [os.stat(str(path)) for path in inputs]
    return reduce(and_, (stat.S_IMODE(f.st_mode) for f in found), 0o666), {f.st_gid for f in found}


def _sync(folder: Path) -> None:
    """So that what was renamed there is, even after the machine stops."""
    handle = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that does not know this
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def _said(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SavedFileError(f'cannot write {path}: {error.strerror or error}') from error
