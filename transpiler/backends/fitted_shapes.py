"""From shapes that were inferred for some values of the open dims to sums and products of those dims."""

from __future__ import annotations

from fractions import Fraction
from typing import Callable, Mapping, Optional, Sequence, Tuple

from transpiler.ir import Size
from transpiler.ir.size import Number

# Divisible by all that reshapes usually divide by; far from any dim that a program fixes.
PROBE = 55440

_Sum = Callable[[Number, Mapping[str, Number]], Optional[Size]]


def fit(base: Sequence[int], doubled: Mapping[str, Sequence[int]],
        small: Sequence[Tuple[int, Sequence[int]]]) -> Optional[Tuple[Size, ...]]:
    """Each dim as a sum, or as a product, of symbols; None if one has no such form."""
    if any(len(shape) != len(base) for shape in doubled.values()):
        return None
    dims = []
    for i, at_base in enumerate(base):
        column = {s: shape[i] for s, shape in doubled.items()}
        dim = None if at_base < 0 else _sum(at_base, column) or _product(at_base, column)
        if dim is None:
            return None
        for value, shape in small:
            expected = dim.evaluate(dict.fromkeys(dim.dims, value))
            if -1 not in shape and (len(shape) != len(base) or shape[i] != expected):
                return None
        dims.append(dim)
    return tuple(dims)


def _sum(at_base: Number, doubled: Mapping[str, Number]) -> Optional[Size]:
    """constant + sum of slope times symbol, if that is what the probes show."""
    slopes = {s: Fraction(d - at_base) / PROBE for s, d in doubled.items()}
    constant = at_base - sum(slopes.values()) * PROBE
    if constant < 0 or any(slope < 0 for slope in slopes.values()):
        return None
    return Size({(): constant, **{((s, 1),): slope for s, slope in slopes.items()}})


def _product(at_base: int, doubled: Mapping[str, int], sum_of: _Sum = _sum) -> Optional[Size]:
    """symbol * symbol * ... * (constant + sum of slope times another symbol), if that is what the probes show. `sum_of`: gives that sum."""
    factors = sorted(s for s, d in doubled.items() if d == 2 * at_base)
    without = PROBE**len(factors)
    others = {s: Fraction(d, without) for s, d in doubled.items() if s not in factors}
    rest = sum_of(Fraction(at_base, without), others)
    return None if rest is None else rest * Size({tuple((s, 1) for s in factors): 1})


def fit_most(base: Sequence[int], doubled: Mapping[str, Sequence[int]],
             small: Sequence[Tuple[int, Sequence[int]]]) -> Optional[Tuple[Size, ...]]:
    """For each dim a sum, or a product, of symbols that is at least what the probes show; None if there is none.

    A dim may be a part of another, the smaller of two, or rounded; it is taken to grow no faster than between the probes. Small values may be
    none that the program runs with, as a slice of them has no rows.
    """
    small = [(value, shape) for value, shape in small if -1 not in shape]
    seen = [base, *doubled.values(), *(shape for _, shape in small)]
    if any(len(shape) != len(base) or -1 in shape for shape in seen):
        return None
    return tuple(
        _most(at_base, {
            s: shape[i] for s, shape in doubled.items()
        }, [(value, shape[i]) for value, shape in small]) for i, at_base in enumerate(base))


def _most(at_base: int, doubled: Mapping[str, int], small: Sequence[Tuple[int, int]]) -> Size:
    found = (_sum(at_base, doubled) or _product(at_base, doubled) or
             _product(at_base, doubled, _above))
    short = [dim - found.evaluate(dict.fromkeys(found.dims, value)) for value, dim in small]
    rounded = any(isinstance(share, Fraction) for share in found.terms.values())
    return found + max([0, *short]) + int(rounded)


def _above(at_base: Number, doubled: Mapping[str, Number]) -> Size:
    """A sum that is nowhere below one with these slopes, though a constant is taken off there."""
    slopes = {s: max(Fraction(0), Fraction(d - at_base) / PROBE) for s, d in doubled.items()}
    linear = Size({((s, 1),): slope for s, slope in slopes.items()})
    probes = [(dict.fromkeys(doubled, PROBE), at_base)]
    probes += [({**dict.fromkeys(doubled, PROBE), s: 2 * PROBE}, d) for s, d in doubled.items()]
    return linear + max([0, *(dim - linear.evaluate(dims) for dims, dim in probes)])
