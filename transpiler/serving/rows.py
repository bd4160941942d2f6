"""What `check` says of two saved programs, and the inputs that it reads."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Collection, Dict, List, Optional
from zipfile import BadZipFile

import numpy as np
from rich.table import Table

from transpiler.errors import InvalidArgumentError, SavedFileError
from transpiler.report.data import human
from transpiler.report.text import add_row, plain_table
from transpiler.serving.apart import RunResult, arrays_in


@dataclass(frozen=True)
class Row:
    """One run of one program; `equal`: it gave the bytes of the first row.

    `growth_bytes`: what another process grew by that served it request after request, if that was asked for.
    """

    title: str
    result: RunResult
    equal: bool
    growth_bytes: Optional[int] = None

    def to_dict(self) -> Dict[str, Any]:
        return {
            'run': self.title,
            'equal': self.equal,
            'resting_bytes': self.result.resting_bytes,
            'peak_bytes': self.result.peak_bytes,
            'held_bytes': self.result.held_bytes,
            **({} if self.growth_bytes is None else {
                   'growth_bytes': self.growth_bytes
               })
        }


def read_inputs(path: str, names: Collection[str]) -> Dict[str, np.ndarray]:
    """The arrays of these names in an `.npz` file.

    Raises:
        SavedFileError: it is no such file.
        InvalidArgumentError: it does not have one of them.
    """
    given = _read_npz(path)
    missing = sorted(set(names) - set(given))
    if missing:
        raise InvalidArgumentError(f'{path} has no array for input {missing[0]!r}')
    return {name: given[name] for name in names}


def _read_npz(path: str) -> Dict[str, np.ndarray]:
    try:
        return arrays_in(path)
    except (OSError, ValueError, TypeError, AttributeError, EOFError, BadZipFile,
            zlib.error) as error:
        raise SavedFileError(f'cannot read {path}: no .npz file of arrays') from error


def table(rows: List[Row]) -> Table:
    """Measured peaks side by side, and what the processes grew by where that was asked for."""
    result = plain_table('Measured in fresh processes, above resting')
    served = all(row.growth_bytes is not None for row in rows)
    for column in ('run', 'first run', 'later runs', 'held between', 'resting',
                   *(('process',) if served else ()), 'bytes'):
        result.add_column(column)
    for row in rows:
        peaks = row.result.peak_bytes
        add_row(result, row.title, human(peaks[0]), human(max(peaks[1:])),
                human(row.result.held_bytes), human(row.result.resting_bytes),
                *((human(row.growth_bytes or 0),) if served else ()),
                'equal' if row.equal else 'DIFFERENT')
    return result
