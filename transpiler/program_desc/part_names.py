"""What the variables of a part are called, and how many rows the shape inference gives them."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence

_SLICED = '.part.of.'
_JOINED = '.parts.joined'


def part_of(name: str, parts: int) -> str:
    """A variable that has the rows of one of so many parts. All parts call it so: each is in a scope of its own."""
    return f'{name}{_SLICED}{parts}'


def result_of(name: str, part: int, parts: int) -> str:
    """What a part hands out."""
    return f'{name}.part.{part}.of.{parts}'


def joined(name: str) -> str:
    """The results of all parts, one after the other."""
    return f'{name}{_JOINED}'


def sliced_shape(source: str, result: str, shape: Sequence[int]) -> Optional[List[int]]:
    """The shape of a slice of `source`, which has this one, if a part is cut out or what was joined is trimmed.

    A number of rows that the parts do not share evenly says nothing: -1.
    """
    if source.endswith(_JOINED):
        return list(shape)
    found = re.search(re.escape(_SLICED) + r'(\d+)$', result)
    if found is None or not shape or shape[0] < 0:
        return None
    rows, rest = divmod(shape[0], int(found.group(1)))
    return [-1 if rest else rows, *shape[1:]]
