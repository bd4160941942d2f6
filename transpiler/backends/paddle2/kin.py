"""Shapes that Paddle's inference leaves open, by the variables that they must be like."""

from __future__ import annotations

import re
from typing import Callable, Optional, Sequence, Tuple

from paddle.base import core

Shape = Tuple[int, ...]
_GRADIENT = re.compile(r'(.+?)@GRAD(@.*)?')


def closed(op: core.OpDesc, kind: str, name: str, shape: Shape,
           shape_of: Callable[[str], Optional[Shape]]) -> Shape:
    """`shape` of the result `name`, without open dims where its kin says what they are.

    The one that `select_input` picks out of several of one shape has it; what `select_output` hands out is what it was
    given; a gradient is like what it is the gradient of. What Python makes is taken to have as many rows as what it is
    given: nobody can say, but that it takes nothing is worse.
    """
    for kin in _kin(op, kind, name):
        shapes = {shape_of(each) for each in kin}
        found = shapes.pop() if len(shapes) == 1 else None
        if found is not None and -1 not in found and _fits(shape, found):
            return found
    return shape


def _kin(op: core.OpDesc, kind: str, name: str) -> Sequence[Sequence[str]]:
    if kind in ('select_input', 'select_output'):
        return [op.input('X')]
    if kind == 'py_func':
        return [[each] for each in op.input('X')]
    found = _GRADIENT.fullmatch(name)
    return [[found.group(1)]] if found else []


def _fits(declared: Shape, shape: Shape) -> bool:
    return len(declared) == len(shape) and all(d in (-1, s) for d, s in zip(declared, shape))
