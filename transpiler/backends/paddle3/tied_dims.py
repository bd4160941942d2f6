"""Which open dims are one, and which are a product of others, by the operators that reject all else.

Paddle's symbolic inference does not say that labels have the rows of the scores that they are laid beside; the check of the operator that
takes both does. It is asked in a program that nobody runs.
"""

from __future__ import annotations

import ast
from itertools import permutations, product
from types import MappingProxyType
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from paddle import _C_ops, static
from paddle.base.core import Place

from transpiler.backends.paddle3.aliases import DIALECT
from transpiler.backends.paddle3.attributes import plain_attributes
from transpiler.backends.paddle3.dim_expressions import Bound, not_rounded, symbols_of, value_of
from transpiler.backends.paddle3.naming import bare_kind
from transpiler.backends.paddle3.shapes import GRADIENT
from transpiler.ir import Size

# Numbers of which none is the product of others.
_FIRST = 1009
Dims = Sequence[ast.expr]
_DimsOf = Callable[[Any], Optional[Dims]]
_OfOperands = Sequence[Optional[Dims]]  # None for one that an operator goes without
_Values = Mapping[str, int]


class Learned(NamedTuple):
    """Symbols that are one dim, and those that are a product of others."""

    ties: List[FrozenSet[str]]
    products: Dict[str, Size]


class _Asked(NamedTuple):
    """An operator, and the dims of its operands."""

    op: Any
    dims: _OfOperands


def learn(ops: Sequence[Any], dims_of: _DimsOf, names: Mapping[str, str],
          groups: Sequence[Set[str]]) -> Learned:
    """What `ops`, which run in every run, say of symbols.

    Args:
        dims_of: of a value; None where they are not known.
        names: by symbol, what it is taken for.
        groups: symbols that are known to be one.
    """
    numbers = {name: _FIRST + at for at, name in enumerate(sorted(set(names.values())))}
    values = {symbol: numbers[name] for symbol, name in names.items()}
    found = Learned([], {})
    seen: Set[Tuple] = set()
    for asked in _with_several(ops, dims_of, names):
        looks = (asked.op.name(), *(tuple(map(ast.dump, dims or ())) for dims in asked.dims))
        if looks in seen:
            continue
        seen.add(looks)
        question = list(_in_question(asked.dims, names))
        if not question or accepts(*asked, values):
            continue
        for symbol, dim in question:
            group = next((g for g in groups if symbol in g), {symbol})
            size = _size_of(dim, found.products)
            if found.products.keys() & group or size is None or size.dims & group:
                continue
            if _accepts_only(asked, values, group, size.evaluate(values)):
                if isinstance(dim, ast.Name):
                    found.ties.append(frozenset({symbol, dim.id}))
                else:
                    found.products.update(dict.fromkeys(group, size))
                break
    return found


def _with_several(ops: Sequence[Any], dims_of: _DimsOf, names: Mapping[str,
                                                                       str]) -> Iterator[_Asked]:
    """Those with more than one operand, all of open dims that are known: what else an op is given may stand for an attribute, for which its
    function takes no input without a value."""
    used: Dict[int, Set[str]] = {}  # most dims are those of some other value
    for op in ops if len(names) > 1 else ():
        sources = [v for v in op.operands_source() if v.initialized()]
        if len(sources) < 2 or not can_be_asked(op):
            continue
        dims = [dims_of(v) or () for v in sources]
        for each in dims:
            if id(each) not in used:
                used[id(each)] = set().union(*map(symbols_of, each))
        if all(used[id(each)] and used[id(each)] <= names.keys() for each in dims):
            known = iter(dims)
            yield _Asked(op,
                         [next(known) if v.initialized() else None for v in op.operands_source()])


def can_be_asked(op: Any) -> bool:
    """Whether it has a function that takes its operands one by one: that of one which takes a list ends the process otherwise. Gradients take
    the dims of what they are of."""
    kind = bare_kind(op)
    if not op.name().startswith(DIALECT) or kind.endswith(GRADIENT) or not hasattr(_C_ops, kind):
        return False
    try:
        return len(op.get_input_names()) == op.num_operands()
    except ValueError:  # Paddle says nothing of the few that it has written by hand
        return False


def _in_question(dims: _OfOperands, names: Mapping[str, str]) -> Iterator[Tuple[str, ast.expr]]:
    """What may be one, of two operands: an open dim of an input and another that is not taken for the same; one that is an input's own, and
    what is made of others."""
    for own, other in permutations(filter(None, dims), 2):
        for dim, each in product(own, other):
            pairs = product(_symbols(dim), _symbols(each))
            yield from ((s, ast.Name(t)) for s, t in pairs if names[s] != names[t])
            if isinstance(dim, ast.Name) and not isinstance(each, (ast.Name, ast.Constant)):
                yield dim.id, each


def _symbols(dim: ast.expr) -> List[str]:
    return sorted(symbols_of(dim))


def _size_of(dim: ast.expr, products: Mapping[str, Size]) -> Optional[Size]:
    """In symbols; None where it is rounded, or less something."""
    values = {s: Bound(products.get(s, Size.dim(s))) for s in symbols_of(dim)}
    try:
        value = value_of(dim, values, not_rounded)
    except (KeyError, ZeroDivisionError):
        return None
    return value.above if value.exact and value.below == Size() else None


def _accepts_only(asked: _Asked, values: _Values, group: Set[str], number: int) -> bool:
    """Whether the operator takes this number for a dim, but neither 1, nor the next one, nor its double."""

    def taken(value: int) -> bool:
        return accepts(*asked, {**values, **dict.fromkeys(group, value)})

    return taken(number) and not any(map(taken, (1, number + 1, 2 * number)))


def accepts(op: Any, dims: _OfOperands, values: _Values = MappingProxyType({})) -> bool:
    """Whether `op`, which can be asked, takes operands of these dims, whatever Paddle throws where it does not."""
    with static.program_guard(static.Program(), static.Program()):
        try:
            given = [
                None if each is None else _C_ops.data(f'x{at}', _numbers(each, values), v.dtype,
                                                      Place())
                for at, (each, v) in enumerate(zip(dims, op.operands_source()))
            ]
            getattr(_C_ops, bare_kind(op))(*given, *plain_attributes(op))
        except Exception:  # the bindings throw what the kernels' authors did
            return False
    return True


def _numbers(dims: Dims, values: _Values) -> List[int]:
    return [int(value_of(d, values, not_rounded)) for d in dims]
