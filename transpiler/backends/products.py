"""Products of matrices: the dims that their results have, where a Paddle declares others."""

from __future__ import annotations

from itertools import zip_longest
from typing import Sequence, Tuple

OPEN = -1


def product_dims(x: Sequence[int], y: Sequence[int], declared: Sequence[int]) -> Tuple[int, ...]:
    """Of a product of operands of these shapes: its matrices as they are `declared`, ahead of them the dims that numpy broadcasts. An
    OPEN dim is so there, unless the other operand says how large it is if it is not 1.

    Paddle declares the larger number of two dims, an open one for less than 1, and where one operand has more dims those of that one.
    """
    pairs = list(zip_longest(reversed(x[:-2]), reversed(y[:-2]), fillvalue=1))
    batch = (b if a == 1 or a == OPEN != b != 1 else a for a, b in reversed(pairs))
    matrices = min(len(x), 2) + min(len(y), 2) - 2  # a vector leaves its dim out
    return (*batch, *declared[len(declared) - matrices:])
