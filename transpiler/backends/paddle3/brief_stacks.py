"""The call stack that Paddle 3 writes into each op as it is made: one frame, of ours, in those that we make.

It asks Python's `traceback` for it, and keeps each stack, and the text of each frame, as long as the process lives: of the 3,000 to 4,000
ops that a plan tries and makes 5 to 7 MB, and up to a third of the time that planning takes; more the deeper the caller's own stack is.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from types import FrameType
from typing import Any, Callable, Iterator, List, Optional

_Stack = List[traceback.FrameSummary]


class _Brief:
    """What threads that are inside get for a stack is always the same; who leaves last puts Python's own function back."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), []  # type: threading.Lock, List[int]
        self._usual: Callable[..., Any] = traceback.extract_stack
        self._stack: _Stack = [
            traceback.FrameSummary(__file__, 1, 'memory_optimize', line='made by memory_optimize')
        ]

    @contextlib.contextmanager
    def stacks(self) -> Iterator[None]:
        here = threading.get_ident()
        with self._lock:
            if not self._inside:
                self._usual, traceback.extract_stack = traceback.extract_stack, self._extract_stack
            self._inside.append(here)
        try:
            yield
        finally:
            with self._lock:
                self._inside.remove(here)
                if not self._inside:
                    traceback.extract_stack = self._usual

    def _extract_stack(self, f: Optional[FrameType] = None, limit: Optional[int] = None) -> Any:
        if f is None and limit is None and threading.get_ident() in self._inside:
            return self._stack
        return self._usual(f or sys._getframe(1), limit)


# Around whatever makes ops.
brief_stacks = _Brief().stacks
