"""The Paddle that is installed and the flags in force."""

from __future__ import annotations

import paddle

from transpiler.errors import UnsupportedPaddleError

SUPPORTED = '2.6'


def check_paddle(version: str = paddle.__version__) -> None:
    """Raises UnsupportedPaddleError for a version whose runtime the project does not model."""
    if version.split('.')[:2] != SUPPORTED.split('.'):
        raise UnsupportedPaddleError(
            f'paddlepaddle {version} is installed; its runtime is not modelled. '
            f'Install paddlepaddle=={SUPPORTED}.2 (or paddlepaddle-gpu=={SUPPORTED}.2).')


def check_executor() -> None:
    """Raises UnsupportedPaddleError if programs are run as PIR: that executor keeps no order, and knows not all operators."""
    flag = 'FLAGS_enable_pir_in_executor'
    if paddle.get_flags([flag])[flag]:
        raise UnsupportedPaddleError(
            f'{flag} is on, which paddlepaddle {paddle.__version__} only tries out: the memory of '
            f"that executor is not modelled. Turn it off: paddle.set_flags({{'{flag}': False}})")


def runs_blocks() -> bool:
    """Whether the executor runs blocks more than once; with this flag it crashes in the second run (2.6.2)."""
    flag = 'FLAGS_new_executor_use_inplace'
    return not paddle.get_flags([flag])[flag]
