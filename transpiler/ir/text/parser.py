"""From text to a graph."""

from __future__ import annotations

import enum
from fractions import Fraction
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union, get_args, get_origin

from transpiler.errors import InvalidProgramError
from transpiler.ir.graph import Graph, Op, Region, RegionKind, Value
from transpiler.ir.size import Size
from transpiler.ir.text.forms import REFERENCES, attributes, default_fields, hints
from transpiler.ir.text.tokens import Token, name_in, tokens, unquoted

T = TypeVar('T')


def parse(text: str) -> Graph:
    """The graph that `printed` says, or that somebody wrote down.

    Raises:
        InvalidProgramError: it is none; the message has the line.
    """
    return _Parser(tokens(text)).graph()


class _Parser:

    def __init__(self, words: List[Token]) -> None:
        self._words = words
        self._at = 0
        self._ids = self._declared()
        self._values: Dict[int, Value] = {}
        self._ops: Dict[int, Op] = {}
        self._regions: Dict[int, Region] = {}

    def _declared(self) -> Dict[str, int]:
        """Values by reference; a value may be named before the line that declares it."""
        found: Dict[str, int] = {}
        for word, number, reference in zip(self._words, self._words[1:], self._words[2:]):
            if (word.text, number.kind, reference.kind) == ('value', 'number', 'reference'):
                if reference.text in found:
                    raise InvalidProgramError(
                        f'line {word.line}: {reference.text} is declared twice; tell the two apart '
                        f"by their numbers, as {reference.text}'{number.text}")
                found[reference.text] = self._whole(number)
        return found

    def graph(self) -> Graph:
        while self._peek().kind != 'end':
            if self._takes('lost'):
                self._inside(lambda: self._op(-1))
            else:
                self._region(-1, -1)
        if 0 not in self._regions:
            raise self._expected('region 0')
        graph = Graph(_dense('value', self._values), _dense('op', self._ops),
                      _dense('region', self._regions))
        for value in graph.values:
            if not 0 <= value.storage < len(graph.values):
                raise InvalidProgramError(f'value {value.id} is in a storage that is no value')
        _check_regions(graph)
        return graph

    # Lines

    def _region(self, op: int, parent: int) -> int:
        self._take('region')
        number, kind = self._whole(self._next('number')), self._enum(RegionKind)
        facts = {'op': op, 'parent': parent, **self._attributes(Region)}
        region = Region(number, kind, **facts)
        self._add(self._regions, number, region)

        def line() -> None:
            if self._peek().text == 'value':
                self._value(number)
            else:
                region.ops.append(self._op(number))

        self._inside(line)
        return number

    def _value(self, region: int) -> None:
        self._take('value')
        number = self._whole(self._next('number'))
        name = name_in(self._next('reference'))
        self._take(':')
        dtype = '' if self._peek().text == '[' else self._name()
        shape = self._shape()
        size = None if self._takes('?') else self._size()
        self._take('bytes')
        facts = self._attributes(Value)
        value = Value(number, name, region, dtype=dtype, shape=shape, size=size, **facts)
        self._add(self._values, number, value)

    def _shape(self) -> Optional[Tuple[Size, ...]]:
        if self._words[self._at + 1].text == '?':
            self._take('[', '?', ']')
            return None
        return tuple(self._listed('[', ']', self._size))

    def _op(self, region: int) -> int:
        self._take('op')
        number, kind = self._whole(self._next('number')), self._name()
        operands = tuple(self._listed('(', ')', self._reference))
        results: List[int] = []
        if self._takes('->'):
            results.append(self._reference())
            while self._takes(','):
                results.append(self._reference())
        facts = {'region': region, **self._attributes(Op)}
        op = Op(number, kind, operands=operands, results=tuple(results), **facts)
        self._add(self._ops, number, op)
        if self._peek().text == '{':
            nested: List[int] = []
            self._inside(lambda: nested.append(self._region(number, region)))
            op.regions = tuple(nested)
        return number

    def _inside(self, line: Callable[[], Any]) -> None:
        self._take('{')
        while not self._takes('}'):
            line()

    def _add(self, known: Dict[int, T], number: int, thing: T) -> None:
        if number in known:
            kind = type(thing).__name__.lower()
            raise InvalidProgramError(
                f'line {self._words[self._at - 1].line}: there are two {kind}s {number}')
        known[number] = thing

    # Attributes

    def _attributes(self, kind: type) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        while self._peek().kind == 'name' and self._peek().text in attributes(kind):
            name = self._next('name').text
            if name in found:
                raise self._expected(f'{name} once', self._words[self._at - 1])
            hint = hints(kind)[name]
            found[name] = self._literal(hint, name
                                        in REFERENCES) if self._takes('=') else self._flag(hint)
        return found

    def _flag(self, hint: Any) -> bool:
        if hint is not bool:
            raise self._expected("'='")
        return True

    def _literal(self, hint: Any, references: bool) -> Any:
        if get_origin(hint) is Union:
            if self._takes('none'):
                return None
            hint = next(t for t in get_args(hint) if t is not type(None))
        if get_origin(hint) in (tuple, frozenset):
            return self._collection(hint, references)
        if hint is bool:
            return self._next('name', ('true', 'false')).text == 'true'
        if hint is int:
            return self._reference() if references else self._whole(self._next('number'))
        if hint is float:
            return self._real()
        if hint is str:
            return unquoted(self._next('string'))
        if hint is Size:
            return self._size()
        if issubclass(hint, enum.Enum):
            return self._enum(hint)
        return self._facts(hint)

    def _collection(self, hint: Any, references: bool) -> Any:
        types = get_args(hint)
        same = len(types) == 1 or types[1] is Ellipsis
        left = iter(types)

        def element() -> Any:
            wanted = types[0] if same else next(left, None)
            if wanted is None:
                raise self._expected("']'")
            return self._literal(wanted, references)

        found = self._listed('[', ']', element)
        if not same and len(found) != len(types):
            raise self._expected(f'{len(types)} elements', self._words[self._at - 1])
        return get_origin(hint)(found)

    def _facts(self, kind: type) -> Any:
        self._take('(')
        found = self._attributes(kind)
        missing = [n for n in attributes(kind) if n not in found and n not in default_fields(kind)]
        if missing:
            raise self._expected(missing[0])
        self._take(')')
        return kind(**found)

    # Words

    def _size(self) -> Size:
        terms = [self._term()]
        while self._takes('+'):
            terms.append(self._term())
        return Size.total(terms)

    def _term(self) -> Size:
        factors = [self._factor()]
        while self._takes('*'):
            factors.append(self._factor())
        return Size.product(factors)

    def _factor(self) -> Size:
        word = self._peek()
        if word.kind == 'number':
            number = Fraction(self._whole(self._next('number')))
            if number < 0:
                raise self._expected('a size', word)
            return Size.of(number / self._divisor()) if self._takes('/') else Size.of(number)
        dim = self._dim()
        power = self._whole(self._next('number')) if self._takes('^') else 1
        return Size.product([Size.dim(dim)] * power)

    def _divisor(self) -> int:
        word = self._next('number')
        divisor = self._whole(word)
        if divisor < 1:
            raise self._expected('a number from 1 on', word)
        return divisor

    def _dim(self) -> str:
        if self._peek().kind == 'string':
            return unquoted(self._next('string'))
        name = self._next('name').text
        if not self._takes('('):
            return name
        inner = self._next('name').text
        self._take(')')
        return f'{name}({inner})'

    def _real(self) -> float:
        word = self._next()
        try:
            return float(word.text)
        except ValueError:
            raise self._expected('a number', word) from None

    def _whole(self, word: Token) -> int:
        try:
            return int(word.text)
        except ValueError:
            raise self._expected('a whole number', word) from None

    def _enum(self, kind: Any) -> Any:
        names = {member.name.lower(): member for member in kind}
        return names[self._next('name', tuple(names)).text]

    def _reference(self) -> int:
        if self._takes('-'):
            return -1
        word = self._next('reference')
        if word.text not in self._ids:
            raise self._expected('a value that is declared', word)
        return self._ids[word.text]

    def _name(self) -> str:
        return unquoted(self._next('string' if self._peek().kind == 'string' else 'name'))

    def _listed(self, opens: str, closes: str, element: Callable[[], T]) -> List[T]:
        self._take(opens)
        found: List[T] = []
        while not self._takes(closes):
            if found:
                self._take(',')
            found.append(element())
        return found

    def _peek(self) -> Token:
        return self._words[self._at]

    def _takes(self, text: str) -> bool:
        found = self._peek().text == text
        self._at += found
        return found

    def _take(self, *texts: str) -> None:
        for text in texts:
            if not self._takes(text):
                raise self._expected(repr(text))

    def _next(self, kind: str = '', among: Tuple[str, ...] = ()) -> Token:
        word = self._peek()
        if kind and word.kind != kind or among and word.text not in among or word.kind == 'end':
            raise self._expected(' or '.join(among) or f'a {kind or "word"}')
        self._at += 1
        return word

    def _expected(self, what: str, word: Optional[Token] = None) -> InvalidProgramError:
        word = word or self._peek()
        return InvalidProgramError(
            f'line {word.line}: {what} is expected, not {word.text or "the end"}')


def _dense(kind: str, found: Dict[int, T]) -> List[T]:
    """What is numbered from 0 on, without gaps."""
    for number in range(len(found)):
        if number not in found:
            raise InvalidProgramError(f'there is no {kind} {number}, but one with a higher number')
    return [found[number] for number in range(len(found))]


def _check_regions(graph: Graph) -> None:
    """What is said by number is there."""
    for op in graph.ops:
        for region in op.regions:
            if not 0 <= region < len(graph.regions):
                raise InvalidProgramError(f'op {op.id} runs region {region}, which is not there')
    for region in graph.regions:
        if region.id and not 0 <= region.op < len(graph.ops):
            raise InvalidProgramError(f'region {region.id} is run by no op')
