"""Sizes in bytes (or in elements) as polynomials in symbolic dims."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import AbstractSet, Callable, Dict, Iterable, Mapping, Optional, Tuple, Union

Number = Union[int, Fraction]
# A monomial is a sorted tuple of (dim, power); the empty tuple is the constant term.
Monomial = Tuple[Tuple[str, int], ...]


class Size:
    """A polynomial with non-negative coefficients in dims that are at least 1.

    Dims are the batch (`N`), loop trips (`T1`, ...) and whatever else a program leaves open. The order
    is partial: `a >= b` says that `a` is at least `b` for *every* value of the dims, so neither
    `a >= b` nor `b >= a` may hold.
    """

    __slots__ = ('_terms', '_hash')

    def __init__(self, terms: Mapping[Monomial, Number] = ()) -> None:
        kept = {m: _plain(c) for m, c in dict(terms).items() if c}
        if any(c < 0 for c in kept.values()):
            raise ValueError(f'a size has no negative terms: {kept}')
        self._terms: Dict[Monomial, Number] = kept
        self._hash: Optional[int] = None

    @classmethod
    def of(cls, value: Union[Number, Size]) -> Size:
        """The constant `value`, or `value` itself if it is a Size already."""
        return value if type(value) is Size else cls({(): value})

    @classmethod
    def dim(cls, name: str) -> Size:
        """The symbolic dim `name`."""
        return cls({((name, 1),): 1})

    @classmethod
    def total(cls, terms: Iterable[Size]) -> Size:
        merged: Dict[Monomial, Number] = {}
        for size in terms:
            for monomial, coefficient in size._terms.items():
                merged[monomial] = merged.get(monomial, 0) + coefficient
        return cls(merged)

    @classmethod
    def product(cls, factors: Iterable[Union[Number, Size]]) -> Size:
        result = cls.of(1)
        for factor in factors:
            result = result * factor
        return result

    @property
    def terms(self) -> Dict[Monomial, Number]:
        return dict(self._terms)

    @property
    def dims(self) -> frozenset:
        """Names of the symbolic dims in it."""
        return frozenset(name for monomial in self._terms for name, _ in monomial)

    @property
    def is_constant(self) -> bool:
        return all(not monomial for monomial in self._terms)

    def evaluate(self, dims: Mapping[str, int]) -> int:
        """The value for concrete `dims`, rounded up; a dim that is not given raises KeyError."""
        exact = self._exactly(dims)
        return exact if type(exact) is int else math.ceil(exact)

    def whole_at(self, dims: Mapping[str, int]) -> Size:
        """The same, with as much more as it lacks to a whole number at `dims`; a dim that is not given raises KeyError."""
        if all(type(coefficient) is int for coefficient in self._terms.values()):
            return self
        exact = self._exactly(dims)
        return self + (math.ceil(exact) - exact)

    def with_ones(self, names: AbstractSet[str]) -> Size:
        """The same where the dims of these names are 1."""
        if names.isdisjoint(self.dims):
            return self
        return Size.total(
            Size({tuple(each for each in monomial if each[0] not in names): coefficient}) for
            monomial, coefficient in self._terms.items())

    def _exactly(self, dims: Mapping[str, int]) -> Number:
        total: Number = 0
        for monomial, term in self._terms.items():
            for name, power in monomial:
                term *= dims[name] if power == 1 else dims[name]**power
            total += term
        return total

    def __add__(self, other: Union[Number, Size]) -> Size:
        merged = dict(self._terms)
        for monomial, coefficient in Size.of(other)._terms.items():
            merged[monomial] = merged.get(monomial, 0) + coefficient
        return Size(merged)

    __radd__ = __add__

    def __mul__(self, other: Union[Number, Size]) -> Size:
        if other is ONE:
            return self
        product: Dict[Monomial, Number] = {}
        for m1, c1 in self._terms.items():
            for m2, c2 in Size.of(other)._terms.items():
                monomial = _times(m1, m2)
                product[monomial] = product.get(monomial, 0) + c1 * c2
        return Size(product)

    __rmul__ = __mul__

    def __ge__(self, other: Union[Number, Size]) -> bool:
        """True only if proved: `self - other`, written in dims minus one, has no negative term."""
        other = Size.of(other)
        if all(c <= self._terms.get(m, 0) for m, c in other._terms.items()):
            return True
        if len(self._terms) == 1 and self._terms.keys() == other._terms.keys():
            return False
        difference: Dict[Monomial, Number] = {}
        for sign, size in ((1, self), (-1, other)):
            for monomial, coefficient in size._terms.items():
                for shifted, factor in _shift(monomial).items():
                    difference[shifted] = difference.get(shifted, 0) + sign * coefficient * factor
        return all(c >= 0 for c in difference.values())

    def __le__(self, other: Union[Number, Size]) -> bool:
        return Size.of(other) >= self

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is Size:  # asking whether something is a Fraction takes long
            return self._terms == other._terms
        if not isinstance(other, (int, Fraction, Size)):
            return NotImplemented
        return self._terms == Size.of(other)._terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        return bool(self._terms)

    def text(self, name: Callable[[str], str]) -> str:
        """The polynomial, highest terms first, with `name` of each dim."""
        ordered = sorted(self._terms.items(), key=lambda t: (-sum(p for _, p in t[0]), t[0]))
        return ' + '.join(_term_text(m, c, name) for m, c in ordered) or '0'

    def __repr__(self) -> str:
        return self.text(str)


def _plain(coefficient: Number) -> Number:
    """Integers stay int, so that printing and JSON need no special case."""
    if isinstance(coefficient, Fraction) and coefficient.denominator == 1:
        return int(coefficient)
    return coefficient


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for name, power in b:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted(powers.items()))


def _shift(monomial: Monomial) -> Dict[Monomial, int]:
    """`monomial` with each dim d written as 1 + d', multiplied out."""
    result: Dict[Monomial, int] = {(): 1}
    for name, power in monomial:
        expanded: Dict[Monomial, int] = {}
        for done, factor in result.items():
            for k in range(power + 1):
                key = _times(done, ((name, k),)) if k else done
                expanded[key] = expanded.get(key, 0) + factor * math.comb(power, k)
        result = expanded
    return result


def _term_text(monomial: Monomial, coefficient: Number, name: Callable[[str], str]) -> str:
    factors = [name(dim) if power == 1 else f'{name(dim)}^{power}' for dim, power in monomial]
    if coefficient != 1 or not factors:
        factors.insert(0, str(coefficient))
    return '*'.join(factors)


NOTHING = Size()
ONE = Size.of(1)
