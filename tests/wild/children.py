"""Runs functions in children that are forked from a process that has Paddle imported, and has run nothing yet.

A child has an allocator's peak of its own from zero on, and costs a fork where a process would cost an import.
"""
from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
import traceback
from typing import Any, Callable, Dict, NamedTuple

_PIECE = 1 << 16


class Ended(NamedTuple):
    """What a child gave, or how it ended: an exception's text, or that it was killed."""

    value: Any
    failure: str


def in_child(function: Callable[[], Any], seconds: float) -> Ended:
    """What `function` returns, which JSON must be able to say, after at most `seconds`."""
    reads, writes = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(reads)
        _work(function, writes)
    os.close(writes)
    text, in_time = _read(reads, seconds)
    if not in_time:  # killed first: that its pipe is closed it would tell whoever waits for us
        os.kill(child, signal.SIGKILL)
    os.close(reads)
    status = os.waitpid(child, 0)[1]
    if not in_time:
        return Ended(None, f'took more than {seconds:.0f} s')
    if status or not text:
        return Ended(None, f'ended with status {status}')
    return Ended(**json.loads(text))


def _work(function: Callable[[], Any], writes: int) -> None:
    """In the child, which never returns: what its parent would do at its end is not its business."""
    result: Dict[str, Any] = {'value': None, 'failure': ''}
    # Executors that the parent has dropped have threads that are not here, and end a process that destroys them.
    gc.freeze()
    try:
        result['value'] = function()
    except BaseException as error:  # whatever it is, the parent is to know of it
        result['failure'] = _said(error)
    try:
        rest = json.dumps(result).encode()
        while rest:
            rest = rest[os.write(writes, rest):]
        os._exit(0)
    finally:
        os._exit(1)


def _said(error: BaseException) -> str:
    """Type, last line that says something, and the place of ours that it came from."""
    lines = [line for line in str(error).splitlines() if line.strip() and '[operator <' not in line]
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if '/site-packages/' not in f.filename][-1:]
    place = ''.join(f' at {os.path.basename(f.filename)}:{f.lineno}' for f in ours)
    return f'{type(error).__name__}: {lines[-1][:300] if lines else ""}{place}'


def _read(reads: int, seconds: float) -> Any:
    until = time.monotonic() + seconds
    pieces = []
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([reads], [], [], left)[0]:
            return b'', False
        piece = os.read(reads, _PIECE)
        if not piece:
            return b''.join(pieces), True
        pieces.append(piece)
