"""Arrays from a `.pdparams`, which is a pickle, without unpickling it: nothing that a file names is looked up or called.

Paddle writes a dict of numpy arrays with pickle protocol 2, 3 or 4. The operations that such a file is made of are read
here, one by one, into plain data; any other is refused. What a pickle would call is a word of a short list, and what the
word means is done here. Memory is bounded by the size of the file.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np

from transpiler.errors import SavedFileError

_PROTOCOLS = (2, 3, 4)
_MOST_OPERATIONS = 1 << 22  # a file has about twenty of them an array
_LONGEST_NAME = 1 << 10
_MOST_DIMS = 32
_DTYPES = frozenset('b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16'.split())
_BYTE_ORDERS = ('<', '|')
_SLICED = 'UnpackBigParamInfor@@'  # protocols 2 and 3: arrays of over 1 GiB, cut up


class _Refused(Exception):
    """The file is not what Paddle writes; says why."""


@dataclass(frozen=True)
class _Word:
    """Something of a module that a pickle names. Only a name."""

    text: str


_RECONSTRUCT, _NDARRAY, _DTYPE, _ENCODE, _BYTES = map(
    _Word, ('_reconstruct', 'ndarray', 'dtype', 'encode', 'bytes'))
_WORDS = MappingProxyType({
    ('numpy.core.multiarray', '_reconstruct'): _RECONSTRUCT,
    ('numpy._core.multiarray', '_reconstruct'): _RECONSTRUCT,
    ('numpy', 'ndarray'): _NDARRAY,
    ('numpy', 'dtype'): _DTYPE,
    ('_codecs', 'encode'): _ENCODE,  # bytes in protocol 2
    ('__builtin__', 'bytes'): _BYTES,  # no bytes in protocol 2
})


@dataclass
class _Type:
    """A dtype of plain numbers, once its byte order is known."""

    code: str
    known: Optional[np.dtype] = None


@dataclass
class _Array:
    """An array, once its contents are known."""

    known: Optional[np.ndarray] = None


def read_arrays(path: Path) -> Dict[str, np.ndarray]:
    """The arrays in `path`, by name, read-only; what else its dict holds is left out.

    Raises:
        SavedFileError: the file cannot be read, is damaged, or is made of more than arrays of numbers.
    """
    try:
        with open(path, 'rb') as stream:
            found = _Reader(stream, os.fstat(stream.fileno()).st_size).read()
        return _arrays_in(found)
    except OSError as error:
        raise SavedFileError(f'cannot read {path}: {error.strerror}') from error
    except (_Refused, UnicodeError, struct.error) as error:
        raise SavedFileError(
            f'{path}: no file of parameters as paddle.static.save writes it: {error}. '
            'Nothing in it was run') from error


def _arrays_in(found: Any) -> Dict[str, np.ndarray]:
    _demand(isinstance(found, dict), 'it holds no dict')
    arrays = {n: a.known for n, a in found.items() if isinstance(a, _Array)}
    _demand(all(a is not None for a in arrays.values()), 'an array has no contents')
    sliced = found.get(_SLICED, {})
    _demand(isinstance(sliced, dict), 'damaged slices')
    for name, told in sliced.items():
        _demand(isinstance(told, dict) and isinstance(told.get('slices'), list), 'damaged slices')
        parts = [arrays.pop(n, None) for n in map(_text, told['slices'])]
        _demand(parts and all(p is not None for p in parts), f'slices of {name[:80]!r} are missing')
        joined = np.concatenate([p.reshape(-1) for p in parts])
        shape = _shape(told.get('OriginShape'))
        _demand(math.prod(shape) == joined.size, f'slices of {name[:80]!r} do not fit')
        arrays[name] = joined.reshape(shape)
    return arrays


class _Reader:
    """A machine that knows the operations that dicts of arrays are written with."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self._left = size
        self._stack: List[Any] = []
        self._marks: List[int] = []
        self._memo: Dict[int, Any] = {}
        self._operations = _operations(self)

    def read(self) -> Any:
        _demand(self._take(1) == b'\x80', 'it does not begin as a pickle does')
        _demand(self._take(1)[0] in _PROTOCOLS, 'another protocol than 2, 3 and 4')
        for _ in range(_MOST_OPERATIONS):
            code = self._take(1)
            if code == b'.':
                _demand(len(self._stack) == 1 and not self._marks, 'it ends too early')
                return self._stack.pop()
            operation = self._operations.get(code)
            if operation is None:
                raise _Refused(f'operation {code!r} is not needed for arrays')
            operation()
        raise _Refused(f'it has more than {_MOST_OPERATIONS} operations')

    def _take(self, count: int) -> bytes:
        """`count` is what the file says: nothing is allocated for more than it has."""
        _demand(count <= self._left, 'it is cut off')
        self._left -= count
        taken = self._stream.read(count)
        _demand(len(taken) == count, 'it is cut off')
        return taken

    def number(self, layout: str) -> int:
        return struct.unpack('<' + layout, self._take(struct.calcsize('<' + layout)))[0]

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def push_bytes(self, layout: str) -> None:
        self.push(self._take(self.number(layout)))

    def push_text(self, layout: str) -> None:
        self.push(self._take(self.number(layout)).decode('utf-8', 'surrogatepass'))

    def push_long(self) -> None:
        self.push(int.from_bytes(self._take(self.number('B')), 'little', signed=True))

    def skip_frame(self) -> None:
        _demand(self.number('Q') <= self._left, 'it is cut off')

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def put(self, index: int) -> None:
        self._memo[index] = self._top()

    def memoize(self) -> None:
        self.put(len(self._memo))

    def get(self, index: int) -> None:
        _demand(index in self._memo, 'it refers to what it does not have')
        self.push(self._memo[index])

    def tuple_of(self, count: int) -> None:
        self.push(tuple(self._pop(count)))

    def tuple_from_mark(self) -> None:
        self.push(tuple(self._from_mark()))

    def append(self) -> None:
        self._extend(self._pop(1))

    def appends(self) -> None:
        self._extend(self._from_mark())

    def set_item(self) -> None:
        self._update(self._pop(2))

    def set_items(self) -> None:
        self._update(self._from_mark())

    def global_by_lines(self) -> None:
        self._name(*[self._line().decode('ascii') for _ in range(2)])

    def global_from_stack(self) -> None:
        self._name(*map(_text, self._pop(2)))

    def reduce(self) -> None:
        word, arguments = self._pop(2)
        _demand(isinstance(arguments, tuple), 'a call without arguments')
        if word is _RECONSTRUCT:
            self.push(_empty_array(arguments))
        elif word is _DTYPE:
            self.push(_Type(_code(arguments)))
        elif word is _ENCODE:
            _demand(len(arguments) == 2 and arguments[1] == 'latin1', 'an unknown encoding')
            self.push(_text(arguments[0]).encode('latin-1'))
        elif word is _BYTES and not arguments:
            self.push(b'')
        else:
            raise _Refused('it calls what it may not')

    def build(self) -> None:
        state, = self._pop(1)
        made = self._top()
        _demand(isinstance(made, (_Type, _Array)) and made.known is None, 'it sets a state anew')
        _demand(isinstance(state, tuple), 'damaged state')
        made.known = _dtype(made, state) if isinstance(made, _Type) else _contents(state)

    def _name(self, module: str, name: str) -> None:
        _demand((module, name) in _WORDS, f'it names {module[:40]}.{name[:40]}')
        self.push(_WORDS[module, name])

    def _line(self) -> bytes:
        line = self._stream.readline(_LONGEST_NAME)
        self._left -= len(line)
        _demand(line.endswith(b'\n'), 'it is cut off')
        return line[:-1]

    def _top(self) -> Any:
        floor = self._marks[-1] if self._marks else 0
        _demand(len(self._stack) > floor, 'it takes what it does not have')
        return self._stack[-1]

    def _pop(self, count: int) -> List[Any]:
        floor = self._marks[-1] if self._marks else 0
        _demand(len(self._stack) - count >= floor, 'it takes what it does not have')
        taken = self._stack[len(self._stack) - count:]
        del self._stack[len(self._stack) - count:]
        return taken

    def _from_mark(self) -> List[Any]:
        _demand(bool(self._marks), 'it takes what it does not have')
        start = self._marks.pop()
        taken = self._stack[start:]
        del self._stack[start:]
        return taken

    def _extend(self, items: List[Any]) -> None:
        _demand(isinstance(self._top(), list), 'it appends to what is no list')
        self._top().extend(items)

    def _update(self, items: List[Any]) -> None:
        _demand(isinstance(self._top(), dict) and len(items) % 2 == 0, 'damaged dict')
        self._top().update(zip(map(_text, items[::2]), items[1::2]))


