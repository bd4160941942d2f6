"""Which open dims of inputs are one, and which are made of others, by the operators that reject all else.

Paddle's symbolic inference does not say that labels have the rows of the scores that they are laid beside; the check of the operator that
takes both does. It is asked in a program that nobody runs.
"""

from __future__ import annotations

import ast
from itertools import count, islice, permutations, product
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from paddle import _C_ops, static
from paddle.base.core import Place

from transpiler.backends.paddle3.aliases import DIALECT
from transpiler.backends.paddle3.attributes import plain_attributes
from transpiler.backends.paddle3.dim_expressions import Bound, broadcast, not_rounded, substituted, symbols_of, value_of
from transpiler.backends.paddle3.naming import bare_kind
from transpiler.backends.paddle3.shapes import GRADIENT
from transpiler.ir import Size

_FIRST = 101  # more than ops add to dims
_MOST = 2**62  # Paddle's bindings end the process where a dim has more bits
_OTHERS: Sequence[Callable[[int], int]] = (lambda n: 1, lambda n: n + 1, lambda n: 2 * n)
Dims = Sequence[ast.expr]
_DimsOf = Callable[[Any], Optional[Dims]]
_OfOperands = Sequence[Optional[Dims]]  # None for one that an operator goes without
_Values = Mapping[str, int]
_Proposal = Tuple[Tuple[str, Size], ...]  # what symbols may be


class _Asked(NamedTuple):
    """An operator, and the dims of its operands."""

    op: Any
    dims: _OfOperands


def learn(ops: Sequence[Any], dims_of: _DimsOf, known: Mapping[str, Size]) -> Dict[str, Size]:
    """What symbols are, in terms of those that are no others.

    Args:
        ops: they run in every run.
        dims_of: of a value; None where they are not known.
        known: by symbol, in the order of preference: those that are one are the first of them.
    """
    found, free = dict(known), list(dict.fromkeys(s for size in known.values() for s in size.dims))
    _learn_of_rejected(ops, dims_of, found, free)
    # What is made of others shows what else is.
    while _learn_of_broadcast(ops, dims_of, found, free):
        _learn_of_rejected(ops, dims_of, found, free)
    return found


def _learn_of_rejected(ops: Sequence[Any], dims_of: _DimsOf, found: Dict[str, Size],
                       free: Sequence[str]) -> None:
    """What operators reject all else for."""
    numberings = _numberings(free)
    seen: Set[Tuple] = set()
    for asked in _with_several(ops, dims_of, found):
        looks = (asked.op.name(), *(tuple(map(ast.dump, dims or ())) for dims in asked.dims))
        if looks in seen:
            continue
        seen.add(looks)
        proposals = list(_proposals(asked.dims, found, free))
        if not proposals or all(accepts(*asked, _values(found, n)) for n in numberings):
            continue
        for symbol, size in _agreed(asked, found, numberings, proposals):
            _note(symbol, size, found)


def _learn_of_broadcast(ops: Sequence[Any], dims_of: _DimsOf, found: Dict[str, Size],
                        free: Sequence[str]) -> bool:
    """That rows of an input are made of others to which they are broadcast: they differ only where there is a single one. Whether there are
    some."""
    if len(found) < 2:
        return False
    before = dict(found)
    results = [value for op in ops for value in op.results() if value.initialized()]
    said = {id(dims): dims for dims in map(dims_of, results) if dims is not None}
    for sides in [sides for dims in said.values() for dim in dims for sides in broadcast(dim)]:
        for own, other in permutations([_size_of(side, found) for side in sides], 2):
            for symbol, size in _made_equal(own, other, free):
                _note(symbol, size, found)
    return found != before


def _note(symbol: str, size: Size, found: Dict[str, Size]) -> None:
    replaced = {symbol: Bound(size)}
    found.update((s, substituted(Bound(each), replaced).above)
                 for s, each in list(found.items())
                 if symbol in each.dims)


def _numberings(symbols: Sequence[str]) -> List[_Values]:
    """Two: what one of them has by accident, as one number is another and one more, the other has not."""
    primes = (n for n in count(_FIRST) if all(n % d for d in range(2, int(n**.5) + 1)))
    numbers = list(islice(primes, len(symbols)))
    return [dict(zip(symbols, numbers)), dict(zip(symbols, reversed(numbers)))]


