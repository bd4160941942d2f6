"""minimalloc's CSV files: `id,lower,upper,size` in, the same with `offset` out.

A buffer lives in [lower, upper), so `upper` is exclusive: its inclusive range here is
(lower, upper - 1).
"""
from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Dict, List, TextIO, Tuple

import numpy as np

REQUIRED = ("id", "lower", "upper", "size")
UNSUPPORTED = ("gaps", "hint", "alignment")


class CsvFormatError(ValueError):
    """The file is not a packing problem; the message names the line and what is wrong."""


@dataclass(frozen=True)
class CsvProblem:
    """A packing problem as read.

    Attributes:
        rows: the file's own cells, row by row, by column name.
        ranges: int64 (n, 2), inclusive.
        sizes: int64 (n,), bytes.
    """
    rows: Tuple[Dict[str, str], ...]
    ranges: np.ndarray
    sizes: np.ndarray


def read_problem(stream: TextIO) -> CsvProblem:
    """Read a packing problem.

    Raises:
        CsvFormatError: for a missing or repeated column, a cell that is not a whole number, a
            row of the wrong length, an empty life time, a negative or huge number, a repeated id,
            or a column that would constrain the packing in a way that `pack` does not know.
    """
    try:
        reader = csv.reader(stream, strict=True)
        header = [name.strip() for name in next(reader, [])]
        _check_header(header)
        rows = []
        for cells in reader:
            if cells:
                rows.append(_row(header, cells, reader.line_num))
    except (csv.Error, UnicodeDecodeError) as error:
        raise CsvFormatError(f"not a CSV file: {error}") from error
    seen: Dict[str, int] = {}
    numbers = []
    for line, row in rows:
        if row["id"] in seen:
            raise CsvFormatError(f"line {line}: id {row['id']!r} is already on line "
                                 f"{seen[row['id']]}")
        seen[row["id"]] = line
        numbers.append(_numbers(line, row))
    table = np.array(numbers, dtype=np.int64).reshape(-1, 3)
    ranges = np.stack([table[:, 0], table[:, 1] - 1], axis=1)
    return CsvProblem(tuple(row for _, row in rows), ranges, table[:, 2].copy())


def write_solution(problem: CsvProblem, offsets: np.ndarray, stream: TextIO) -> None:
    """Write the problem's rows with their `offset` (int64 (n,), bytes) as the last column."""
    columns = [name for name in (problem.rows[0] if problem.rows else REQUIRED) if name != "offset"]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns + ["offset"])
    for row, offset in zip(problem.rows, offsets.tolist()):
        writer.writerow([row[name] for name in columns] + [offset])


def _check_header(header: List[str]) -> None:
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise CsvFormatError(f"line 1: no column {', '.join(missing)} (found: "
                             f"{', '.join(header) or 'nothing'})")
    if len(set(header)) != len(header):
        raise CsvFormatError("line 1: a column name is repeated")


def _row(header: List[str], cells: List[str], line: int) -> Tuple[int, Dict[str, str]]:
    if len(cells) != len(header):
        raise CsvFormatError(f"line {line}: {len(cells)} cells under {len(header)} columns")
    row = {name: cell.strip() for name, cell in zip(header, cells)}
    for name in UNSUPPORTED:
        if row.get(name, "") not in ("", "1" if name == "alignment" else ""):
            raise CsvFormatError(f"line {line}: column {name} is not supported")
    return line, row


def _numbers(line: int, row: Dict[str, str]) -> Tuple[int, int, int]:
    values = []
    for name in REQUIRED[1:]:
        try:
            values.append(int(row[name]))
        except ValueError:
            raise CsvFormatError(f"line {line}: {name} is not a whole number: "
                                 f"{row[name]!r}") from None
        if abs(values[-1]) >= 2**48:
            raise CsvFormatError(f"line {line}: {name} is out of range: {row[name]}")
    lower, upper, size = values
    if upper <= lower:
        raise CsvFormatError(f"line {line}: upper {upper} is not above lower {lower}")
    if size < 0:
        raise CsvFormatError(f"line {line}: size {size} is negative")
    return lower, upper, size
