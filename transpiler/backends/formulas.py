"""Bytes as a function of an operator's tensors, written so that a table can hold it.

A formula is a sum of products: `2*X + 4*#Mean` is twice the bytes of slot X and four bytes for each element of Mean.
`X[1]` and `X[2:]` are a dim of the first tensor of X, and the product of those from there on; `X.item` is what one of
its elements takes. `^X` is the largest tensor of X alone, and `A | B` the larger of two sums: where open dims decide which that
is, the sum of all. Slots that the operator leaves empty count nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Iterable, Mapping, Optional, Sequence, Tuple

from transpiler.ir import Size

_ATOM = re.compile(r'(?P<largest>\^?)(?P<count>#?)(?P<slot>[A-Za-z_][\w@]*)'
                   r'(?:\[(?P<first>-?\d*)(?P<slice>:?)(?P<last>-?\d*)\]|(?P<item>\.item))?$')


@dataclass(frozen=True)
class Tensor:
    """One argument: its shape, None if a dim is unknown; bytes of an element; whether it is of selected rows."""

    shape: Optional[Tuple[Size, ...]]
    item: int
    dtype: str = ''
    rows: bool = False

    @property
    def bytes(self) -> Optional[Size]:
        """None if a dim is unknown."""
        return None if self.shape is None else Size.product(self.shape) * self.item


Slots = Mapping[str, Tuple[Tensor, ...]]


def evaluate(formula: str, slots: Slots) -> Optional[Size]:
    """Bytes by `formula`; None if the shape of a tensor that it names is unknown.

    Raises:
        ValueError: it is no formula.
    """
    sums = [_sum(each, slots) for each in formula.split(' | ')]
    return None if any(s is None for s in sums) else largest(sums)


def _sum(formula: str, slots: Slots) -> Optional[Size]:
    terms = [_product(term.split('*'), slots) for term in formula.split(' + ')]
    return None if any(t is None for t in terms) else Size.total(terms)


def largest(sizes: Sequence[Size]) -> Size:
    """The largest of `sizes`, or, where open dims decide which that is, their sum."""
    return next((one for one in sizes if all(one >= s for s in sizes)), Size.total(sizes))


def _product(factors: Iterable[str], slots: Slots) -> Optional[Size]:
    found = Size.of(1)
    for factor in factors:
        value = _number(factor)
        value = _atom(factor, slots) if value is None else value
        if value is None:
            return None
        found = found * value
    return found


def _number(text: str) -> Optional[Size]:
    try:
        return Size.of(Fraction(text))
    except ValueError:
        return None


def _atom(text: str, slots: Slots) -> Optional[Size]:
    match = _ATOM.match(text)
    if match is None:
        raise ValueError(f'not a part of a formula: {text!r}')
    tensors = slots.get(match['slot'], ())
    if not tensors:
        return Size()
    if match['item']:
        return Size.of(tensors[0].item)
    if match['first'] is not None:
        return _dims(tensors[0].shape, match)
    if any(t.shape is None for t in tensors):
        return None
    each = [Size.product(t.shape) * (1 if match['count'] else t.item) for t in tensors]
    return largest(each) if match['largest'] else Size.total(each)


def _dims(shape: Optional[Tuple[Size, ...]], match: re.Match) -> Optional[Size]:
    if shape is None:
        return None
    first = int(match['first']) if match['first'] else None
    if match['slice']:
        return Size.product(shape[first:int(match['last']) if match['last'] else None])
    return shape[first] if -len(shape) <= first < len(shape) else Size.of(1)
