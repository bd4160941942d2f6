"""Size: arithmetic agrees with evaluation, and the order holds for every value of the dims."""
from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transpiler.ir import Size

DIMS = ('N', 'S', 'T1')
CORNERS = [dict(zip(DIMS, values)) for values in product((1, 2, 3, 7, 1000), repeat=len(DIMS))]

monomials = st.dictionaries(st.sampled_from(DIMS), st.integers(1, 3),
                            max_size=3).map(lambda powers: tuple(sorted(powers.items())))
coefficients = st.integers(0, 20)
sizes = st.dictionaries(monomials, coefficients, max_size=4).map(Size)
fractional = st.dictionaries(monomials, st.fractions(0, 9, max_denominator=6), max_size=4).map(Size)
points = st.fixed_dictionaries({d: st.integers(1, 500) for d in DIMS})


def exact(size: Size, dims: Dict[str, int]) -> Fraction:
    """The value before rounding, worked out term by term."""
    total = Fraction(0)
    for monomial, coefficient in size.terms.items():
        term = Fraction(coefficient)
        for name, power in monomial:
            term *= Fraction(dims[name])**power
        total += term
    return total


@given(sizes, sizes, points)
def test_sum_and_product_agree_with_evaluation(a: Size, b: Size, dims: Dict[str, int]) -> None:
    assert (a + b).evaluate(dims) == a.evaluate(dims) + b.evaluate(dims)
    assert (a * b).evaluate(dims) == a.evaluate(dims) * b.evaluate(dims)


@given(fractional, points)
def test_evaluation_rounds_up(size: Size, dims: Dict[str, int]) -> None:
    assert size.evaluate(dims) == math.ceil(exact(size, dims))


@given(fractional, fractional, st.lists(points, max_size=5))
def test_order_holds_for_every_value_of_the_dims(a: Size, b: Size, drawn: List[Dict[str,
                                                                                    int]]) -> None:
    if a >= b:
        assert all(exact(a, dims) >= exact(b, dims) for dims in CORNERS + drawn)
    if b >= a:
        assert all(exact(b, dims) >= exact(a, dims) for dims in CORNERS + drawn)


@given(sizes, sizes)
def test_a_sum_is_at_least_each_part(a: Size, b: Size) -> None:
    assert a + b >= a
    assert b <= a + b


@given(sizes, sizes)
def test_order_both_ways_means_equal_and_equal_sizes_hash_alike(a: Size, b: Size) -> None:
    assert (a >= b and b >= a) == (a == b)
    rebuilt = Size(dict(reversed(list(a.terms.items()))))
    assert rebuilt == a and hash(rebuilt) == hash(a)


@given(sizes, sizes, sizes)
def test_order_is_transitive(a: Size, b: Size, c: Size) -> None:
    if a >= b and b >= c:
        assert a >= c


def test_sizes_in_different_dims_are_not_comparable() -> None:
    n, s = Size.dim('N'), Size.dim('S')
    assert not n >= s and not s >= n


def test_a_constant_is_not_smaller_than_a_dim_that_may_be_one() -> None:
    n = Size.dim('N')
    assert n >= 1 and not n >= 2
    assert not Size.of(1000) >= n


def test_one_more_power_of_a_dim_is_at_least_as_large() -> None:
    n = Size.dim('N')
    assert n * n >= n and not n >= n * n
    assert n * n + 1 >= n + n  # (N - 1)^2 >= 0, which no comparison term by term shows
    assert not n * n >= n + n  # false for N = 1


def test_an_open_dim_is_never_taken_for_one() -> None:
    n = Size.dim('N')
    assert n != 1 and not Size.of(1) >= n


def test_missing_dim_is_an_error_and_not_one() -> None:
    with pytest.raises(KeyError):
        Size.dim('N').evaluate({})


def test_negative_terms_are_refused() -> None:
    with pytest.raises(ValueError):
        Size({(): -1})


@given(sizes)
def test_terms_and_dims_of_a_size_rebuild_it(size: Size) -> None:
    assert Size(size.terms) == size
    assert size.is_constant == (not size.dims)
    assert bool(size) == (size != 0)


@given(st.lists(sizes, max_size=3), points)
def test_product_of_a_shape_is_its_number_of_elements(shape: List[Size], dims: Dict[str,
                                                                                    int]) -> None:
    assert Size.product(shape).evaluate(dims) == math.prod(d.evaluate(dims) for d in shape)


def test_repr_reads_as_the_formula() -> None:
    n, s = Size.dim('N'), Size.dim('S')
    assert repr(n * n * s * 4 + n + 512) == '4*N^2*S + N + 512'
    assert repr(Size.of(0)) == '0'


@given(sizes, points)
def test_a_size_is_made_whole_by_less_than_one(size: Size, dims: Dict[str, int]) -> None:
    part = size * Fraction(1, 3)
    whole = part.whole_at(dims)
    assert whole.evaluate(dims) == part.evaluate(dims) and whole >= part
    assert (whole * 3).evaluate(dims) == 3 * part.evaluate(dims)
    assert size.whole_at(dims) is size
