"""What of this process stands still for good is ended, and named.

A run of Paddle's executor may never end, whoever made the program (see transpiler.stillness): who meets that is begun once more. What
stands still elsewhere, or again, or in a crash, has failed.
"""
from __future__ import annotations

import faulthandler
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Iterator, List, Optional

import pytest

from tests.crashes import is_crashing
from transpiler.stillness import Stillness, end_all

_SECONDS, _LOOK_SECONDS, _LONGEST_SECONDS = 150, 5, 1500
_NOTES = "stuck_notes"  # of a worker: the folder of the notes of all workers, in what its controller tells it
_PADDLE = f"{os.sep}site-packages{os.sep}paddle{os.sep}"


class Watch:
    """Of a worker of xdist: ends it where a test stands still or takes far too long; with a note of the test if that waits for Paddle."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._main = threading.get_ident()
        self._test: Optional[str] = None
        threading.Thread(target=self._look_on, daemon=True).start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self._test = item.nodeid
        yield
        self._test = None

    def _look_on(self) -> None:
        watched = None
        while True:
            time.sleep(_LOOK_SECONDS)
            if self._test is None or self._test != watched:
                watched, since, stillness = self._test, time.monotonic(), _own_stillness()
            elif stillness.look():
                frame = sys._current_frames()[self._main]
                in_paddle = _PADDLE in frame.f_code.co_filename
                self._end(watched if in_paddle and not is_crashing(os.getpid()) else None)
            elif time.monotonic() - since > _LONGEST_SECONDS:
                self._end(None)

    def _end(self, noted: Optional[str]) -> None:
        if noted is not None:
            (self._notes / str(os.getpid())).write_text(noted)
        faulthandler.dump_traceback(all_threads=True)
        end_all(os.getpid())
        os._exit(1)


def _own_stillness() -> Stillness:
    return Stillness(os.getpid(), _SECONDS)


class Retry:
    """Of the controller: what a worker has left a note of runs once more."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._notes = Path(self._folder.name)
        self._begun_again: List[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_NOTES] = str(self._notes)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        noted = {note.read_text() for note in self._notes.iterdir()}
        if crashitem in noted and crashitem not in self._begun_again:
            self._begun_again.append(crashitem)
            sched.mark_test_pending(crashitem)
            report.outcome = "rerun"

    def pytest_report_teststatus(self, report: Any) -> Optional[Any]:
        return ("rerun", "R", "RERUN") if report.outcome == "rerun" else None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for test in self._begun_again:
            terminalreporter.write_line(
                f"begun again, as a run of Paddle's executor stood still: {test}")


def watch(config: pytest.Config) -> None:
    """Watches this process's tests if it is a worker of xdist, and its workers if it has any."""
    told = getattr(config, "workerinput", None)
    if told is not None:
        config.pluginmanager.register(Watch(Path(told[_NOTES])))
    elif config.getoption("numprocesses", None):
        config.pluginmanager.register(Retry())
