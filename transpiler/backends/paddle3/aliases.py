"""Results that Paddle writes over an operand."""

from __future__ import annotations

from typing import Any, Dict

from paddle.base.libpaddle import pir

DIALECT = 'pd_op.'


def in_place_results(op: Any) -> Dict[int, int]:
    """By result slot of an op that works in place: the operand slot that it is."""
    if not op.name().startswith(DIALECT):
        return {}
    found: Dict[int, int] = pir.get_op_inplace_info(op)
    return found
