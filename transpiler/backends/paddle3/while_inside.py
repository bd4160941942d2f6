"""What is set for the whole process, and only for as long as some thread needs it."""

from __future__ import annotations

import contextlib
import threading
from typing import Callable, Iterator, Optional

PutBack = Callable[[], None]


class WhileInside:
    """The first thread that comes in sets something; who leaves last puts back what was there.

    Args:
        set_it: does, and gives what puts it back.
    """

    def __init__(self, set_it: Callable[[], PutBack]) -> None:
        self._set_it, self._lock, self._inside = set_it, threading.Lock(), 0
        self._put_back: Optional[PutBack] = None

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._put_back = self._set_it()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside and self._put_back is not None:
                    self._put_back()
