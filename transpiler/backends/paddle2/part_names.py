"""What the variables of a part are called, and how many rows the shape inference gives them."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence

_ONE_PART = re.compile(r'\.part\.of\.(\d+)$')


def part_of(name: str, parts: int) -> str:
    """A variable that has the rows of one of so many parts, one part after the other."""
    return f'{name}.part.of.{parts}'


def result_of(name: str, part: int, parts: int) -> str:
    """What a part handed out."""
    return f'{name}.part.{part}.of.{parts}'


def sliced_shape(source: str, result: str, shape: Sequence[int]) -> Optional[List[int]]:
    """The shape of a slice of `source`, which has this one, if it is a part, or what a part hands out.

    A number of rows that the parts do not share evenly says nothing: -1.
    """
    if _ONE_PART.search(source):
        return list(shape)
    found = _ONE_PART.search(result)
    if found is None or not shape or shape[0] < 0:
        return None
    rows, rest = divmod(shape[0], int(found.group(1)))
    return [-1 if rest else rows, *shape[1:]]
