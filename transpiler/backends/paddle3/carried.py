"""What loops carry from trip to trip, and branches hand on, where its dims change.

Paddle declares in a loop's body what the first trip is given. Its symbolic inference gives each open dim of what is carried a symbol
of its own, and says what the next trip is given in terms of those: so what one trip adds is seen, and what the last one has.
"""

from __future__ import annotations

import ast
from types import MappingProxyType
from typing import AbstractSet, Any, Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from transpiler.backends.paddle3.blocks import IF, POP, WHILE, blocks_of, has, kept_for
from transpiler.backends.paddle3.dim_expressions import Bound, covers, greatest, most, not_rounded, same, substituted, symbols_of, value_of
from transpiler.backends.paddle3.naming import COMBINE, SPLIT
from transpiler.backends.paddle3.shapes import gradients_of
from transpiler.ir import Size
from transpiler.ir.symbols import trip

# Of a dense tensor its dims; None if nothing is said of it.
DimsOf = Callable[[Any], Optional[Sequence[ast.expr]]]
Dims = Tuple[Bound, ...]
# By symbol of what a loop carries: what it is in the first trip, and in the next, each time that it occurs.
_Steps = Mapping[str, Sequence[Tuple[ast.expr, ast.expr]]]

# So many trips may make it longer before it is said to grow: in the second it is as long as what it is added to.
_WIDENED = 2


class Carried(NamedTuple):
    """Attributes:
        symbols: what symbols of the inference stand for, or what that never goes beyond; by their names.
        made: the same for each dim of what loops make, by id; what they begin with, if that is more.
        loose: ids of values whose dims are others in another trip, or in another branch: what Paddle declares of them is that of one.
        untold: those of them of which the inference does not say more.
    """

    symbols: Mapping[str, Bound] = MappingProxyType({})
    made: Mapping[str, Dims] = MappingProxyType({})
    loose: FrozenSet[str] = frozenset()
    untold: FrozenSet[str] = frozenset()


def carries_open(program: Any) -> bool:
    """Whether a dim of what any loop carries is declared open: it is, or trips change it."""
    return any(-1 in arg.shape for op in walk(program.global_block()) if op.name() == WHILE
               for arg in _dense(blocks_of(op)[0].args()))  # yapf: disable


def shut(program: Any, dims_of: DimsOf) -> Dict[str, Tuple[int, ...]]:
    """By id of what the bodies of loops are given, and of gradients: the dims that Paddle declares, but open where they are in what those
    begin with, or are gradients of. Without those that are as they should be."""
    found = {}
    for op in walk(program.global_block()):
        pairs = (each[:2] for each in _handed(op)) if op.name() == WHILE else likenesses(op)
        for value, like in pairs:
            both = zip(dims_of(value) or (), dims_of(like) or ())
            closed = [
                isinstance(v, ast.Constant) and not isinstance(k, ast.Constant) for v, k in both
            ]
            if any(closed):
                found[value.id] = tuple(-1 if c else d for c, d in zip(closed, value.shape))
    return found


def follow(program: Any, dims_of: DimsOf, inputs: Mapping[str, Size]) -> Carried:
    """What loops and branches make of the open dims `inputs`, which are sizes by symbols."""
    blocks = _Blocks(dims_of, {symbol: Bound(size) for symbol, size in inputs.items()})
    blocks.follow(program.global_block())
    loose, untold = _loose(program, dims_of, blocks.values.keys(), blocks.moving)
    return Carried(blocks.values, blocks.made, loose, untold)


def walk(block: Any) -> Iterator[Any]:
    """Its ops, each before those of its blocks."""
    for op in block.ops:
        yield op
        for inner in op.blocks():
            yield from walk(inner)


def _dense(values: Iterable[Any]) -> List[Any]:
    return [v for v in values if v.initialized() and v.is_dense_tensor_type()]


def _handed(loop: Any) -> Iterator[Tuple[Any, Any, Any, Any]]:
    """What its trips are given, each with what the first is, what the next is, and what is made of it."""
    body, = blocks_of(loop)
    for at, (arg, result) in enumerate(zip(body.args(), loop.results())):
        each = arg, loop.operand_source(at + 1), body.ops[-1].operand_source(at + 1), result
        if len(_dense(each)) == len(each):
            yield each


