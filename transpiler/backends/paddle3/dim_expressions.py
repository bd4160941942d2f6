"""The expressions that Paddle's symbolic inference writes dims in: their values, and what they never go beyond.

A value is a Fraction, or a Bound where open dims stay open. Both are of whole numbers; what is divided is rounded down, which a
Bound leaves out.
"""

from __future__ import annotations

import ast
import math
from fractions import Fraction
from typing import Any, Callable, Dict, FrozenSet, Iterator, Mapping, Optional, Sequence, Set

from transpiler.ir import Size

Rounding = Callable[[Any], Any]


def expressions(said: str) -> Optional[Sequence[ast.expr]]:
    """The dims in `shape[...], data[...]`."""
    kind, _, dims = said.partition('], data')[0].partition('[')
    if kind != 'shape':
        return None
    try:
        tree = ast.parse(f'[{dims}]', mode='eval').body
    except SyntaxError:
        return None
    return tree.elts if isinstance(tree, ast.List) else None


def broadcast(dim: ast.expr) -> Iterator[Sequence[ast.expr]]:
    """What differs only where some of it is 1."""
    yield from (node.args for node in ast.walk(dim) if _is_broadcast(node))


def alike(dim: ast.expr) -> Set[str]:
    """The symbol that `dim` is, or those that are broadcast to each other in it; none where it is anything else."""
    return {
        each.id
        for each in (dim.args if _is_broadcast(dim) else [dim])
        if isinstance(each, ast.Name)
    }


def _is_broadcast(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'Broadcast'


def symbols_of(dim: ast.expr) -> Set[str]:
    """All that stand in it."""
    called = {id(node.func) for node in ast.walk(dim) if isinstance(node, ast.Call)}
    return {n.id for n in ast.walk(dim) if isinstance(n, ast.Name) and id(n) not in called}


def value_of(dim: ast.expr, values: Mapping[str, Any], rounded: Rounding) -> Any:
    """Raises KeyError for a symbol, or a function, of which nothing is known."""
    if isinstance(dim, ast.Name):
        return values[dim.id]
    if isinstance(dim, ast.Constant) and isinstance(dim.value, int):
        return Fraction(dim.value)
    if isinstance(dim, ast.UnaryOp) and isinstance(dim.op, ast.USub):
        value = value_of(dim.operand, values, rounded)
        if isinstance(value, Bound) and not value.exact:
            raise KeyError('what is at most taken off')
        return -1 * value
    if isinstance(dim, ast.BinOp) and isinstance(dim.op, ast.Div):
        return value_of(dim.left, values, rounded) * _inverse(value_of(dim.right, values, rounded))
    if isinstance(dim, ast.Call) and isinstance(dim.func, ast.Name):
        given = [value_of(each, values, rounded) for each in dim.args]
        return _FUNCTIONS[dim.func.id](given, rounded)
    raise KeyError(ast.dump(dim))


class Bound:
    """`above` less `below`, which a dim never goes beyond; if it is `exact`, it is the dim."""

    def __init__(self, above: Size, below: Size = Size(), exact: bool = True) -> None:
        self.above, self.below, self.exact = above, below, exact

    def __add__(self, other: Any) -> 'Bound':
        other = _bound(other)
        return Bound(self.above + other.above, self.below + other.below, self.exact and other.exact)

    def __mul__(self, other: Any) -> 'Bound':
        other = _bound(other)
        return Bound(self.above * other.above + self.below * other.below,
                     self.above * other.below + self.below * other.above, self.exact and
                     other.exact)

    __radd__, __rmul__ = __add__, __mul__

    @property
    def dims(self) -> FrozenSet[str]:
        return self.above.dims | self.below.dims


def same(a: Bound, b: Bound) -> bool:
    """Whether both are the same dim."""
    return a.exact and b.exact and a.above + b.below == b.above + a.below


def substituted(bound: Bound, values: Mapping[str, Bound]) -> Bound:
    """`bound` with these in the place of symbols. What is at most as much is not taken off."""
    above, below = (_in_terms_of(size, values) for size in (bound.above, bound.below))
    taken = below if below.exact else Bound(Size(), exact=False)
    return Bound(above.above + taken.below, above.below + taken.above, bound.exact and
                 above.exact and taken.exact)


def _in_terms_of(size: Size, values: Mapping[str, Bound]) -> Bound:
    total = Bound(Size())
    for monomial, factor in size.terms.items():
        powers = [
            values.get(name) or Bound(Size.dim(name)) for name, n in monomial for _ in range(n)
        ]
        total = total + math.prod(powers, start=Bound(Size.of(factor)))
    return total


def _bound(value: Any) -> Bound:
    if isinstance(value, Bound):
        return value
    return Bound(Size.of(value)) if value >= 0 else Bound(Size(), Size.of(-value))


def not_rounded(quotient: Any) -> Any:
    """For bounds: what is rounded down is no more than this."""
    if not isinstance(quotient, Bound):
        return Fraction(math.floor(quotient))
    whole = all(
        isinstance(c, int)
        for size in (quotient.above, quotient.below)
        for c in size.terms.values())
    return Bound(quotient.above, quotient.below, quotient.exact and whole)


def rounded_down(quotient: Any) -> Fraction:
    return Fraction(math.floor(quotient))


def most(value: Any) -> Size:
    """The same without what is taken off, but from terms alike."""
    bound = _bound(value)
    terms, less = bound.above.terms, bound.below.terms
    return Size({m: max(0, c - less.get(m, 0)) for m, c in terms.items()})


def _inverse(value: Any) -> Fraction:
    if isinstance(value, Bound):
        raise KeyError('a dim that is divided by')
    return 1 / value


def covers(bound: Bound, other: Bound) -> bool:
    """Whether no term of `other` is more than that of `bound`."""
    terms = most(bound).terms
    return all(c <= terms.get(m, 0) for m, c in most(other).terms.items())


def greatest(given: Sequence[Any], _: Any = None, at_most: bool = False) -> Any:
    """Of Bounds one that none of them is more than; if `at_most`, it may be less than that."""
    if not any(isinstance(each, Bound) for each in given):
        return max(given)
    bounds = [_bound(each) for each in given]
    if not at_most and all(same(each, bounds[0]) for each in bounds):
        return bounds[0]
    terms: Dict[Any, Any] = {}
    for each in map(most, bounds):
        terms.update((m, max(c, terms.get(m, 0))) for m, c in each.terms.items())
    return Bound(Size(terms), exact=False)


def _least(given: Sequence[Any], _: Any) -> Any:
    known = [each for each in given if not isinstance(each, Bound)]
    if len(known) == len(given):
        return min(known)
    if known:  # no larger than the constant
        return Bound(Size.of(max(0, min(known))), exact=False)
    return Bound(given[0].above, given[0].below, exact=False)


_FUNCTIONS: Mapping[str, Callable[[Sequence[Any], Rounding], Any]] = {
    'Add': lambda given, rounded: sum(given, Fraction(0)),
    'Mul': lambda given, rounded: rounded(math.prod(given)),  # by a reciprocal, too
    'Div': lambda given, rounded: rounded(given[0] * _inverse(math.prod(given[1:]))),
    'Max': greatest,
    'Broadcast': greatest,
    'Min': _least,
}
