"""The Paddle that is installed, the flags in force, and what its executor does with memory."""

from __future__ import annotations

from dataclasses import replace

import paddle

from transpiler.backends.settings import collects_garbage
from transpiler.errors import UnsupportedPaddleError
from transpiler.runtime import COLLECTING, PADDLE_3, RETAINING, Can, Runtime

SUPPORTED = ('3.0', '3.1', '3.2', '3.3')
# Its values cannot be renamed, and no buffer is handed on to another variable.
_CAN = frozenset({Can.PIN, Can.RELEASE, Can.UNITE})
# Of what runs otherwise than an Executor runs it, or is cut in two, the order alone.
ORDER_ALONE = frozenset({Can.PIN})
# Each loop and branch has a collector of its own, and that may be any number of ops and trips behind.
_DELAYS = replace(COLLECTING.delays, inner_ops=1 << 12, trips=1 << 30)

# `set_` and `share_var`.
_OPS_PER_RELEASE = 2


def check_paddle(version: str = paddle.__version__) -> None:
    """Raises UnsupportedPaddleError for a version whose runtime the project does not model."""
    if '.'.join(version.split('.')[:2]) not in SUPPORTED:
        raise UnsupportedPaddleError(
            f'paddlepaddle {version} is installed; its runtime is not modelled. '
            f'Install paddlepaddle {SUPPORTED[0]} to {SUPPORTED[-1]}, or 2.6.2.')


def runtime() -> Runtime:
    """By the flags in force."""
    if not collects_garbage():
        return replace(RETAINING,
                       can=_CAN,
                       upkeep=PADDLE_3,
                       keeps_fetched=True,
                       first_run_frees=False,
                       keeps_inner=True)
    return replace(COLLECTING,
                   can=_CAN,
                   upkeep=PADDLE_3,
                   delays=_DELAYS,
                   keeps_fetched=True,
                   ops_per_release=_OPS_PER_RELEASE)