class _Blocks:
    """Goes through the blocks of a program, inner ones first: what their symbols stand for is said in those of the loops around, and in
    numbers of trips, until those are known themselves."""

    def __init__(self, dims_of: DimsOf, values: Dict[str, Bound]) -> None:
        self._dims, self.values = dims_of, values
        self.made: Dict[str, Dims] = {}
        # Symbols that stand for one thing in one trip, or branch, and another in another.
        self.moving: Set[str] = set()
        # What branches of the loop at hand, and those in them, hand on: symbols, each with what it is one of.
        self._named: List[Tuple[str, Sequence[ast.expr]]] = []
        self._regions = 0  # numbered as those of the graph are

    def follow(self, block: Any) -> Set[str]:
        """The symbols of the blocks in `block`, at any depth."""
        found: Set[str] = set()
        for op in block.ops:
            if op.name() == WHILE:
                found |= self._loop(op)
            elif op.name() == IF:
                found |= self._branch(op)
            else:
                for value, like in likenesses(op):
                    found |= self._name(value, [like])
        return found

    def _loop(self, op: Any) -> Set[str]:
        self._regions += 1
        trips, (body,) = Size.dim(trip(self._regions)), blocks_of(op)
        steps = self._steps(op)
        start = {s: self._most(pairs, 0) for s, pairs in steps.items()}
        # What is an input's, too, stays that, unless it is something else in the first trip: what it is added to may be longer.
        before = {
            s: self.values[s]
            for s, first in start.items()
            if s in self.values and (first is None or same(first, self.values[s]))
        }
        start.update(before)
        around, self._named = self._named, []
        self._steady(steps, start)  # as far as inner loops do not matter
        inner = self.follow(body)
        known = self._steady(steps, start)
        self._named = around
        self.moving.update(s for s in steps if s not in known)
        # A gradient's trips are those of another loop.
        known.update(self._growing(steps, known, None if has(body, POP) else trips))
        self._put(inner, frozenset(steps), {**before, **known})
        self._note_made(op)
        return inner | steps.keys()

    def _steps(self, op: Any) -> _Steps:
        steps: Dict[str, List[Tuple[ast.expr, ast.expr]]] = {}
        for each in _handed(op):
            said = [self._dims(value) for value in each[:3]]
            if None not in said:
                for symbol, *pair in zip(*said):
                    if isinstance(symbol, ast.Name):
                        steps.setdefault(symbol.id, []).append(tuple(pair))
        return steps

    def _most(self, pairs: Sequence[Tuple[ast.expr, ast.expr]], which: int) -> Optional[Bound]:
        seen = [self._value(pair[which]) for pair in pairs]
        return None if None in seen else greatest(seen)

    def _value(self, dim: ast.expr) -> Optional[Bound]:
        try:
            value = value_of(dim, self.values, not_rounded)
        except (KeyError, ZeroDivisionError):
            return None
        return value if isinstance(value, Bound) else Bound(Size()) + value

    def _steady(self, steps: _Steps, start: Mapping[str, Optional[Bound]]) -> Dict[str, Bound]:
        """Symbols that stand for what they do in the first trip: if all of them do in one trip, they do in the next."""
        known = {symbol: first for symbol, first in start.items() if first is not None}
        while True:
            nexts = self._nexts(steps, known)
            kept = {
                symbol: first
                for symbol, first in known.items()
                if nexts[symbol] and same(substituted(nexts[symbol], known), first)
            }
            if len(kept) == len(known):
                return kept
            known = kept

    def _nexts(self, steps: _Steps, known: Mapping[str, Bound]) -> Dict[str, Optional[Bound]]:
        """What these are in the next trip, if they and no others are so much in this one."""
        self.values.update({**{s: Bound(Size.dim(s)) for s in steps}, **known})
        for symbol, others in self._named:  # the larger of two is one of them where they are known to be the same
            self._note(symbol, others)
        return {symbol: self._most(steps[symbol], 1) for symbol in known}

    def _bounded(self, steps: _Steps, steady: Mapping[str, Bound]) -> Dict[str, Bound]:
        """What others never go beyond: if none of them does in one trip, none does in the next, as nothing is taken off."""
        known: Dict[str, Bound] = {}
        for symbol, pairs in steps.items():
            first = None if symbol in steady else self._most(pairs, 0)
            if first is not None:
                known[symbol] = greatest([first], at_most=True)
        for widened in range(len(steps) + _WIDENED):
            said = self._nexts(steps, {**steady, **known})
            nexts = {s: b and substituted(b, {**steady, **known}) for s, b in said.items()}
            beyond = [s for s, bound in known.items() if not (nexts[s] and covers(bound, nexts[s]))]
            if not beyond:
                break
            free = steps.keys() - steady.keys() - known.keys()
            for symbol in beyond:
                following, bound = nexts[symbol], known.pop(symbol)
                if widened < _WIDENED and following is not None and free.isdisjoint(following.dims):
                    known[symbol] = greatest([bound, following], at_most=True)
        self._nexts(steps, steady)
        return known

    def _growing(self, steps: _Steps, steady: Mapping[str, Bound],
                 trips: Optional[Size]) -> Dict[str, Bound]:
        """What is at the most in the last trip of what changes: one by one, each in terms of those before."""
        found = self._bounded(steps, steady)
        pending = set(steps) - steady.keys() - found.keys()
        while True:
            more = {}
            for symbol in pending:
                first, following = (self._most(steps[symbol], which) for which in (0, 1))
                if first is not None and following is not None:
                    following = substituted(following, {**steady, **found})
                    if pending.isdisjoint(following.above.dims - {symbol}):
                        more[symbol] = _last(symbol, first, following, trips)
            known = {symbol: bound for symbol, bound in more.items() if bound is not None}
            if not known:
                return found
            found.update(known)
            pending -= known.keys()

    def _put(self, inner: Set[str], own: FrozenSet[str], known: Mapping[str, Bound]) -> None:
        """In the place of the symbols `own` of a loop what is known of them: nothing is of what stands for one of which nothing is."""
        for symbol in own:
            del self.values[symbol]
        unknown = own - known.keys()
        for symbol in inner & self.values.keys():
            value = self.values.pop(symbol)
            if not self.moving.isdisjoint(value.dims):
                self.moving.add(symbol)
            if unknown.isdisjoint(value.dims):
                self.values[symbol] = substituted(value, known)
        for key, dims in list(self.made.items()):
            if unknown.isdisjoint(name for d in dims for name in d.dims):
                self.made[key] = tuple(substituted(d, known) for d in dims)
            else:
                del self.made[key]
        self.values.update(known)

    def _note_made(self, op: Any) -> None:
        for arg, _, following, result in _handed(op):
            pairs = list(zip(self._dims(arg) or (), self._dims(following) or ()))
            seen = [[self._value(given), self._value(handed)] for given, handed in pairs]
            if pairs and not any(None in each for each in seen):
                self.made[result.id] = tuple(map(greatest, seen))

    def _branch(self, op: Any) -> Set[str]:
        found: Set[str] = set()
        for block in blocks_of(op):
            self._regions += 1
            found |= self.follow(block)
        sides = [block.ops[-1].operands_source() for block in blocks_of(op)]
        for result, *handed in zip(op.results(), *sides):
            if len(_dense((result, *handed))) == 1 + len(handed):
                found |= self._name(result, handed)
        return found

    def _name(self, value: Any, others: Sequence[Any]) -> Set[str]:
        """Symbols that the inference has made for `value`, which is one of `others`, or like it: what those have there."""
        found = set()
        for dim, *each in zip(*(self._dims(v) or () for v in (value, *others))):
            if isinstance(dim, ast.Name) and dim.id not in self.values:
                found.add(dim.id)
                self._named.append((dim.id, each))
                self._note(dim.id, each)
        return found

    def _note(self, symbol: str, others: Sequence[ast.expr]) -> None:
        seen = [self._value(other) for other in others]
        if None not in seen:
            self.values[symbol] = greatest(seen)
        moves = None in seen or not self.values[symbol].exact or any(
            self.moving & symbols_of(other) for other in others)
        (self.moving.add if moves else self.moving.discard)(symbol)


