"""Two saved programs, run side by side: the same bytes, and which memory each needs."""

from __future__ import annotations

import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional
from zipfile import BadZipFile

import numpy as np
from rich.table import Table

from transpiler.backends.paddle2.importer import declared, import_program, parse
from transpiler.errors import InvalidArgumentError, SavedFileError
from transpiler.report.data import human
from transpiler.report.text import add_row, plain_table
from transpiler.request import Request, check_names
from transpiler.serving.files import SavedProgram, check_fetched, read_program
from transpiler.serving.running import SETTINGS, RunResult, RunSpec, make_feed, read_state, run_apart
from transpiler.serving.trial import try_import


@dataclass(frozen=True)
class Row:
    """One run of one program; `equal`: it gave the bytes of the first row."""

    title: str
    result: RunResult
    equal: bool

    def to_dict(self) -> Dict[str, Any]:
        return {
            'run': self.title,
            'equal': self.equal,
            'resting_bytes': self.result.resting_bytes,
            'peak_bytes': self.result.peak_bytes,
            'held_bytes': self.result.held_bytes
        }


def compare(source: str, target: str, feed: Optional[str], fetch: List[str], batch_size: int,
            every_setting: bool, advance: Callable[[float], None]) -> List[Row]:
    """Runs both; raises TranspilerError if one does not run or the inputs do not fit.

    `advance` is told which share of the runs is done.
    """
    old, new = read_program(source), read_program(target)
    if old.for_inference != new.for_inference:
        raise InvalidArgumentError('one of the two is an inference program, the other is not')
    if not old.for_inference and not fetch:
        raise InvalidArgumentError(
            f'{old.path} has no fetch operator: name with --fetch what to compare')
    _check_agreement(old, new, fetch)
    settings = SETTINGS if every_setting and old.for_inference else SETTINGS[:1]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / 'feed.npz')
        np.savez(path, **_inputs(old, feed, fetch, batch_size))
        first = run_apart(RunSpec(str(old.path), path, fetch))
        rows = [Row(str(old.path), first, len(set(first.digests)) == 1 or not old.for_inference)]
        for setting in settings:
            result = run_apart(RunSpec(str(new.path), path, fetch, list(setting)))
            title = ' '.join([str(new.path), *setting])
            advance(len(rows) / (1 + len(settings)))
            rows.append(Row(title, result, result.results == first.results))
    return rows


def _check_agreement(old: SavedProgram, new: SavedProgram, fetch: List[str]) -> None:
    """Raises TranspilerError unless both can be run, are fed the same, and have what is to be fetched."""
    for saved in (old, new):
        try_import(saved)
        read_state(saved)
        check_names(declared(parse(saved.serialized)), frozenset(fetch))
        if saved.for_inference:
            check_fetched(saved, fetch)
    different = sorted(old.feeds ^ new.feeds)
    if different:
        raise InvalidArgumentError(
            f'only one of {old.path} and {new.path} has an input {different[0]!r}')


def _inputs(saved: SavedProgram, feed: Optional[str], fetch: List[str],
            batch_size: int) -> Dict[str, np.ndarray]:
    program = import_program(saved.serialized, fetch)
    dims, _ = Request(batch_size=batch_size).sizes(program.graph, program.inputs)
    shapes = {v.name: v.shape for v in program.graph.values if _is_input(v, saved)}
    if feed is None:
        sizes = {n: tuple(d.evaluate(dims) for d in shape or ()) for n, shape in shapes.items()}
        return make_feed(saved, sorted(shapes), sizes)
    given = _read_npz(feed)
    missing = sorted(set(shapes) - set(given))
    if missing:
        raise InvalidArgumentError(f'{feed} has no array for input {missing[0]!r}')
    return {name: given[name] for name in shapes}


def _is_input(value: Any, saved: SavedProgram) -> bool:
    return value.region == 0 and (value.name in saved.feeds if saved.feeds else value.fed)


def _read_npz(path: str) -> Dict[str, np.ndarray]:
    try:
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, TypeError, AttributeError, EOFError, BadZipFile,
            zlib.error) as error:
        raise SavedFileError(f'cannot read {path}: no .npz file of arrays') from error


def table(rows: List[Row]) -> Table:
    """Measured peaks side by side."""
    result = plain_table('Measured in fresh processes, above resting')
    for column in ('run', 'first run', 'later runs', 'held between', 'resting', 'bytes'):
        result.add_column(column)
    for row in rows:
        peaks = row.result.peak_bytes
        add_row(result, row.title, human(peaks[0]), human(max(peaks[1:])),
                human(row.result.held_bytes), human(row.result.resting_bytes),
                'equal' if row.equal else 'DIFFERENT')
    return result
