"""`njit` of numba where it is installed, the identity where it is not.

The kernels are plain loops over numpy arrays. Compiled they visit 50,000 to a million nodes a second;
uncompiled they give the same answers about a hundred times slower, so a machine without numba
loses proofs on hard instances, never correctness. numba takes half a second to import, so the
kernel modules are themselves imported where they are first used.
"""
from __future__ import annotations

from functools import lru_cache
from typing import Callable, Optional


@lru_cache(maxsize=None)
def _numba_njit() -> Optional[Callable]:
    """numba's decorator, or None if numba is missing or does not work with this numpy."""
    try:
        from numba import njit as decorator
    except ImportError:
        return None
    return decorator


def compiled() -> bool:
    """Whether the kernels run compiled."""
    return _numba_njit() is not None


def njit(function: Callable) -> Callable:
    """Compile `function` at its first call (cached on disk), releasing the interpreter lock."""
    decorator = _numba_njit()
    if decorator is None:
        return function
    try:
        return decorator(cache=True, nogil=True)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache can be written to.
        return decorator(nogil=True)(function)
