"""Keeps Paddle's C++ from logging while it is asked for what the program itself does not want.

Its symbolic inference logs each operator that it has no rule for, as an error: some hundred lines for a loop. What is logged from which
severity on is a variable of glog (`FLAGS_minloglevel`), which Paddle offers no other way to set once it is loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Iterator

from paddle.base import libpaddle

_SEVERITY = '_ZN3fLI17FLAGS_minloglevelE'
_FATAL = 3


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Nothing is logged but what ends the process; as ever, where Paddle was linked in another way."""
    try:
        severity = ctypes.c_int32.in_dll(ctypes.CDLL(libpaddle.__file__), _SEVERITY)
    except (OSError, ValueError):
        yield
        return
    before, severity.value = severity.value, max(severity.value, _FATAL)
    try:
        yield
    finally:
        severity.value = before
