"""Paddle ends the whole process on some programs that are damaged: so a file is first tried in a fork of this process."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import resource
import select
import signal
from typing import Callable, Tuple

from transpiler import errors
from transpiler.errors import InvalidProgramError, TranspilerError
from transpiler.stillness import StandsStillError, end_all, wait_for

_LONGEST = 200
# A fork that sleeps for so long and has said nothing waits for a lock that a thread of this process had: it has no such thread.
_STILL_SECONDS = 20
_PIECE = 1 << 16


def in_a_fork(work: Callable[[], None], program: str) -> None:
    """Runs `work`, whose results are files, if any, in a fork. What Paddle prints when it ends is not shown.

    A fork that a signal has ended is made once more: it may have died of what other threads of this process were about. Of a
    damaged program the next one, which has the same memory, dies, too. So is one that stands still, for the same reason.

    Raises:
        TranspilerError: `work` raised it; or two forks stood still.
        InvalidProgramError: `work` raised another error, or ended the process; `program` is what it was done to.
    """
    answer, status = _answer(work, program)
    if not answer and os.WIFSIGNALED(status):
        answer, status = _answer(work, program)
    if not answer:
        how = 'ends'
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            raise TranspilerError(
                f'{program}: a fork of this process, which tries to read it first, stands still or was killed. '
                'Read it in a process that has run no program yet, and with more memory')
        if os.WIFSIGNALED(status):
            how = f'ends with {signal.Signals(os.WTERMSIG(status)).name}'
        raise InvalidProgramError(f'{program}: damaged: Paddle {how} when it reads the program')
    said = json.loads(answer.decode())
    if said:
        raise getattr(errors, said['kind'])(said['message'])


def _answer(work: Callable[[], None], program: str) -> Tuple[bytes, int]:
    """What a fork says, nothing if it ended before; and how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _work_and_exit(work, writing, program)
    os.close(writing)
    try:
        answer = _read(reading, child)
    except StandsStillError:
        end_all(child)
        answer = b''
    except BaseException:  # such as an interrupt: nobody else would end the fork, or wait for it
        end_all(child)
        raise
    finally:
        os.close(reading)
        _, status = os.waitpid(child, 0)
    return answer, status


def _read(reading: int, child: int) -> bytes:
    """All that it writes; StandsStillError where it stands still before."""
    pieces = [b'']
    while len(pieces) == 1 or pieces[-1]:
        wait_for(lambda seconds: bool(select.select([reading], [], [], seconds)[0]), child,
                 _STILL_SECONDS)
        pieces.append(os.read(reading, _PIECE))
    return b''.join(pieces)


def _work_and_exit(work: Callable[[], None], writing: int, program: str) -> None:
    """Never returns; an error goes through the pipe."""
    said = {}
    try:
        _be_quiet()
        work()
    except TranspilerError as error:
        said = {'kind': type(error).__name__, 'message': str(error)}
    except RecursionError:
        said = {
            'kind': InvalidProgramError.__name__,
            'message': f'{program}: its blocks are nested too deep to be planned'
        }
    except BaseException as error:  # whatever it is, the parent tells it
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f'{type(error).__name__}: {(lines or [""])[0][:_LONGEST]}'
        said = {
            'kind': InvalidProgramError.__name__,
            'message': f'{program}: damaged: reading it fails with {reason}'
        }
    finally:
        with contextlib.suppress(OSError):
            os.write(writing, json.dumps(said).encode())
        os._exit(0)


def _be_quiet() -> None:
    faulthandler.disable()
    gc.disable()  # what it would free may have threads, which a fork has not
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
