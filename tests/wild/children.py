"""Runs functions in children that are forked from a process that has Paddle imported, and has run nothing yet.

A child has an allocator's peak of its own from zero on, and costs a fork where a process would cost an import.
"""
from __future__ import annotations

import json
import math
import os
import select
import sys
import time
import traceback
from typing import Any, Callable, Dict, NamedTuple, Tuple

from tests.crashes import is_crashing
from tests.memory import freeze
from transpiler.stillness import StandsStillError, end_all, wait_for

_PIECE = 1 << 16
_STILL_SECONDS, _STANDS_STILL = 30, 'stands still'
_CRASHED = 'crashed, and its end stands still'


class Ended(NamedTuple):
    """What a child gave, or how it ended: an exception's text, or that it was killed."""

    value: Any
    failure: str


def in_child(function: Callable[[], Any], seconds: float, has_children: bool = False) -> Ended:
    """What `function` returns, which JSON must be able to say, after at most `seconds`. A child that stands still, as a run of Paddle's
    executor may (see transpiler.stillness), is begun once more. One that `has_children` of its own watches those, and sleeps meanwhile."""
    still = math.inf if has_children else _STILL_SECONDS
    ended = _in_one(function, seconds, still)
    return _in_one(function, seconds, still) if ended.failure == _STANDS_STILL else ended


def _in_one(function: Callable[[], Any], seconds: float, still: float) -> Ended:
    reads, writes = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(reads)
        _work(function, writes)
    os.close(writes)
    text, why_not = _read(reads, child, seconds, still)
    if why_not:  # killed first: that its pipe is closed it would tell whoever waits for us
        end_all(child)
    os.close(reads)
    status = os.waitpid(child, 0)[1]
    if why_not:
        return Ended(None, why_not)
    if status or not text:
        return Ended(None, f'ended with status {status}')
    return Ended(**json.loads(text))


def _work(function: Callable[[], Any], writes: int) -> None:
    """In the child, which never returns: what its parent would do at its end is not its business."""
    result: Dict[str, Any] = {'value': None, 'failure': ''}
    # Executors that the parent has dropped have threads that are not here, and end a process that destroys them.
    freeze()
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


def _read(reads: int, child: int, seconds: float, still: float) -> Tuple[bytes, str]:
    """All that it writes, or why nothing more is waited for."""
    end, pieces = time.monotonic() + seconds, [b'']
    while len(pieces) == 1 or pieces[-1]:
        try:
            wait_for(lambda left: bool(select.select([reads], [], [], left)[0]), child, still,
                     end - time.monotonic())
        except StandsStillError:
            return b'', _CRASHED if is_crashing(child) else _STANDS_STILL
        except TimeoutError:
            return b'', f'took more than {seconds:.0f} s'
        pieces.append(os.read(reads, _PIECE))
    return b''.join(pieces), ''
