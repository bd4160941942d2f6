"""Shapes of what a loop makes larger with each trip."""

from __future__ import annotations

from typing import Tuple

Shape = Tuple[int, ...]

# No tensor has such a dim, and what Paddle makes of it is still a number to it.
_LARGEST = 1 << 48


def grown(once: Shape, twice: Shape, more: int) -> Shape:
    """What `once` becomes with as many `more` trips, if `twice` is what one more makes of it and each adds as much. Open where that
    cannot be, or a dim gets smaller."""
    if len(once) != len(twice):
        return twice
    ends = (a + more * (b - a) if 0 <= a <= b else -1 for a, b in zip(once, twice))
    return tuple(end if end <= _LARGEST else -1 for end in ends)


def unless_other(shape: Shape, before: Shape) -> Shape:
    """`shape`, open where it differs from that of the trip `before`."""
    if len(shape) != len(before):
        return (-1,) * len(shape)
    return tuple(a if a == b else -1 for a, b in zip(shape, before))


def largest_of(shape: Shape, other: Shape) -> Shape:
    """What neither goes beyond; open where one of them is."""
    if len(shape) != len(other):
        return (-1,) * len(shape)
    return tuple(-1 if -1 in (a, b) else max(a, b) for a, b in zip(shape, other))
