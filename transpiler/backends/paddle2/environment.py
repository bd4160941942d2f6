"""The Paddle that is installed and the flags in force."""

from __future__ import annotations

import contextlib
from typing import Iterator

import paddle
from paddle.base import framework

from transpiler.errors import UnsupportedPaddleError

SUPPORTED = '2.6'


def check_paddle(version: str = paddle.__version__) -> None:
    """Raises UnsupportedPaddleError for a version whose runtime the project does not model."""
    if version.split('.')[:2] != SUPPORTED.split('.'):
        raise UnsupportedPaddleError(
            f'paddlepaddle {version} is installed; its runtime is not modelled. '
            f'Install paddlepaddle=={SUPPORTED}.2 (or paddlepaddle-gpu=={SUPPORTED}.2).')


def collects_garbage() -> bool:
    """Whether the executor frees variables after their last use."""
    flag = 'FLAGS_eager_delete_tensor_gb'
    return paddle.get_flags([flag])[flag] >= 0


@contextlib.contextmanager
def static_mode() -> Iterator[None]:
    """Paddle builds ops and variables of programs only in static mode; dygraph mode is there again afterwards."""
    with framework._dygraph_guard(None):
        yield
