"""The Paddle that is installed, the flags in force, and what its executor does with memory."""

from __future__ import annotations

from dataclasses import replace

import paddle

from transpiler.backends.settings import collects_garbage
from transpiler.errors import UnsupportedPaddleError
from transpiler.runtime import COLLECTING, RETAINING, Can, Runtime, Upkeep

SUPPORTED = ('3.0', '3.1', '3.2', '3.3')
# Its values cannot be renamed, and nothing in a program frees or hands on a buffer.
_CAN = frozenset({Can.PIN})


def check_paddle(version: str = paddle.__version__) -> None:
    """Raises UnsupportedPaddleError for a version whose runtime the project does not model."""
    if '.'.join(version.split('.')[:2]) not in SUPPORTED:
        raise UnsupportedPaddleError(
            f'paddlepaddle {version} is installed; its runtime is not modelled. '
            f'Install paddlepaddle {SUPPORTED[0]} to {SUPPORTED[-1]}, or 2.6.2.')


def runtime() -> Runtime:
    """By the flags in force."""
    return replace(COLLECTING if collects_garbage() else RETAINING, can=_CAN, upkeep=Upkeep())
