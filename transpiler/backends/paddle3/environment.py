"""The Paddle that is installed, the flags in force, and what its executor does with memory."""

from __future__ import annotations

from dataclasses import replace

import paddle

from transpiler.backends.settings import collects_garbage
from transpiler.errors import UnsupportedPaddleError
from transpiler.runtime import COLLECTING, RETAINING, Can, Runtime, Upkeep

SUPPORTED = ('3.0', '3.1', '3.2', '3.3')
# Its values cannot be renamed, and no buffer is handed on to another variable.
_CAN = frozenset({Can.PIN, Can.RELEASE, Can.UNITE})
# Of what runs otherwise than an Executor runs it, or is cut in two, the order alone.
ORDER_ALONE = frozenset({Can.PIN})
# Each loop and branch has a collector of its own, and that may be any number of ops and trips behind.
_DELAYS = replace(COLLECTING.delays, inner_ops=1 << 12, trips=1 << 30)

# Of 3.3.1: growth of fresh processes in their first run, as tests/backends/paddle3/test_upkeep.py measures it again. A pair takes 10 to 48
# bytes and 0.2 to 0.3 microseconds; most of it is given back once that run is through.
_UPKEEP = Upkeep(op_bytes=13_000, pair_bytes=16, pair_seconds=0.3e-6)
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
    if collects_garbage():
        rules = replace(COLLECTING, delays=_DELAYS)
    else:
        rules = replace(RETAINING, first_run_frees=False, keeps_inner=True)
    return replace(rules,
                   can=_CAN,
                   upkeep=_UPKEEP,
                   keeps_fetched=True,
                   ops_per_release=_OPS_PER_RELEASE)