def _values(known: Mapping[str, Size], numbers: _Values) -> _Values:
    return {symbol: size.evaluate(numbers) for symbol, size in known.items()}


def _agreed(asked: _Asked, known: Mapping[str, Size], numberings: Sequence[_Values],
            proposals: Sequence[_Proposal]) -> Sequence[Tuple[str, Size]]:
    """Those of the first proposal with which the operator accepts the dims, but none without."""
    for proposal in proposals:

        def taken(numbers: _Values, symbol: str = '', number: int = 0) -> bool:
            changed = {s: size.evaluate(numbers) for s, size in proposal}
            changed.update({symbol: number} if symbol else {})
            return accepts(*asked, _values(known, {**numbers, **changed}))

        if all(map(taken, numberings)):
            needed = [(s, size) for s, size in proposal if not any(
                taken(n, s, other(size.evaluate(n))) for n, other in product(numberings, _OTHERS))]
            if needed:
                return needed
    return ()


def _proposals(dims: _OfOperands, known: Mapping[str, Size],
               free: Sequence[str]) -> Iterator[_Proposal]:
    """What may make the dims of two operands equal: of those of one rank all in their places, of any two each alone."""
    sizes = [[_size_of(d, known) for d in each] for each in dims if each is not None]
    for own, other in permutations(sizes, 2):
        if len(own) == len(other):
            found: Dict[str, Size] = {}
            for pair in zip(own, other):
                found.update(_made_equal(*pair, free))
            if len(found) > 1 and not any(found.keys() & size.dims for size in found.values()):
                yield tuple(found.items())
    for own, other in permutations(sizes, 2):
        for pair in product(own, other):
            yield from (((s, size),) for s, size in _made_equal(*pair, free))


def _made_equal(own: Optional[Size], other: Optional[Size],
                free: Sequence[str]) -> Sequence[Tuple[str, Size]]:
    """What the symbol that `own` is would have to be; of two symbols the later one."""
    symbol = _symbol(own)
    if not symbol or other is None or other.is_constant or symbol in other.dims:
        return ()
    if _symbol(other) and free.index(_symbol(other)) > free.index(symbol):
        return ()
    return ((symbol, other),)


def _symbol(size: Optional[Size]) -> str:
    """The symbol that it is; '' if it is anything else."""
    name = next(iter(size.dims), '') if size is not None and len(size.dims) == 1 else ''
    return name if name and size == Size.dim(name) else ''


def _with_several(ops: Sequence[Any], dims_of: _DimsOf, names: Mapping[str,
                                                                       Size]) -> Iterator[_Asked]:
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


def _size_of(dim: ast.expr, known: Mapping[str, Size]) -> Optional[Size]:
    """None where it is rounded, or less something."""
    try:
        value = value_of(dim, {s: Bound(known[s]) for s in symbols_of(dim)}, not_rounded)
    except (KeyError, ZeroDivisionError):
        return None
    if not isinstance(value, Bound):
        return Size.of(int(value))
    return value.above if value.exact and value.below == Size() else None


def accepts(op: Any, dims: _OfOperands, values: _Values = MappingProxyType({})) -> bool:
    """Whether `op`, which can be asked, takes operands of these dims, whatever Paddle throws where it does not. None that Paddle could not
    count."""
    numbers = [None if each is None else _numbers(each, values) for each in dims]
    if any(number > _MOST for each in numbers for number in each or ()):
        return False
    with static.program_guard(static.Program(), static.Program()):
        try:
            given = [
                None if each is None else _C_ops.data(f'x{at}', each, v.dtype, Place())
                for at, (each, v) in enumerate(zip(numbers, op.operands_source()))
            ]
            getattr(_C_ops, bare_kind(op))(*given, *plain_attributes(op))
        except Exception:  # the bindings throw what the kernels' authors did
            return False
    return True


def _numbers(dims: Dims, values: _Values) -> List[int]:
    return [int(value_of(d, values, not_rounded)) for d in dims]
