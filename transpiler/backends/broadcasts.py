"""Gradients of broadcasts: for which of them any Paddle has the slower of its two kernels."""

from __future__ import annotations

from typing import Collection, Tuple

from transpiler.ir import ONE, Size

Shape = Tuple[Size, ...]


def in_one_run(shapes: Collection[Shape]) -> bool:
    """Whether the operands of these shapes are broadcast over the outermost or innermost dims of the largest alone: of each the dims,
    its innermost ones of 1 left out, stand side by side there."""
    whole = max(shapes, key=lambda shape: (len(shape), sum(dim != ONE for dim in shape)))
    return all(_covers(whole, shape) for shape in shapes)


def _covers(whole: Shape, shape: Shape) -> bool:
    start, last = len(whole) - len(shape), len(shape)
    while last and shape[last - 1] == ONE:
        last -= 1
    return whole[start:start + last] == shape[:last]
