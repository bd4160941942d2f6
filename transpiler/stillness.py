"""Whether a process stands still: all of it sleeps, and nothing it has started goes on, either.

A fork that needs a lock which another thread had never gets it. Nor does a run of Paddle 2.6's executor always end: the queues of its
threads wake nobody up if they take a thread for awake that goes to sleep at that moment, and then a task is left which nobody runs. Paddle
knows it ("random hang in non-blocking-queue", its pull request 61448) and mended it in 3.0. It is rare, and the untouched program has it,
too: seen where the block of a loop in a loop began.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Callable, List, Optional

_PROCESSES = Path('/proc')
_TICKS = os.sysconf('SC_CLK_TCK')
_IDLE = 0.01  # of a processor: looking takes some, too
_STATE, _USER, _SYSTEM = 0, 11, 12  # in /proc/PID/stat, behind the name


class StandsStillError(RuntimeError):
    """Who was waited for has stood still for too long; it is there yet."""


class Stillness:
    """Of one process, with all that it has started; a system that does not tell has none."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._seconds = seconds
        self._since, self._ticks = time.monotonic(), -1

    def look(self) -> bool:
        """Whether it has stood still for so many seconds, at all looks since then."""
        now, ticks = time.monotonic(), _ticks_asleep(self._pid)
        allowed = _IDLE * _TICKS * (now - self._since)
        if ticks is None or not 0 <= ticks - self._ticks <= allowed:
            self._since, self._ticks = now, -1 if ticks is None else ticks
        return now - self._since >= self._seconds


def wait_for(ready: Callable[[float], bool],
             pid: int,
             still_seconds: float,
             seconds: float = float('inf')) -> None:
    """Waits for a process until `ready`, which is told how many seconds to wait, says so.

    Raises:
        StandsStillError: the process has stood still for so long.
        TimeoutError: `ready` has not said so within `seconds`.
    """
    stillness, end = Stillness(pid, still_seconds), time.monotonic() + seconds
    while not ready(min(1, max(0, end - time.monotonic()))):
        if time.monotonic() >= end:
            raise TimeoutError(f'not done after {seconds} s')
        if stillness.look():
            raise StandsStillError(f'process {pid} has stood still for {still_seconds} s')


def end_all(pid: int) -> None:
    """Kills it and what it has started, which would wait on for good; of this process, what it has started alone."""
    try:
        found = _family(pid)
    except OSError:  # some of it ends meanwhile
        found = [pid]
    for each in (one for one in reversed(found) if one != os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)


def _ticks_asleep(pid: int) -> Optional[int]:
    """Processor time of all of it, in ticks; None where some of it runs, is stopped or waits for a disk, or where nobody can tell."""
    try:
        states = [_fields(each) for each in _family(pid)]
    except OSError:
        return None
    if any(fields[_STATE] != 'S' for fields in states[pid == os.getpid():]):
        return None
    return sum(int(fields[_USER]) + int(fields[_SYSTEM]) for fields in states)


def _fields(pid: int) -> List[str]:
    return (_PROCESSES / str(pid) / 'stat').read_text().rpartition(')')[2].split()


def _family(pid: int) -> List[int]:
    """It and what it has started, and so on; OSError where that can't be read."""
    found = [pid]
    for each in found:
        tasks = _PROCESSES / str(each) / 'task'
        for task in tasks.iterdir():
            found += map(int, (task / 'children').read_text().split())
    return found
