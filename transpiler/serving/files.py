"""Programs in files: `.pdmodel` with its companions, `__model__` directories, bare serialized programs.

A saved program is written whole or not at all, see `writing`. Parameters that stay as they are are copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Dict, FrozenSet, List, Mapping, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import read_by, role_of, written_by
from transpiler.backends.paddle2.importer import parse
from transpiler.backends.paddle2.soundness import defect, unknown_operator
from transpiler.errors import InvalidProgramError, SavedFileError
from transpiler.serving.given import found, program_in
from transpiler.serving.layouts import (MODEL, PARAMETERS, companions, find_program, is_old,
                                        old_parameters, parameter_files, possible_companions)
from transpiler.serving.outputs import check_apart, check_free, each_alone, named_to_write
from transpiler.serving.parameters import check_parameter_files, check_parameters, parameters_of
from transpiler.serving.writing import Contents, Together, finish_interrupted, write_all

_FETCHES = ('fetch', 'fetch_v2')
_BACKWARD, _LOSS = 1, 256  # bits of what an op says of its role
# Paddle counts 2.6.2 as 2006002.
_NEWEST_VERSION = 2006999
# The tags of its fields, which are all messages; and the brace of JSON.
_STARTS = (b'{', *(bytes([8 * f.number + 2]) for f in framework_pb2.ProgramDesc.DESCRIPTOR.fields))


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
        return frozenset(
            written_by(*(op for op in self.message.blocks[0].ops if op.type == 'feed')))

    @property
    def fetches(self) -> FrozenSet[str]:
        """What an inference program fetches, and nothing else."""
        return frozenset(read_by(*(op for op in self.message.blocks[0].ops if op.type in _FETCHES)))

    @property
    def losses(self) -> List[str]:
        """What ops make that say of themselves that they make a loss."""
        return [
            name for op in self.message.blocks[0].ops
            if (role_of(op) or 0) & (_LOSS | _BACKWARD) == _LOSS for name in written_by(op)
        ]

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
    path = found(given, MODEL, find_program)
    raw = program_in(path, _STARTS,
                     lambda: f'not a serialized Paddle program{_program_beside(path)}')
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
        saved: where it came from; its companions are copied.
        serialized: the new program.
        replaced: companions that differ from those of `saved`, by suffix.
        force: replace what is there.
        others: files, by path, that are written with it or not at all.

    Raises:
        SavedFileError: a target exists, is the input, or cannot be written.
    """
    target = _target(out, saved)
    stem = str(target)[:-len(MODEL)] if target.suffix == MODEL else str(target)
    beside: Dict[str, Contents] = {**saved.companions}
    if saved.separate:
        beside[PARAMETERS] = saved.separate
    beside.update(replaced)
    contents: Dict[str, Contents] = {Path(stem + s).name: what for s, what in beside.items()}
    contents[target.name] = serialized
    finish_interrupted(target.parent)
    gone = [p for p in companions(target).values() if p.name not in contents]
    own = [target.parent / name for name in contents]
    check_free([*map(Path, others), *own, *gone], saved.files, force)
    check_apart(map(Path, others), target, possible_companions(target).values())
    program = Together(target.parent, contents, tuple(p.name for p in gone))
    write_all([*each_alone(others.items()), program], saved.files)
    return own[::-1]


def _target(out: str, saved: SavedProgram) -> Path:
    target = Path(named_to_write(out))
    return target if saved.is_bare or target.suffix == MODEL else Path(out + MODEL)


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
        check_parameter_files(saved.separate, parameters_of(wanted))
    elif PARAMETERS in saved.companions:
        check_parameters(saved.companions[PARAMETERS], parameters_of(wanted))
    elif wanted:
        raise SavedFileError(f'{saved.path}: its {len(wanted)} parameters are missing '
                             f'(no file of all of them next to it)')


def _is_parameter(variable: framework_pb2.VarDesc) -> bool:
    return variable.persistable and variable.type.type == framework_pb2.VarType.LOD_TENSOR