def _operations(reader: _Reader) -> Mapping[bytes, Callable[[], None]]:
    """By the byte that says them, the operations that are admitted, of protocols 2 to 4."""
    push, number = reader.push, reader.number
    return {
        b'\x95': reader.skip_frame,
        b'}': lambda: push({}),
        b']': lambda: push([]),
        b')': lambda: push(()),
        b'N': lambda: push(None),
        b'\x88': lambda: push(True),
        b'\x89': lambda: push(False),
        b'J': lambda: push(number('i')),
        b'K': lambda: push(number('B')),
        b'M': lambda: push(number('H')),
        b'G': lambda: push(struct.unpack('>d', struct.pack('<Q', number('Q')))[0]),
        b'\x8a': reader.push_long,
        b'X': lambda: reader.push_text('I'),
        b'\x8c': lambda: reader.push_text('B'),
        b'\x8d': lambda: reader.push_text('Q'),
        b'B': lambda: reader.push_bytes('I'),
        b'C': lambda: reader.push_bytes('B'),
        b'\x8e': lambda: reader.push_bytes('Q'),
        b'(': reader.mark,
        b't': reader.tuple_from_mark,
        b'\x85': lambda: reader.tuple_of(1),
        b'\x86': lambda: reader.tuple_of(2),
        b'\x87': lambda: reader.tuple_of(3),
        b'a': reader.append,
        b'e': reader.appends,
        b's': reader.set_item,
        b'u': reader.set_items,
        b'q': lambda: reader.put(number('B')),
        b'r': lambda: reader.put(number('I')),
        b'\x94': reader.memoize,
        b'h': lambda: reader.get(number('B')),
        b'j': lambda: reader.get(number('I')),
        b'c': reader.global_by_lines,
        b'\x93': reader.global_from_stack,
        b'R': reader.reduce,
        b'b': reader.build,
    }