def _last(symbol: str, first: Bound, following: Bound, trips: Optional[Size]) -> Optional[Bound]:
    """What `symbol` never goes beyond if it is `first` in the first trip, and in the next what is said of it in terms of itself: if each
    adds as much, or if it does not depend on the trip before. None if it is neither, or nobody knows the trips."""
    terms = following.above.terms
    factor = terms.pop(((symbol, 1),), 0)
    rest = most(Bound(Size(terms), following.below))
    if symbol in rest.dims or factor not in (0, 1):
        return None
    if not factor or not rest:
        return greatest([first, rest])
    return None if trips is None else Bound(
        first.above + trips * rest, first.below + rest, exact=False)


def _loose(program: Any, dims_of: DimsOf, known: AbstractSet[str],
           moving: Set[str]) -> Tuple[FrozenSet[str], FrozenSet[str]]:
    """See `Carried`: what is made of loose values is untold if the inference says nothing of it, or what it is made of is."""
    loose: Set[str] = set()
    untold: Set[str] = set()

    def note(value: Any, sources: Sequence[Any], of_loop: bool) -> None:
        if not value.initialized():
            return
        dims, ids = dims_of(value), {source.id for source in sources}
        told = dims is not None and all(symbols_of(d) <= known for d in dims)
        if ids & untold or ids & loose and not told:
            untold.add(value.id)
        elif (of_loop or value.is_combine()) and ids & loose or any(
                moving & symbols_of(d) for d in dims or ()):
            loose.add(value.id)

    untold.update(_of_unknown_trips(program, dims_of))
    before = -1
    while before < len(loose) + len(untold):
        before = len(loose) + len(untold)
        loose |= untold
        for op in walk(program.global_block()):
            for value, sources in _sources(op):
                note(value, sources, op.name() == WHILE)  # it may make no trip
    return frozenset(loose), frozenset(untold)


