"""A process for each measurement, which starts from one that has imported Paddle and done nothing else: that takes longer
than most scripts."""
from __future__ import annotations

import os
from typing import Mapping

from benchmarks.apart import ApartError, apart
from benchmarks.wild.figures import Outcome

DEFAULT_SECONDS = 900  # of one measurement; most take some
_PRELOADED = ('benchmarks.wild.child',)


class ScriptError(RuntimeError):
    """The measuring process failed; the message ends with what it said."""


class Processes:
    """Measures in processes of their own, each for `seconds` at most, with `environment` set before Paddle is imported."""

    def __init__(self, environment: Mapping[str, str], seconds: int = DEFAULT_SECONDS) -> None:
        self._seconds = seconds
        os.environ.update(environment)

    def measure(self, name: str, optimized: bool) -> Outcome:
        """The script of that name.

        Raises:
            ScriptError: it raised, crashed, or did not end in time.
        """
        what = f'{name}, {"optimized" if optimized else "untouched"}'
        try:
            return apart(_measure, name, optimized, seconds=self._seconds, preloaded=_PRELOADED)
        except ApartError as error:
            raise ScriptError(f'{what}: {error}') from error


def _measure(name: str, optimized: bool) -> Outcome:
    # Here only: the process that asks needs no Paddle.
    from benchmarks.wild.child import measure
    return measure(name, optimized)
