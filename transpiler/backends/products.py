"""Products of matrices: the dims that their results have, where a Paddle declares others."""

from __future__ import annotations

from itertools import zip_longest
from typing import Sequence, Tuple

OPEN = -1


def batch_dims(x: Sequence[int], y: Sequence[int]) -> Tuple[int, ...]:
    """Of a product of operands of these shapes the dims ahead of its matrices, as numpy broadcasts them. OPEN dims are so there, unless
    another says how large they are if they are not 1.

    Paddle declares the larger number of two dims, an open one for less than 1, and where one operand has more dims those of that one."""
    pairs = list(zip_longest(reversed(x[:-2]), reversed(y[:-2]), fillvalue=1))
    return tuple(b if a == 1 or a == OPEN != b != 1 else a for a, b in reversed(pairs))
