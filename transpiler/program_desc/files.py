"""Programs in files: `.pdmodel` with its companions, `__model__` directories, bare serialized programs.

A saved program is written whole or not at all: every file is written next to its target under another name, then
all are renamed. Parameters that stay as they are become hard links, or copies where links cannot be made.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Dict, FrozenSet, Iterable, List, Mapping, Tuple, Union

from paddle.base.proto import framework_pb2

from transpiler.errors import InvalidArgumentError, InvalidProgramError, SavedFileError
from transpiler.program_desc.importer import parse
from transpiler.program_desc.layouts import (MODEL, PARAMETERS, companions, find_program, is_old,
                                             old_parameters, parameter_files)
from transpiler.program_desc.parameters import check_parameter_files, check_parameters
from transpiler.program_desc.soundness import defect, unknown_operator

_FETCHES = ('fetch', 'fetch_v2')
# Paddle counts 2.6.2 as 2006002.
_NEWEST_VERSION = 2006999

# What a file shall have: these bytes, or those of that file, or of those files one after the other.
Contents = Union[bytes, Path, Tuple[Path, ...]]


@dataclass(frozen=True)
class SavedProgram:
    """A program as found. `companions` are the files of its parameters and state, by suffix.

    `separate`: the files of its parameters in the order of their names, where each has one.
    """

    path: Path
    message: framework_pb2.ProgramDesc
    companions: Dict[str, Path] = field(default_factory=dict)
    separate: Tuple[Path, ...] = ()

    @property
    def serialized(self) -> bytes:
        return self.message.SerializeToString()

    @property
    def location(self) -> Tuple[str, ...]:
        """What Paddle Inference is told to load: a folder, or a program and the file of all its parameters."""
        if self.separate:
            return (str(self.path.parent),)
        return str(self.path), str(self.companions.get(PARAMETERS, ''))

    @property
    def files(self) -> List[Path]:
        """All that it was read from."""
        return [self.path, *self.companions.values(), *self.separate]

    @property
    def for_inference(self) -> bool:
        """Whether a predictor can load it: it says itself what is fed and fetched."""
        return any(op.type in _FETCHES for op in self.message.blocks[0].ops)

    @property
    def feeds(self) -> FrozenSet[str]:
        """What an inference program is fed."""
        return frozenset(n for op in self.message.blocks[0].ops
                         if op.type == 'feed' for s in op.outputs for n in s.arguments)

    @property
    def fetches(self) -> FrozenSet[str]:
        """What an inference program fetches, and nothing else."""
        return frozenset(n for op in self.message.blocks[0].ops
                         if op.type in _FETCHES for s in op.inputs for n in s.arguments)

    @property
    def parameters(self) -> List[framework_pb2.VarDesc]:
        """Its parameters and state, as declared."""
        return [v for v in self.message.blocks[0].vars if _is_parameter(v)]

    @property
    def is_bare(self) -> bool:
        """A serialized program in a file of any name."""
        return self.path.suffix != MODEL and not is_old(self.path)


def read_program(given: str) -> SavedProgram:
    """The program that `given` names: a file, or a path prefix, or a folder.

    Raises:
        SavedFileError: no such file, no permission, missing or damaged parameters.
        InvalidProgramError: the file is no program that the installed Paddle can run.
    """
    path = find_program(Path(given))
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SavedFileError(f'cannot read {path}: {error.strerror}') from error
    message = _parse(path, raw)
    saved = SavedProgram(path, message, companions(path))
    _check_soundness(saved)
    if is_old(path):
        saved = _with_old_parameters(saved)
    if saved.for_inference:
        _check_parameters(saved)
    return saved


def write_program(out: str,
                  saved: SavedProgram,
                  serialized: bytes,
                  replaced: Dict[str, Contents],
                  force: bool,
                  others: Mapping[str, bytes] = MappingProxyType({})) -> List[Path]:
    """Writes a program and its companions next to it, all or nothing; returns the paths, the program's first.

    Args:
        out: the path to write to, with or without `.pdmodel`.
        saved: where it came from; its companions are linked, or copied.
        serialized: the new program.
        replaced: companions that differ from those of `saved`, by suffix.
        force: replace what is there.
        others: files, by path, that are written with it or not at all.

    Raises:
        SavedFileError: a target exists, is the input, or cannot be written.
    """
    target = Path(out)
    if out.endswith(('/', os.sep)) or target.is_dir():
        raise SavedFileError(f'{out} is a directory; name the file to write')
    if not saved.is_bare and target.suffix != MODEL:
        target = Path(out + MODEL)
    stem = str(target)[:-len(MODEL)] if target.suffix == MODEL else str(target)
    beside: Dict[str, Contents] = {**saved.companions}
    if saved.separate:
        beside[PARAMETERS] = saved.separate
    beside.update(replaced)
    contents = [(Path(stem + suffix), what) for suffix, what in beside.items()]
    contents.append((target, serialized))
    contents = [(Path(path), content) for path, content in others.items()] + contents
    _check_free((path for path, _ in contents), saved.files, force)
    _write_all(contents)
    return [path for path, _ in reversed(contents)]


def check_fetched(saved: SavedProgram, names: Iterable[str]) -> None:
    """Raises InvalidArgumentError for a name that an inference program does not fetch by itself."""
    for name in sorted(set(names) - saved.fetches):
        raise InvalidArgumentError(f'{saved.path} fetches {", ".join(sorted(saved.fetches))} and '
                                   f'nothing else: save it with {name!r} among its fetch variables')


def write_files(files: Iterable[Tuple[str, bytes]], inputs: Iterable[Path], force: bool) -> None:
    """Writes files (path, content), all or none, and none over `inputs`; raises SavedFileError."""
    contents: List[Tuple[Path, Contents]] = [(Path(path), text) for path, text in files]
    _check_free((path for path, _ in contents), inputs, force)
    _write_all(contents)


def _parse(path: Path, raw: bytes) -> framework_pb2.ProgramDesc:
    if not raw:
        raise InvalidProgramError(f'{path}: the file is empty')
    if raw[:1] == b'{':
        raise InvalidProgramError(f'{path}: a JSON program of Paddle 3; this Paddle runs .pdmodel')
    try:
        message = parse(raw)
    except InvalidProgramError as error:
        raise InvalidProgramError(f'{path}: {error}{_program_beside(path)}') from error
    version = message.version.version
    if version > _NEWEST_VERSION:
        raise InvalidProgramError(
            f'{path}: saved by Paddle {_dotted(version)}, which is newer than 2.6')
    return message


def _program_beside(path: Path) -> str:
    """Who names the parameters means the program."""
    program = path.with_suffix(MODEL)
    return f'. Did you mean {program}?' if path.suffix == PARAMETERS and program.is_file() else ''


def _dotted(version: int) -> str:
    if not version:
        return '1.x'  # which did not write one
    return f'{version // 1000000}.{version // 1000 % 1000}.{version % 1000}'


def _check_soundness(saved: SavedProgram) -> None:
    unknown = unknown_operator(saved.message)
    if unknown is not None:
        raise InvalidProgramError(
            f'{saved.path}: {unknown} is unknown to this Paddle; the program was saved by Paddle '
            f'{_dotted(saved.message.version.version)}. Load and save it there without it.')
    wrong = defect(saved.message, saved.for_inference)
    if wrong is not None:
        raise InvalidProgramError(f'{saved.path}: damaged: {wrong}')


def _with_old_parameters(saved: SavedProgram) -> SavedProgram:
    # A training program may keep state that nobody saved.
    names = [v.name for v in saved.parameters] if saved.for_inference else []
    found = old_parameters(saved.path, names)
    if names and found == parameter_files(saved.path, names):
        return replace(saved, separate=found)
    return replace(saved, companions={PARAMETERS: found[0]} if found else {})


def _check_parameters(saved: SavedProgram) -> None:
    wanted = saved.parameters
    if saved.separate:
        check_parameter_files(saved.separate, wanted)
    elif PARAMETERS in saved.companions:
        check_parameters(saved.companions[PARAMETERS], wanted)
    elif wanted:
        raise SavedFileError(f'{saved.path}: its {len(wanted)} parameters are missing '
                             f'(no file of all of them next to it)')


def _is_parameter(variable: framework_pb2.VarDesc) -> bool:
    return variable.persistable and variable.type.type == framework_pb2.VarType.LOD_TENSOR


def _check_free(paths: Iterable[Path], inputs: Iterable[Path], force: bool) -> None:
    own = {path.resolve() for path in inputs}
    taken = set()
    for path in paths:
        if path.resolve() in own:
            raise SavedFileError(f'{path} is part of the input, which is never written to')
        if path.is_dir():
            raise SavedFileError(f'{path} is a directory')
        if path.exists() and not force:
            raise SavedFileError(f'{path} exists; --force replaces it')
        if path in taken:
            raise SavedFileError(f'{path} is named for two files')
        taken.add(path)


def _write_all(contents: List[Tuple[Path, Contents]]) -> None:
    """Every file under a temporary name, then all renamed; what was there comes back if one rename fails."""
    written: List[Tuple[Path, Path]] = []
    try:
        for path, content in contents:
            written.append((_write_beside(path, content), path))
        _rename_all(written)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SavedFileError(f'cannot write {contents[len(written) - 1][0]}: {reason}') from error
    finally:
        for temporary, _ in written:
            _remove(temporary)


def _write_beside(path: Path, content: Contents) -> Path:
    handle, name = tempfile.mkstemp(prefix=f'.{path.name}.', dir=str(path.parent))
    try:
        with os.fdopen(handle, 'wb') as stream:
            if isinstance(content, bytes):
                stream.write(content)
            elif isinstance(content, tuple):
                for source in content:
                    stream.write(source.read_bytes())
            stream.flush()
            os.fsync(stream.fileno())
        if isinstance(content, Path):
            _link_or_copy(content, name)
        os.chmod(name, 0o644) if not isinstance(content, Path) else None
    except OSError:
        _remove(Path(name))
        raise
    return Path(name)


def _link_or_copy(source: Path, name: str) -> None:
    os.remove(name)
    try:
        os.link(str(source), name)
    except OSError:
        shutil.copy2(str(source), name)


def _rename_all(written: List[Tuple[Path, Path]]) -> None:
    saved: List[Tuple[Path, Path]] = []  # (backup, path)
    renamed: List[Path] = []
    try:
        for temporary, path in written:
            if path.exists():
                backup = Path(str(temporary) + '.old')
                os.link(str(path), str(backup))
                saved.append((backup, path))
            os.replace(str(temporary), str(path))
            renamed.append(path)
    except OSError:
        for path in renamed:
            _remove(path)
        for backup, path in saved:
            os.replace(str(backup), str(path))
        raise
    finally:
        # A rename onto another link to the same file does nothing, so that a backup may still be there.
        for backup, _ in saved:
            _remove(backup)


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except FileNotFoundError:
        pass
