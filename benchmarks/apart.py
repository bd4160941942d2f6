"""Measurements in processes of their own, forked from one that has imported Paddle and done nothing else: the import takes
longer than most of them."""
from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Callable, Iterator, Optional, Sequence

from benchmarks.spec import Spec
from transpiler.stillness import StandsStillError, end_all, wait_for

# What stands still for so long is begun again.
_STILL_SECONDS = 60
_PRELOADED = ("benchmarks.measure", "transpiler.api", "transpiler.planning")


class ApartError(RuntimeError):
    """The process raised or crashed; the message ends with what it said."""


def apart(function: Callable[..., Any],
          *arguments: Any,
          seconds: Optional[float] = None,
          preloaded: Sequence[str] = _PRELOADED) -> Any:
    """What `function`, of the top of a module, gives for `arguments` in a fresh process of one thread.

    Args:
        seconds: how long it may take; for ever if not given. One that stands still, see transpiler.stillness, is begun once more.
        preloaded: what the process has imported. Of several, that of the first call counts.

    Raises:
        ApartError: it raised, or did not end in time, or the process crashed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preloaded))
    try:
        done, answer = _asked(context, function, arguments, seconds)
    except StandsStillError as error:
        print(f"{error}: begun again", file=sys.stderr)
        try:
            done, answer = _asked(context, function, arguments, seconds)
        except StandsStillError as again:
            raise ApartError(str(again)) from error
    if not done:
        raise ApartError(answer)
    return answer


def _asked(context: Any, function: Callable[..., Any], arguments: Any,
           seconds: Optional[float]) -> Any:
    """What one process sends."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, arguments))
    with _environment():  # the first call starts the server, which keeps it
        process.start()
    sender.close()
    try:
        wait_for(receiver.poll, process.pid, _STILL_SECONDS,
                 float("inf") if seconds is None else seconds)
        return receiver.recv()
    except TimeoutError as error:
        raise ApartError(str(error)) from error
    except EOFError as error:
        process.join()
        raise ApartError(f"ended with status {process.exitcode}") from error
    finally:
        end_all(process.pid)
        process.join()
        receiver.close()


def _answer(sender: Connection, function: Callable[..., Any], arguments: Any) -> None:
    try:
        answer = True, function(*arguments)
    except Exception:  # pylint: disable=broad-except
        answer = False, traceback.format_exc()[-3000:]
    sender.send(answer)
    sender.close()


@contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(Spec("").environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
