"""Rows that a step of two or more picks from an odd number of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Mapping, Optional, Tuple

from transpiler.ir.graph import Graph, Value
from transpiler.ir.size import Size


def count_whole_rows(graph: Graph, dims: Mapping[str, int]) -> None:
    """Makes the sizes of values exact at `dims` where a part of a row would be counted there.

    Every second of N rows are N/2 in a shape: a polynomial that says so for each N would have a row too many at half of them, and
    a row at each stride of a deep network is much of its last layers.
    """
    for value in graph.values:
        if value.shape and value.size and value.size.dims <= dims.keys():
            size = _whole(value, value.shape, dims)
            if size is not None:
                value.size = size


def _whole(value: Value, shape: Tuple[Size, ...], dims: Mapping[str, int]) -> Optional[Size]:
    """Its size with whole dims; None if it is the same, or no product of the shape."""
    whole = [dim.whole_at(dims) if dim.dims <= dims.keys() else dim for dim in shape]
    if all(a is b for a, b in zip(whole, shape)):
        return None
    elements = Size.product(shape)
    monomial, bytes_of_one = next(iter(value.size.terms.items()))
    bytes_of_one = Fraction(bytes_of_one) / elements.terms.get(monomial, 1)
    return Size.product(whole) * bytes_of_one if elements * bytes_of_one == value.size else None
