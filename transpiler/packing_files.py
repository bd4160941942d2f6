"""minimalloc CSV files through `pack`."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Optional, Tuple

from transpiler.assignment import (CapacityError, CsvFormatError, Packing, pack, read_problem,
                                   write_solution)
from transpiler.errors import MemoryBudgetError, SavedFileError

_LARGEST = 1 << 28  # of some ten million buffers


def pack_file(source: Path, alignment: int, capacity: Optional[int],
              seconds: float) -> Tuple[Packing, str]:
    """The packing of the problem in `source`, and its CSV text.

    Raises:
        SavedFileError: the file cannot be read or is no packing problem.
        MemoryBudgetError: no packing within `capacity` bytes was found.
    """
    try:
        with open(source, newline='') as stream:
            if os.fstat(stream.fileno()).st_size > _LARGEST:
                raise CsvFormatError(f'more than {_LARGEST} bytes')
            problem = read_problem(stream)
        packing = pack(problem.ranges, problem.sizes, alignment, capacity, seconds)
    except CapacityError as error:
        raise MemoryBudgetError(f'{source}: {error}') from error
    except ValueError as error:  # what CsvFormatError is, too
        raise SavedFileError(f'{source}: {error}') from error
    except OSError as error:
        raise SavedFileError(f'cannot read {source}: {error.strerror}') from error
    text = io.StringIO()
    write_solution(problem, packing.offsets, text)
    return packing, text.getvalue()
