"""A process for each measurement, which starts from one that has imported Paddle and done nothing else: that takes longer
than most scripts."""
from __future__ import annotations

import json
import multiprocessing
import os
import traceback
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Mapping

from benchmarks.wild.figures import Outcome

DEFAULT_SECONDS = 900  # of one measurement; most take some
_PRELOADED = ['benchmarks.wild.child']


class ScriptError(RuntimeError):
    """The measuring process failed; the message ends with what it said."""


class Processes:
    """Measures in processes of their own, each for `seconds` at most, with `environment` set before Paddle is imported."""

    def __init__(self, environment: Mapping[str, str], seconds: int = DEFAULT_SECONDS) -> None:
        self._seconds = seconds
        os.environ.update(environment)
        self._context = multiprocessing.get_context('forkserver')
        self._context.set_forkserver_preload(_PRELOADED)

    def measure(self, name: str, optimized: bool) -> Outcome:
        """The script of that name.

        Raises:
            ScriptError: it raised, crashed, or did not end in time.
        """
        what = f'{name}, {"optimized" if optimized else "untouched"}'
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_measure, args=(sender, name, optimized))
        process.start()
        sender.close()
        try:
            if not receiver.poll(self._seconds):
                raise ScriptError(f'{what}: not done after {self._seconds} s')
            said = json.loads(receiver.recv_bytes())
        except EOFError as error:
            process.join()
            raise ScriptError(f'{what}: ended with status {process.exitcode}') from error
        finally:
            process.kill()
            process.join()
            receiver.close()
        if 'failure' in said:
            raise ScriptError(f'{what}: {said["failure"]}')
        return Outcome.from_dict(said)


def _measure(sender: Connection, name: str, optimized: bool) -> None:
    from benchmarks.wild.child import measure
    try:
        said = asdict(measure(name, optimized))
    except Exception:  # pylint: disable=broad-except
        said = {'failure': traceback.format_exc()[-1500:]}
    sender.send_bytes(json.dumps(said).encode())
    sender.close()
