"""What `einsum` turns around, by its equation (on a CPU, Paddle 2.6 and 3).

The kernel brings both operands into the order that a batched product wants: labels of both that stay, then those that the product
sums over and the operand's own, in an order that its side of the product decides. An operand that already lies so is taken as it
is; another is copied. What it has brought into order is kept for the gradient under a name of its own, which is another name of
the operand itself where nothing was copied. The gradient turns the gradient of the result, once for both products.

Of one operand alone that has nothing to be turned, picked or summed, the result is that operand, in its memory, and the gradient that of
the result. No executor knows of it.

Equations that say more (a label twice in an operand, one that one operand alone has and the result has not, a dim of 1 that is
repeated, one operand) are bounded by the table of workspaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from transpiler.backends.formulas import Slots, Tensor, largest
from transpiler.ir import NOTHING, Size, Value

KIND, GRADIENT = 'einsum', 'einsum_grad'
KINDS = (KIND, GRADIENT)
OPERANDS, RESULT, EQUATION = 'Operands', 'Out', 'equation'
_BATCH, _FIRST, _SECOND, _SUMMED = range(4)


@dataclass(frozen=True)
class Turned:
    """What the kernels copy in another order: operands, the result, the result's gradient, and the gradients of operands."""

    operands: Tuple[bool, bool]
    result: bool
    result_gradient: bool
    gradients: Tuple[bool, bool]


def turned(equation: Any) -> Optional[Turned]:
    """By the equation; None if there is none, or it is not one of a plain product of two operands."""
    return _turned(equation) if isinstance(equation, str) else None


@lru_cache(maxsize=1024)
def _turned(equation: str) -> Optional[Turned]:
    left, arrow, right = equation.replace(' ', '').partition('->')
    operands = left.split(',')
    labels = [*operands, right]
    letters = ''.join(labels)
    if not arrow or len(operands) != 2 or not letters.isalpha() or not letters.islower():
        return None
    if any(len(set(each)) != len(each) for each in labels) or not set(right) <= set(left):
        return None
    first, second = operands
    if (set(first) ^ set(second)) - set(right):
        return None
    order = _in_order(dict.fromkeys(first + second), first, second, right)
    for_first = _in_order(order, second, right, first)
    for_second = _in_order(order, right, first, second)
    return Turned(operands=(_as_first(order, first) != first, _as_second(order, second) != second),
                  result=_result(order) != right,
                  result_gradient=_as_second(for_first, right) != right,
                  gradients=(_result(for_first) != first, _result(for_second) != second))


def _in_order(letters: Mapping[str, Any], first: str, second: str, right: str) -> Dict[str, int]:
    """The roles of `letters` in the product of `first` and `second`, in the order of these."""

    def role(letter: str) -> int:
        if letter in first and letter in second:
            return _BATCH if letter in right else _SUMMED
        return _FIRST if letter in first else _SECOND

    roles = {letter: role(letter) for letter in letters}
    return dict(sorted(roles.items(), key=lambda each: each[1]))


def _as_first(order: Mapping[str, int], labels: str) -> str:
    return ''.join(letter for letter in order if letter in labels)


def _as_second(order: Mapping[str, int], labels: str) -> str:
    """What is summed over stands before what is its own."""
    own = sorted((letter for letter in order if letter in labels),
                 key=lambda letter: (order[letter] != _BATCH, order[letter] != _SUMMED))
    return ''.join(own)


def _result(order: Mapping[str, int]) -> str:
    return ''.join(letter for letter, role in order.items() if role != _SUMMED)


def result_is_operand(equation: Any) -> bool:
    """Whether there is one operand, and the kernel gives it out in its own memory."""
    labels = _of_one(equation)
    return labels is not None and labels[0] == labels[1]


def gradient_is_given(equation: Any, gradient: Value) -> bool:
    """Whether there is one operand, and its `gradient` is, or may be, that of the result in its memory: only dims of 1 are summed over."""
    labels = _of_one(equation)
    if labels is None:
        return False
    left, right = labels
    kept = ''.join(label for label in left if label in right)
    if gradient.shape is None or len(gradient.shape) != len(left):
        return kept == right
    summed = [dim for label, dim in zip(left, gradient.shape) if label not in right]
    return kept == right and all(not dim.is_constant or dim == Size.of(1) for dim in summed)


def _of_one(equation: Any) -> Optional[Tuple[str, str]]:
    """Labels of the one operand and of the result; None if there are more operands, or a label is there twice. Three dots are a label."""
    if not isinstance(equation, str):
        return None
    left, arrow, right = equation.replace(' ', '').replace('...', '.').partition('->')
    one = arrow and ',' not in left
    return (left,
            right) if one and all(len(set(each)) == len(each) for each in (left, right)) else None


def plan_of(equation: Any, operands: Sequence[Tensor]) -> Optional[Turned]:
    """What the kernels copy for `operands`; None where the equation, or a dim of 1 that is repeated, says more."""
    plan = turned(equation)
    return plan if plan is not None and _fit(equation, operands) else None


def _fit(equation: str, operands: Sequence[Tensor]) -> bool:
    """Whether each label has the same dim in both operands."""
    dims: Dict[str, Size] = {}
    for labels, operand in zip(equation.replace(' ', '').partition('->')[0].split(','), operands):
        if operand.shape is None or len(operand.shape) != len(labels):
            return False
        if any(dims.setdefault(label, dim) != dim for label, dim in zip(labels, operand.shape)):
            return False
    return True


def workspace(kind: str, equation: Any, slots: Slots) -> Optional[Size]:
    """Bytes that the kernel, or the gradient's, allocates besides its results; None where only a bound is known."""
    gradients = slots.get('Operands@GRAD', ())
    plan = plan_of(equation, slots.get(OPERANDS, gradients))
    if plan is None:
        return None
    if kind == KIND:
        return slots['Out'][0].bytes if plan.result else NOTHING
    sizes = [each.bytes for each in (*gradients, *slots['Out@GRAD'])]
    if len(sizes) != 3 or None in sizes:
        return None
    first, second, result = sizes
    # The second gradient is made when the first is there, and what turned it is gone.
    more = second if plan.gradients[1] else NOTHING
    if plan.gradients[0]:
        more = largest([more, _above(first, second)])
    return more + result if plan.result_gradient else more


def _above(size: Size, other: Size) -> Size:
    if size <= other:
        return NOTHING
    constant = size.is_constant and other.is_constant
    return Size.of(size.evaluate({}) - other.evaluate({})) if constant else size
