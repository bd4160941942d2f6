"""Programs of Paddle 3 in files: `.json`, and `.pdiparams` next to it.

An order of ops is all that is written anew: parameters are copied, as their file has them in the order of their names.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Tuple

import paddle
from paddle.base.proto import framework_pb2

from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.paddle3.naming import PARAMETER, declared_inside, declared_name
from transpiler.backends.paddle3.packing import load
from transpiler.backends.paddle3.tensors import dtype_of
from transpiler.backends.settings import static_mode
from transpiler.errors import InvalidProgramError, SavedFileError
from transpiler.serving.forks import in_a_fork
from transpiler.serving.given import found, program_in
from transpiler.serving.layouts import JSON, MODEL, PARAMETERS, find_json
from transpiler.serving.outputs import check_apart, check_free, each_alone, named_to_write
from transpiler.serving.parameters import Parameter, check_parameters
from transpiler.serving.writing import Together, finish_interrupted, write_all

_INPUTS, _FETCH = ('pd_op.data', 'pd_op.feed'), 'pd_op.fetch'
_MAGIC = 'pir'


@dataclass(frozen=True)
class SavedModel:
    """A program as found. `companions` are the files of its parameters, by suffix; `trainable` is a word of its header."""

    path: Path
    serialized: bytes
    program: Any
    trainable: bool = True
    companions: Dict[str, Path] = field(default_factory=dict)

    @property
    def location(self) -> Tuple[str, str]:
        """What Paddle Inference is told to load."""
        return str(self.path), str(self.companions.get(PARAMETERS, ''))

    @property
    def files(self) -> List[Path]:
        """All that it was read from."""
        return [self.path, *self.companions.values()]

    @property
    def for_inference(self) -> bool:
        """Whether a predictor can load it: it says itself what is fetched."""
        return bool(self.fetches)

    @property
    def inputs(self) -> Dict[str, Any]:
        """What it is fed, by name."""
        return {
            declared_name(op): op.result(0)
            for op in self._ops(_INPUTS)
            if not op.result(0).persistable
        }

    @property
    def fetches(self) -> FrozenSet[str]:
        """What an inference program fetches, and nothing else."""
        return frozenset(given_attributes(op)['name'] for op in self._ops((_FETCH,)))

    @property
    def losses(self) -> List[str]:
        """None: ops do not say so here."""
        return []

    @property
    def parameters(self) -> List[Parameter]:
        """As declared."""
        return [
            Parameter(declared_name(op), _type_number(op.result(0)),
                      op.result(0).shape) for op in self._ops((PARAMETER,))
        ]

    def _ops(self, names: Tuple[str, ...]) -> Iterable[Any]:
        return (op for op in self.program.global_block().ops if op.name() in names)


def _type_number(value: Any) -> int:
    number: int = framework_pb2.VarType.Type.Value(dtype_of(value))
    return number


def read_model(given: str) -> SavedModel:
    """The program that `given` names: a file, or a path without `.json`, or a folder that has one.

    Raises:
        SavedFileError: no such file, no permission, missing or damaged parameters.
        InvalidProgramError: the file is no program that the installed Paddle can run, or it has parameters that Paddle does not
            save as it reads them.
    """
    path = found(given, JSON, lambda each: find_json(each, paddle.__version__))
    serialized = program_in(path, (b'{',), lambda: _no_json(path))
    trainable = _header(path, serialized)
    in_a_fork(lambda: _try(serialized), str(path))
    beside = path.with_suffix(PARAMETERS)
    saved = SavedModel(path, serialized, load(serialized), trainable,
                       {PARAMETERS: beside} if beside.is_file() else {})
    if saved.for_inference:
        _check_parameters(saved)
    return saved


def write_model(out: str,
                saved: SavedModel,
                serialized: bytes,
                force: bool,
                others: Mapping[str, bytes] = MappingProxyType({})) -> List[Path]:
    """Writes a program with the parameters of `saved` next to it, all or nothing; returns the paths, the program's first.

    `others`: files, by path, that are written with it or not at all.

    Raises:
        SavedFileError: a target exists, is the input, or cannot be written.
    """
    out = named_to_write(out)
    target = Path(out if out.endswith(JSON) else out + JSON)
    own = {target.with_suffix(s).name: path for s, path in saved.companions.items()}
    contents = {**own, target.name: serialized}
    finish_interrupted(target.parent)
    paths = [target.parent / name for name in contents]
    check_free([*map(Path, others), *paths], saved.files, force)
    _check_alone(target)
    check_apart(map(Path, others), target, [target.with_suffix(PARAMETERS)])
    write_all([*each_alone(others.items()), Together(target.parent, contents)], saved.files)
    return paths[::-1]


def _check_alone(target: Path) -> None:
    """Raises SavedFileError where another program has the parameters that would be replaced."""
    if target.with_suffix(MODEL).exists():
        raise SavedFileError(f'{target.with_suffix(MODEL)} is there, and has the parameters that '
                             f'{target} would have; name another file')


def _no_json(path: Path) -> str:
    program = path.with_suffix(JSON)
    meant = program.is_file() and program != path
    return 'not a JSON program of Paddle 3' + (f'. Did you mean {program}?' if meant else '')


def _header(path: Path, serialized: bytes) -> bool:
    """Raises InvalidProgramError unless it is JSON that says that it is a program; gives `trainable`."""
    if not serialized:
        raise InvalidProgramError(f'{path}: the file is empty')
    try:
        contents = json.loads(serialized)
    except (ValueError, RecursionError) as error:
        raise InvalidProgramError(f'{path}: damaged: no JSON ({error})') from error
    header = contents.get('base_code')
    if not isinstance(header, dict) or header.get('magic') != _MAGIC:
        raise InvalidProgramError(f'{path}: JSON, but not a program of Paddle 3')
    return bool(header.get('trainable', True))


def _try(serialized: bytes) -> None:
    with static_mode():
        import_program(load(serialized))


def _check_parameters(saved: SavedModel) -> None:
    _check_declared(saved)
    if PARAMETERS in saved.companions:
        check_parameters(saved.companions[PARAMETERS], saved.parameters)
    elif saved.parameters:
        raise SavedFileError(
            f'{saved.path}: its {len(saved.parameters)} parameters are missing (no '
            f'{saved.path.with_suffix(PARAMETERS).name} next to it)')


def _check_declared(saved: SavedModel) -> None:
    """Paddle writes a value of each name, and reads one for each declaration of the main block."""
    for op, _ in declared_inside(saved.program.global_block()):
        raise InvalidProgramError(
            f'{saved.path}: parameter {declared_name(op)!r} is declared in a loop or a branch: Paddle saves no value of it, and cannot '
            'run this. Make the layer outside and save again')
    for name, times in Counter(parameter.name for parameter in saved.parameters).items():
        if times > 1:
            raise InvalidProgramError(
                f'{saved.path}: parameter {name!r} is declared {times} times: Paddle saves one value of it, and cannot '
                'load this. Make one layer, call that several times, and save again')
