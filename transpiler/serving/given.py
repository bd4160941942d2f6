"""Saved programs that a user names, of whichever Paddle: where they are, what of them may be asked for, how inputs are drawn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import AbstractSet, Any, Callable, Container, Iterable, Protocol, Sequence

import numpy as np

from transpiler.errors import InvalidArgumentError, InvalidProgramError, SavedFileError
from transpiler.serving.outputs import check_text
from transpiler.serving.writing import was_interrupted

_LARGEST = 2**31 - 1  # bytes that protobuf reads
_NUMPY = {'FP32': 'float32', 'FP64': 'float64', 'FP16': 'float16', 'BF16': 'uint16'}


class Saved(Protocol):

    @property
    def path(self) -> Path:
        ...

    @property
    def fetches(self) -> AbstractSet[str]:
        """What an inference program fetches."""
        ...


def found(named: str, suffix: str, find: Callable[[Path], Path]) -> Path:
    """What `find` finds for the path `named`, which may be without `suffix`; raises SavedFileError."""
    if not named:
        raise SavedFileError('no program is named to read; name one')
    given = Path(named)
    check_text(given)
    for path in (given, Path(str(given) + suffix)):
        if was_interrupted(path):
            raise SavedFileError(f'{path} was being replaced by a call that was killed; the next '
                                 f'one that writes to {path.parent} completes it')
    path = find(given)
    check_text(path)
    return path


def program_in(path: Path, starts: Container[bytes], otherwise: Callable[[], str]) -> bytes:
    """All bytes of `path`, of which not more than one is read if it is none of `starts`.

    Raises:
        SavedFileError: it cannot be read.
        InvalidProgramError: it is too large for a program, or begins as none does: `otherwise` says so.
    """
    try:
        with open(path, 'rb') as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > _LARGEST:
                raise InvalidProgramError(f'{path}: {size} bytes are too many for a program')
            start = stream.read(1)
            if start and start not in starts:
                raise InvalidProgramError(f'{path}: {otherwise()}')
            return start + stream.read()
    except OSError as error:
        raise SavedFileError(f'cannot read {path}: {error.strerror}') from error


def check_fetched(saved: Saved, names: Iterable[str]) -> None:
    """Raises InvalidArgumentError for a name that an inference program does not fetch by itself."""
    for name in sorted(set(names) - saved.fetches):
        raise InvalidArgumentError(f'{saved.path} fetches {", ".join(sorted(saved.fetches))} and '
                                   f'nothing else: save it with {name!r} among its fetch variables')


def check_same_inputs(old: Saved, new: Saved, fed: Sequence[Iterable[str]]) -> None:
    """Raises InvalidArgumentError unless both are `fed` the same names."""
    for name in sorted(set(fed[0]) ^ set(fed[1])):
        raise InvalidArgumentError(f'only one of {old.path} and {new.path} has an input {name!r}')


def numpy_type(short: str) -> str:
    """What numpy calls an element type, which graphs call `short`."""
    return _NUMPY.get(short, short.lower())


def drawn(random: Any, short: str, sizes: Sequence[int]) -> np.ndarray:
    """An input that any program accepts: normal numbers, or 0 and 1 where whole numbers are asked for."""
    dtype = np.dtype(numpy_type(short))
    whole = dtype.kind in 'iub'
    numbers = random.randint(0, 2, sizes) if whole else random.randn(*sizes)
    return np.asarray(numbers).astype(dtype)  # of no dims they are one number
