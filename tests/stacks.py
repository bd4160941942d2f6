"""Call stacks that Paddle writes into each op, as short as in a script: under pytest and hypothesis most of a stack is theirs, and
makes a program several times as large."""
from __future__ import annotations

import functools
import linecache
import sys
import traceback
from types import FrameType
from typing import List, Optional

# Who calls tests; a user's script is called by nobody.
_RUNNERS = ("/_pytest/", "/pluggy/", "/hypothesis/")
_usual = traceback.extract_stack


def as_in_a_script() -> None:
    """From now on, in this process."""
    traceback.extract_stack = _script_stack


def _script_stack(f: Optional[FrameType] = None,
                  limit: Optional[int] = None) -> List[traceback.FrameSummary]:
    """`traceback.extract_stack()` without those who run a test; if it is asked for something else, or by them, as ever."""
    caller = sys._getframe(1)
    found: List[traceback.FrameSummary] = []
    frame: Optional[FrameType] = caller
    while frame is not None and not any(each in frame.f_code.co_filename for each in _RUNNERS):
        found.append(_summary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1] if found and f is None and limit is None else _usual(f or caller, limit)


@functools.lru_cache(maxsize=1 << 14)
def _summary(filename: str, at: int, name: str) -> traceback.FrameSummary:
    """One for all stacks: Paddle 3 never lets go of a stack that it has asked for, and each collection of cycles goes through all."""
    return traceback.FrameSummary(filename, at, name, line=linecache.getline(filename, at).strip())
