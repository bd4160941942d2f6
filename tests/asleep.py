"""Threads of this process that get no turn: what a collector may be late with, at its worst, and each time the same."""
from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Iterator

# Another process stops them, as a debugger would, until it is told to let them go.
_STOPS = """
import ctypes, os, sys
SEIZE, INTERRUPT, DETACH, ANY_THREAD = 0x4206, 0x4207, 17, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
threads = [int(each) for each in sys.argv[1:]]
for each in threads:
    if libc.ptrace(SEIZE, each, None, None) or libc.ptrace(INTERRUPT, each, None, None):
        sys.exit(os.strerror(ctypes.get_errno()))
    os.waitpid(each, ANY_THREAD)
print('asleep', flush=True)
sys.stdin.readline()
for each in threads:
    libc.ptrace(DETACH, each, None, None)
"""


@contextlib.contextmanager
def others_asleep() -> Iterator[None]:
    """No thread but this one gets a turn inside.

    Raises:
        PermissionError: the system lets nobody stop a thread.
    """
    here = os.getpid()
    others = [each for each in os.listdir('/proc/self/task') if int(each) != here]
    with subprocess.Popen([sys.executable, '-S', '-c', _STOPS, *others],
                          stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE,
                          text=True) as stopping:
        assert stopping.stdin and stopping.stdout and stopping.stderr
        if stopping.stdout.readline() != 'asleep\n':
            raise PermissionError(stopping.stderr.read().strip())
        try:
            yield
        finally:
            stopping.stdin.write('\n')
            stopping.stdin.flush()
            stopping.wait()
