"""Call stacks that Paddle writes into each op, as short as in a script: under pytest and hypothesis most of a stack is theirs, and
makes a program several times as large."""
from __future__ import annotations

import linecache
import sys
import traceback
from typing import Any, List

_RUNNERS = ("/_pytest/", "/pluggy/", "/hypothesis/"
           )  # who calls tests; a user's script is called by nobody
_usual = traceback.extract_stack


def as_in_a_script() -> None:
    """From now on, in this process."""
    traceback.extract_stack = _script_stack


def _script_stack(*arguments: Any, **named: Any) -> List[traceback.FrameSummary]:
    """`traceback.extract_stack()` without those who run a test; if it is asked for something else, or by them, as ever."""
    found: List[traceback.FrameSummary] = []
    frame = sys._getframe(1)
    while frame is not None and not any(each in frame.f_code.co_filename for each in _RUNNERS):
        code, at = frame.f_code, frame.f_lineno
        line = linecache.getline(code.co_filename, at, frame.f_globals)
        found.append(traceback.FrameSummary(code.co_filename, at, code.co_name, line=line))
        frame = frame.f_back
    return _usual(*arguments, **named) if arguments or named or not found else found[::-1]
