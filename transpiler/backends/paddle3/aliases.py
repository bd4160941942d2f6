"""Results that Paddle writes over an operand, or which are an operand under another name."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet

from paddle.base.libpaddle import pir

DIALECT = 'pd_op.'
# Its result is the operand itself: `detach()`.
_DETACHES = 'pd_op.share_data_'
# Their results are values of their own, in the operand's memory or in a part of it.
_SECOND_NAMES: FrozenSet[str] = frozenset(
    {'pd_op.share_data', 'pd_op.npu_identity', 'pd_op.view_shape', 'pd_op.view_slice'})


def in_place_results(op: Any) -> Dict[int, int]:
    """By result slot of an op that works in place: the operand slot that it is."""
    if not op.name().startswith(DIALECT):
        return {}
    found: Dict[int, int] = pir.get_op_inplace_info(op)
    return found


def gives_second_name(op: Any) -> bool:
    """Whether the memory of its operand has another name from `op` on."""
    return op.name() == _DETACHES or shares(op)


def shares(op: Any) -> bool:
    """Whether that name is a value of its own."""
    return op.name() in _SECOND_NAMES