def _of_unknown_trips(program: Any, dims_of: DimsOf) -> Iterator[str]:
    """Ids of what is carried with open dims by loops that are no gradients, where the inference did not come to their ends."""
    for op in walk(program.global_block()):
        if op.name() == WHILE and not has(blocks_of(op)[0], POP):
            for arg, *others in _handed(op):
                if -1 in arg.shape and any(dims_of(v) is None for v in (arg, *others[:2])):
                    yield arg.id


def _sources(op: Any) -> Iterator[Tuple[Any, Sequence[Any]]]:
    """What it makes, and what its blocks are given, each with what that is made of."""
    results = op.results()
    if op.name() == WHILE:
        for arg, *sources, result in _handed(op):
            yield from ((arg, sources), (result, [arg, *sources]))
    elif op.name() == IF:
        yield from zip(results, zip(*(b.ops[-1].operands_source() for b in blocks_of(op))))
    elif op.name() == POP:
        yield from zip(results, ([v] for v in kept_for(op)))
    else:
        like = {value.id: [other] for value, other in likenesses(op)}
        yield from ((result, like.get(result.id) or _named(op)) for result in results)


def likenesses(op: Any) -> Iterator[Tuple[Any, Any]]:
    """Gradients that `op` makes, or takes out of a list of such, each with what it is the gradient of."""
    if op.name() == SPLIT:
        maker = op.operand_source(0).get_defining_op()
        lists = [other for value, other in likenesses(maker) if value.is_same(op.operand_source(0))]
        combined = lists[0].get_defining_op() if lists else None
        if combined is not None and combined.name() == COMBINE:
            yield from _pairs(op.results(), combined.operands_source())
    else:
        at = gradients_of(op)
        yield from _pairs(op.results(), [None if i is None else op.operand_source(i) for i in at])


def _pairs(values: Sequence[Any], others: Sequence[Any]) -> Iterator[Tuple[Any, Any]]:
    for value, other in zip(values, others):
        if other is not None and value.initialized() and other.initialized():
            yield value, other


def _named(op: Any) -> List[Any]:
    return [v for v in op.operands_source() if v.initialized()]
