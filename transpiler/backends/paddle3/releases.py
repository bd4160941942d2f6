"""Memory that the program itself lets go of, and results that take the variable of an operand. Paddle 3 has no operator for either.

`set_` puts another tensor's buffer in the place of what its result holds; but the executor keeps one variable for an operand and one
for the result, and the first would go on to hold the buffer. `share_var` makes one variable of all that it names, before anything
runs. So the thread that runs the program frees the buffer, before it starts the next op: a collector finds nothing to free.

What is left says the shape that was there, and holds one number: whoever reads it is told so by Paddle.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Any, List, Optional, Sequence

import paddle
from paddle import _C_ops
from paddle.base.core import CPUPlace

from transpiler.backends.paddle3.attributes import given_attributes

_SET, _ONE_VARIABLE = 'pd_op.set_', 'pd_op.share_var'
# Where the shape is not known, what is left says one that no number has room for.
_ANY_SHAPE = [1 << 40]


def number() -> Any:
    """What takes the place of what is released."""
    return _C_ops.full([1], 0.0, paddle.float32, CPUPlace())


def released(value: Any, instead: Any, dims: Optional[Sequence[int]]) -> List[Any]:
    """New ops that release `value`, whose dims these are, if they are known; `instead` is a `number`. Where there are no elements,
    Paddle would take what is left for no place to write to: it declares so what recurrent layers keep for their gradient."""
    shape = list(dims) if dims is not None and 0 not in dims else _ANY_SHAPE
    strides = list(accumulate(reversed(shape[1:]), mul, initial=1))[::-1] if shape else []
    left = _C_ops.set_(value, instead, shape, strides, 0)
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


def loses_shape(op: Any) -> bool:
    """Whether a release leaves another shape behind than was there."""
    return list(given_attributes(op)['dims']) == _ANY_SHAPE
