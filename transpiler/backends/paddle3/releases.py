"""Memory that the program itself lets go of, and results that take the variable of an operand. Paddle 3 has no operator for either.

`set_` puts another tensor's buffer in the place of what its result holds; but the executor keeps one variable for an operand and one
for the result, and the first would go on to hold the buffer. `share_var` makes one variable of all that it names, before anything
runs. So the thread that runs the program frees the buffer, before it starts the next op: a collector finds nothing to free.

What is left holds one number and says a shape that no number has room for, not the one that was there: a run may have other dims than the
program declares, and nobody reads them any more. Whoever reads it is told so by Paddle.
"""

from __future__ import annotations

from typing import Any, List

import paddle
from paddle import _C_ops
from paddle.base.core import CPUPlace

_SET, _ONE_VARIABLE = 'pd_op.set_', 'pd_op.share_var'
_NO_SHAPE, _NO_STRIDES = [1 << 40], [1]


def number() -> Any:
    """What takes the place of what is released."""
    return _C_ops.full([1], 0.0, paddle.float32, CPUPlace())


def released(value: Any, instead: Any) -> List[Any]:
    """New ops that release `value`; `instead` is a `number`."""
    left = _C_ops.set_(value, instead, _NO_SHAPE, _NO_STRIDES, 0)
    return [left.get_defining_op(), united(value, left)]


def united(value: Any, other: Any) -> Any:
    """A new op that makes one variable of both."""
    return _C_ops.share_var([value, other])


def is_release(op: Any) -> bool:
    """Whether `op` releases its first operand, together with the op that makes one variable of that and the result."""
    if op.name() != _SET:
        return False
    users = op.result(0).all_used_ops()
    return len(users) == 1 and unites(users[0]) and users[0].operand_source(0).is_same(
        op.operand_source(0))


def unites(op: Any) -> bool:
    """Whether `op` makes one variable of its two operands."""
    return op.name() == _ONE_VARIABLE and op.num_operands() == 2
