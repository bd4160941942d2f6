"""The memory of the test process itself."""
from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

_TRIM = getattr(ctypes.CDLL(None), 'malloc_trim', None)  # glibc's alone
_RESIDENT = Path('/proc/self/statm')
_SMALL = 700 << 20  # what the imports of all tests take, and some more


def give_back() -> None:
    """Returns to the system what is free: each of the executors' many threads leaves glibc an arena, which keeps what it had."""
    if _TRIM is not None and _RESIDENT.exists():
        pages = int(_RESIDENT.read_text().split()[1])
        if pages * os.sysconf('SC_PAGE_SIZE') > _SMALL:
            _TRIM(0)


def freeze() -> None:
    """Keeps the collector of cycles off what is there now, for as long as the process lives.

    memory_optimize asks whether anything is frozen, and Python counts all of it to say so: 30 ms here, each time.
    """
    gc.freeze()
    count = gc.get_freeze_count()
    gc.get_freeze_count = lambda: count