def _empty_array(arguments: Tuple[Any, ...]) -> _Array:
    """`_reconstruct(ndarray, (0,), b'b')`."""
    _demand(len(arguments) == 3 and arguments[0] is _NDARRAY, 'an array of another class')
    return _Array()


def _code(arguments: Tuple[Any, ...]) -> str:
    """`dtype('f4', False, True)`."""
    code = arguments[0] if arguments else None
    _demand(isinstance(code, str) and code in _DTYPES, 'an array of other things than numbers')
    return code


def _dtype(made: _Type, state: Tuple[Any, ...]) -> np.dtype:
    """`(3, '<', None, None, None, -1, -1, 0)`: version, byte order, and what plain numbers do not have."""
    plain = len(state) == 8 and state[2:5] == (None, None, None)
    _demand(plain and isinstance(state[1], str) and state[1] in _BYTE_ORDERS, 'an unknown dtype')
    return np.dtype(np.bool_ if made.code == 'b1' else '<' + made.code)


def _contents(state: Tuple[Any, ...]) -> np.ndarray:
    """`(1, shape, dtype, in Fortran's order, bytes)`."""
    _demand(len(state) == 5, 'damaged array')
    _, shape, dtype, reverse, data = state
    _demand(
        isinstance(dtype, _Type) and dtype.known is not None and isinstance(data, bytes) and
        isinstance(reverse, bool), 'damaged array')
    dims = _shape(shape)
    _demand(math.prod(dims) * dtype.known.itemsize == len(data), 'an array of another size')
    try:
        return np.frombuffer(data, dtype.known).reshape(dims, order='F' if reverse else 'C')
    except ValueError as error:  # no data, and dims that numpy cannot count
        raise _Refused('an array of another size') from error


def _shape(given: Any) -> Tuple[int, ...]:
    _demand(isinstance(given, tuple) and len(given) <= _MOST_DIMS, 'a shape that is none')
    _demand(all(type(d) is int and 0 <= d < 2**63 for d in given), 'a shape that is none')
    return given


def _text(given: Any) -> str:
    _demand(isinstance(given, str), 'a name that is no text')
    return given


def _demand(holds: Any, otherwise: str) -> None:
    if not holds:
        raise _Refused(otherwise)
