"""`njit` of numba where it is installed, the identity where it is not.

The two search kernels are plain loops over numpy arrays. Compiled they visit about a million nodes
a second; uncompiled they give the same answers about a hundred times slower, so a machine without
numba loses proofs on hard instances, never correctness.
"""
from __future__ import annotations

from typing import Callable

try:
    from numba import njit as _numba_njit
    COMPILED = True
except ImportError:  # pragma: no cover - depends on the machine
    _numba_njit = None
    COMPILED = False


def njit(function: Callable) -> Callable:
    """Compile `function` at its first call (cached on disk), releasing the interpreter lock."""
    if _numba_njit is None:
        return function
    return _numba_njit(cache=True, nogil=True)(function)
