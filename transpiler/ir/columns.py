"""Graphs and reports in three large objects. Of many small ones, each that is left keeps a MiB of Python's heap resident."""

from __future__ import annotations

import dataclasses
from array import array
from itertools import chain, islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Collection, Dict, Generic, Hashable, Iterator, List, Mapping, Sequence, Type, TypeVar

from transpiler.ir.facts import OpFacts

_T = TypeVar('_T')
_BETWEEN = '\0'  # texts
_NONE = -2**63
_WIDTHS: Mapping[int, str] = MappingProxyType({array(code).itemsize: code for code in 'bhiq'})
_FEW = 64
_MANY = (tuple, list, set, frozenset)
_NUMBERS, _TEXTS, _THINGS, _DICTS, _ROWS, _FLOATS, _TRUTHS, _FIRST_OF_MANY = range(8)


class Columns(Generic[_T]):
    """`thing`, a dataclass, without some of its fields: as often as somebody asks, an equal one is made again.

    Numbers, texts, tuples, lists, sets and dicts of them, and other dataclasses in it are taken apart, column by column; what else there is
    has to stay as it is, and is kept.
    """

    def __init__(self, thing: _T, without: Collection[str] = ()) -> None:
        self._kind = type(thing)
        self._names = [f for f in _fields(self._kind) if f not in without]
        written = _Writer()
        for name in self._names:
            written.write([getattr(thing, name)])
        self._numbers = _narrowed(written.numbers)
        self._texts = _BETWEEN.join(written.texts)
        self._things = written.things

    def again(self, **others: Any) -> _T:
        """With `others` for the fields that were left out."""
        read = _Reader(_widened(self._numbers), iter(self._texts.split(_BETWEEN)), self._things)
        return self._kind(**others, **{name: read.column(1)[0] for name in self._names})


def _narrowed(numbers: 'array[int]') -> bytes:
    """Each few of them in as few bytes as they need: most are below 128. No more is wanted of a compressor, and Paddle 2.6.2 brings
    a zlib with which Python's fails on some machines."""
    found = bytearray()
    for start in range(0, len(numbers), _FEW):
        few = numbers[start:start + _FEW]
        width = next(
            w for w in _WIDTHS if -1 << (8 * w - 1) <= min(few) <= max(few) < 1 << (8 * w - 1))
        found.append(width)
        found += array(_WIDTHS[width], few).tobytes()
    return bytes(found)


def _widened(narrowed: bytes) -> 'array[int]':
    numbers, at = array('q'), 0
    while at < len(narrowed):
        width, at = narrowed[at], at + 1
        numbers.extend(array(_WIDTHS[width], narrowed[at:at + width * _FEW]).tolist())
        at += width * _FEW
    return numbers


def _fields(kind: Type[Any]) -> List[str]:
    return [f.name for f in dataclasses.fields(kind) if f.init]


class _Writer:

    def __init__(self) -> None:
        self.numbers = array('q')
        self.texts: List[str] = []
        self.things: List[Any] = []
        self._known: Dict[Hashable, int] = {}

    def write(self, column: Sequence[Any]) -> None:
        kinds = set(map(type, column))
        if kinds <= {int, type(None)} and _fit(column):
            self._numbers(_NUMBERS, [_NONE if each is None else each for each in column])
        elif kinds == {str} and _BETWEEN not in ''.join(column):
            self.numbers.append(_TEXTS)
            self.texts += column
        elif kinds == {bool}:
            self._numbers(_TRUTHS, column)
        elif kinds == {float}:
            self._numbers(_FLOATS, array('q', array('d', column).tobytes()))
        else:
            self._write_others(column, kinds.pop() if len(kinds) == 1 else object)

    def _numbers(self, code: int, numbers: Sequence[int]) -> None:
        self.numbers.append(code)
        self.numbers.extend(numbers)

    def _write_others(self, column: Sequence[Any], kind: Type[Any]) -> None:
        if kind in _MANY:
            self._numbers(_FIRST_OF_MANY + _MANY.index(kind), list(map(len, column)))
            self.write(list(chain.from_iterable(column)))
        elif kind is dict:
            self.numbers.append(_DICTS)
            self.write(list(map(list, column)))
            self.write([list(each.values()) for each in column])
        elif dataclasses.is_dataclass(kind) and kind is not OpFacts:
            self._numbers(_ROWS, [self._number(kind)])
            for name in _fields(kind):
                self.write(list(map(attrgetter(name), column)))
        else:
            self._numbers(_THINGS, list(map(self._number, column)))

    def _number(self, thing: Any) -> int:
        """Of a thing that is kept. To compare facts takes longer than to keep some that are equal."""
        kind = type(thing)
        by_id = kind is OpFacts or kind.__hash__ is None
        number = self._known.setdefault(id(thing) if by_id else (kind, thing), len(self.things))
        if number == len(self.things):
            self.things.append(thing)
        return number


def _fit(column: Sequence[Any]) -> bool:
    numbers = [each for each in column if each is not None]
    return not numbers or _NONE < min(numbers) <= max(numbers) < -_NONE


class _Reader:

    def __init__(self, numbers: 'array[int]', texts: Iterator[str], things: Sequence[Any]) -> None:
        self._left = numbers
        self._at = 0
        self._texts = texts
        self._things = things

    def _numbers(self, length: int) -> List[int]:
        self._at += length
        return self._left[self._at - length:self._at].tolist()

    def column(self, length: int) -> List[Any]:
        """The next one."""
        code, = self._numbers(1)
        if code == _NUMBERS:
            return [None if each == _NONE else each for each in self._numbers(length)]
        if code == _TEXTS:
            return list(islice(self._texts, length))
        if code == _THINGS:
            return [self._things[number] for number in self._numbers(length)]
        if code == _TRUTHS:
            return list(map(bool, self._numbers(length)))
        if code == _FLOATS:
            return array('d', array('q', self._numbers(length)).tobytes()).tolist()
        if code == _DICTS:
            return [dict(zip(*each)) for each in zip(self.column(length), self.column(length))]
        if code == _ROWS:
            kind = self._things[self._numbers(1)[0]]
            return list(map(kind, *[self.column(length) for _ in _fields(kind)]))
        return self._many(_MANY[code - _FIRST_OF_MANY], self._numbers(length))

    def _many(self, kind: Type[Any], lengths: Sequence[int]) -> List[Any]:
        members = iter(self.column(sum(lengths)))
        return [kind(islice(members, length)) for length in lengths]
