"""What is asked of, and set in, the Paddle that is installed, whichever it is."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator

import paddle
from paddle.base import core, framework


def collects_garbage() -> bool:
    """Whether the executor frees variables after their last use."""
    flag = 'FLAGS_eager_delete_tensor_gb'
    return paddle.get_flags([flag])[flag] >= 0


def flags() -> Dict[str, Any]:
    """All flags that may be set, and what they are now."""
    found = core.globals()
    return {name: found[name] for name in found.keys() if found.is_public(name)}


def has_cpu_kernels_alone() -> bool:
    """Whether this build of Paddle is for CPUs only. In others, which kernel runs is not known before the program does: what
    is proved of Paddle's own CPU kernels (how a sum adds, what a dropout multiplies by) is not relied on there."""
    return not (core.is_compiled_with_cuda() or core.is_compiled_with_xpu())


@contextlib.contextmanager
def static_mode() -> Iterator[None]:
    """Paddle adds ops and variables to programs only in static mode; dygraph mode is there again afterwards."""
    with framework._dygraph_guard(None):
        yield
