"""Which files make up a saved program: where each Paddle puts the program, its parameters and what goes with them.

2.x: NAME.pdmodel with NAME.pdiparams next to it. 1.x: a folder with `__model__`, and either one file of all parameters
under any name, or a file for each, named as the parameter. Some released 1.x models call the two `model` and `params`.
3.x: NAME.json with NAME.pdiparams next to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from transpiler.errors import InvalidProgramError, SavedFileError

MODEL = '.pdmodel'
JSON = '.json'
PARAMETERS = '.pdiparams'
# Files that Paddle saves next to a program and that stay as they are.
_COMPANIONS = (PARAMETERS, '.pdiparams.info', '.pdparams', '.pdopt')
_OLD_MODEL = '__model__'
_OLD_PARAMETERS = ('__params__', 'params')
_RELEASED = ('model', 'params')


def find_program(given: Path) -> Path:
    """The file of the program that a user names by its path, by its path without suffix, or by its folder."""
    for candidate in (given / _OLD_MODEL, given, Path(str(given) + MODEL)):
        if candidate.is_file():
            return candidate
    if not given.is_dir():
        _refuse(Path(str(given) + JSON), 'a JSON program of Paddle 3; this Paddle runs .pdmodel')
    if is_old(given / _RELEASED[0]):
        return given / _RELEASED[0]
    return _only_one(given, MODEL, f'without {_OLD_MODEL} and with')


def find_json(given: Path, version: str) -> Path:
    """The same for programs of Paddle 3, of which `version` is installed."""
    older = f'a program of Paddle 2; paddlepaddle {version} is installed, which saves .json. Install paddlepaddle 2.6.2 for it'
    for candidate in (given, Path(str(given) + JSON)):
        if candidate.is_file():
            if candidate.suffix == MODEL or candidate.name == _OLD_MODEL:
                _refuse(candidate, older)
            return candidate
    for candidate in (Path(str(given) + MODEL), given / _OLD_MODEL):
        _refuse(candidate, older)
    return _only_one(given, JSON, 'with')


def _only_one(folder: Path, suffix: str, having: str) -> Path:
    """The one program in `folder`; raises SavedFileError if there is another number of them."""
    if not folder.is_dir():
        raise SavedFileError(f'no such program: {folder}')
    found = sorted(p for p in folder.iterdir() if p.suffix == suffix and p.is_file())
    if len(found) == 1:
        return found[0]
    several = f'{len(found)} {suffix} files' if found else f'no {suffix} file'
    raise SavedFileError(f'{folder} is a directory {having} {several}; name the {suffix} file')


def _refuse(path: Path, why: str) -> None:
    """Raises InvalidProgramError if `path` is there."""
    if path.is_file():
        raise InvalidProgramError(f'{path}: {why}')


def is_old(path: Path) -> bool:
    """Whether this is the program of a folder as 1.x wrote it."""
    released = path.name == _RELEASED[0] and path.is_file() and _sibling(path,
                                                                         _RELEASED[1]).is_file()
    return path.name == _OLD_MODEL or released


def companions(path: Path) -> Dict[str, Path]:
    """By suffix, the files of 2.x that go with a program."""
    return {suffix: p for suffix, p in possible_companions(path).items() if p.is_file()}


def possible_companions(path: Path) -> Dict[str, Path]:
    """By suffix, where the files are that go with a program, if there are any."""
    if path.suffix != MODEL:
        return {}
    stem = str(path)[:-len(MODEL)]
    return {suffix: Path(stem + suffix) for suffix in _COMPANIONS}


def old_parameters(path: Path, names: Sequence[str]) -> Tuple[Path, ...]:
    """The files with the parameters of a program in a folder: that of all of them, or one for each, or none.

    Raises:
        SavedFileError: some have a file of their own, others have none.
    """
    given = [_sibling(path, name) for name in _OLD_PARAMETERS if name not in names]
    combined = [p for p in given if p.is_file()]
    if combined:
        return tuple(combined[:1])
    missing = [name for name in names if not _sibling(path, name).is_file()]
    if not missing:
        return parameter_files(path, names)
    if len(missing) < len(names):
        more = f' and for {len(missing) - 1} more' if len(missing) > 1 else ''
        raise SavedFileError(f'{path.parent}: no file for parameter {missing[0]!r}{more}')
    others: List[Path] = [p for p in path.parent.iterdir() if p.is_file() and p != path]
    return tuple(others) if len(others) == 1 else ()


def parameter_files(path: Path, names: Sequence[str]) -> Tuple[Path, ...]:
    """Where each parameter has a file, those files in the order of the names."""
    return tuple(_sibling(path, name) for name in sorted(names))


def _sibling(path: Path, name: str) -> Path:
    return Path(f'{path.parent}/{name}')  # a name may look like a path, even an absolute one
