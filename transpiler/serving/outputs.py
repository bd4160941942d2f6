"""Files that a user names to be written: whether they may be, and writing some of them, all or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterable, List, Tuple

from transpiler.errors import SavedFileError
from transpiler.serving.writing import Together, finish_interrupted, write_all

# A name without one of these stands for a file with it, unless there is one that is called so.
_PROGRAMS = ('.pdmodel', '.json')


def write_files(files: Iterable[Tuple[str, bytes]], inputs: Iterable[Path], force: bool) -> None:
    """Writes files (path, content), all or none, and none over `inputs`; raises SavedFileError."""
    sets, inputs = each_alone(files), list(inputs)
    for folder in {each.folder for each in sets}:
        finish_interrupted(folder)
    check_free([each.key for each in sets], inputs, force)
    write_all(sets, inputs)


def each_alone(files: Iterable[Tuple[str, bytes]]) -> List[Together]:
    """Files (path, content) that do not make up anything together."""
    return [Together(Path(path).parent, {Path(path).name: content}) for path, content in files]


def check_free(paths: Iterable[Path], inputs: Iterable[Path], force: bool) -> None:
    """Raises SavedFileError for a path that is of the input, is there already, or can't be a file."""
    own = {os.path.realpath(path) for path in inputs}
    taken = set()
    for path in paths:
        check_text(path)
        if os.path.realpath(path) in own or place(path) in own:
            raise SavedFileError(f'{path} is part of the input, which is never written to')
        if path.is_dir():
            raise SavedFileError(f'{path} is a directory')
        hidden = next((each for each in _PROGRAMS if os.path.lexists(f'{path}{each}')), None)
        if hidden:
            raise SavedFileError(
                f'{path} would be read in place of {path}{hidden}; name another file')
        if os.path.lexists(path) and not force:
            raise SavedFileError(f'{path} exists; --force replaces it')
        if place(path) in taken:
            raise SavedFileError(f'{path} is named for two files')
        taken.add(place(path))


def check_apart(paths: Iterable[Path], target: Path, companions: Iterable[Path]) -> None:
    """Raises SavedFileError for a path that would be read as part of the program in `target`, with its `companions`."""
    named = target.with_suffix('') if target.suffix in _PROGRAMS else target
    own = {place(each) for each in (target, named, *companions)}
    for path in paths:
        if place(path) in own:
            raise SavedFileError(f'{path} would be read as part of {target}; name another file')


def place(path: Path) -> str:
    """Where a name is, whatever it is a link to."""
    return os.path.join(os.path.realpath(path.parent), path.name)


def named_to_write(out: str) -> str:
    """`out`, with which the name of a program begins; raises SavedFileError if it names no file."""
    if not out:
        raise SavedFileError('no file is named to write to; name one')
    if out.endswith(('/', os.sep)) or os.path.basename(out) in ('.', '..') or os.path.isdir(out):
        there = 'is' if os.path.isdir(out) else 'names'
        raise SavedFileError(
            f'{out} {there} a directory; name the file to write, as {os.path.join(out, "model")}')
    return out


def check_text(path: Path) -> None:
    """Paddle opens no other files, and what is said of them is text."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise SavedFileError(f'{path}: the name is no UTF-8; rename it') from error
    if '\0' in str(path):
        raise SavedFileError(f'{str(path)!r} is no name of a file')
