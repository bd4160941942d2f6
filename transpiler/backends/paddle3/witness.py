"""A second opinion on what Paddle's symbolic inference says of operators that it gets wrong: their own rules, at sizes that are numbers.

What `squeeze` is to leave out stays where it is not 1, and what it may leave out is left out where it is; of a slice between two
ends that are counted from the back the inference adds where it should take away.
"""

from __future__ import annotations

from typing import Any, FrozenSet, Optional, Sequence, Tuple

from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.constants import constant_maker
from transpiler.backends.paddle3.naming import bare_kind

Dims = Tuple[int, ...]
_INTEGERS = 'full_int_array'
_WITNESSED: FrozenSet[str] = frozenset({'squeeze', 'slice', 'strided_slice'})


def has_one(op: Any) -> bool:
    """Whether there is a rule for `op`."""
    return bare_kind(op) in _WITNESSED


def made_of(op: Any, source: Dims) -> Optional[Dims]:
    """The dims that `op`, which has a rule, makes of a first operand with these; None where it does not say how."""
    given = [_integers(op, at) for at in range(1, op.num_operands())]
    if None in given or len(source) != len(op.operand_source(0).shape):
        return None
    if bare_kind(op) == 'squeeze':
        return _squeezed(source, *given)
    return _cut(source, given_attributes(op), *given)


def _squeezed(source: Dims, axes: Sequence[int]) -> Dims:
    chosen = {axis % max(1, len(source)) for axis in axes} if axes else range(len(source))
    return tuple(d for at, d in enumerate(source) if d != 1 or at not in chosen)


def _cut(source: Dims,
         given: Any,
         starts: Sequence[int],
         ends: Sequence[int],
         strides: Sequence[int] = ()) -> Dims:
    made = list(source)
    for axis, *cut in zip(given['axes'], starts, ends, strides or [1] * len(starts)):
        made[axis] = len(range(*slice(*cut).indices(source[axis])))
    gone = given.get('decrease_axis') or ()
    return tuple(d for at, d in enumerate(made) if at not in gone)


def _integers(op: Any, operand: int) -> Optional[Sequence[int]]:
    maker = constant_maker(op.operand_source(operand), _INTEGERS)
    value = given_attributes(maker).get('value') if maker is not None else None
    return value if isinstance(value, (list, tuple)) else None
