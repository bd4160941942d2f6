"""What looks as if it stood still, and has crashed."""
from __future__ import annotations

import signal
from pathlib import Path

_FATAL = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


def is_crashing(process: int) -> bool:
    """Whether a thread of it is in a handler of a signal that is to end it, which is held back meanwhile. Paddle's handler allocates memory:
    where malloc has found its heap damaged, it waits for malloc's lock for good."""
    held = {1 << (each - 1) for each in _FATAL}
    return any(_held_back(thread) in held for thread in Path(f'/proc/{process}/task').iterdir())


def _held_back(thread: Path) -> int:
    """A bit for each signal."""
    lines = (thread / 'status').read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith('SigBlk:'))
