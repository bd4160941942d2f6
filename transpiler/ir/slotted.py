"""Dataclasses of which there are thousands."""

from __future__ import annotations

import dataclasses
from typing import Any, Tuple, Type, TypeVar

_T = TypeVar('_T')


def slotted(kind: Type[_T]) -> Type[_T]:
    """`kind`, a dataclass, whose objects have no dict of their own: they take a third. From Python 3.10 on `slots=True` does it."""
    names = tuple(f.name for f in dataclasses.fields(kind))
    left_out = {'__dict__', '__weakref__', *names}
    body = {name: each for name, each in vars(kind).items() if name not in left_out}
    return type(kind)(kind.__name__, kind.__bases__, {
        **body, '__slots__': names,
        '__reduce__': _made_anew
    })


def _made_anew(self: Any) -> Tuple[Any, Tuple[Any, ...]]:
    """For copies and pickles: where nothing can be set, they would fail on an object without a dict."""
    return type(self), tuple(getattr(self, name) for name in self.__slots__)
