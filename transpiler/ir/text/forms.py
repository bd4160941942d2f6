"""What printer and parser agree on: which fields are written how."""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Dict, FrozenSet, Mapping, Tuple, get_type_hints

from transpiler.ir.graph import Op, Region, Value

# Names that need no quotes.
PLAIN = re.compile(r'[A-Za-z_][\w.@]*')
# A dim may be of an input: N(words).
PLAIN_DIM = re.compile(rf'({PLAIN.pattern})(?:\(({PLAIN.pattern})\))?')
# Fields whose numbers are values, and are written as such.
REFERENCES: FrozenSet[str] = frozenset(
    {'storage', 'buffer', 'copy_of', 'arguments', 'results', 'when'})
# Fields that have a place of their own in the line.
PLACED: Mapping[type, FrozenSet[str]] = MappingProxyType({
    Value: frozenset('id name region dtype shape size'.split()),
    Op: frozenset('id kind operands results _accesses'.split()),
    Region: frozenset('id kind ops'.split()),
})


@lru_cache(maxsize=None)
def hints(kind: type) -> Mapping[str, Any]:
    """Types of the fields of a dataclass or NamedTuple, in their order."""
    return MappingProxyType(get_type_hints(kind))


def attributes(kind: type) -> Tuple[str, ...]:
    """Fields that are written as `name=value`."""
    placed = PLACED.get(kind, frozenset())
    return tuple(name for name in hints(kind) if name not in placed)


def defaults(thing: Any, **context: Any) -> Dict[str, Any]:
    """What each attribute of `thing` is when nobody says; `context` is what its place says."""
    if isinstance(thing, Value):
        fresh: Any = Value(thing.id, thing.name, thing.region)
    elif isinstance(thing, Op):
        fresh = Op(thing.id, thing.kind, context['region'])
    elif isinstance(thing, Region):
        fresh = Region(thing.id, thing.kind)
    else:
        return default_fields(type(thing))
    return {**{name: getattr(fresh, name) for name in attributes(type(thing))}, **context}


@lru_cache(maxsize=None)
def _fresh(kind: type) -> Any:
    return kind()


def default_fields(kind: type) -> Dict[str, Any]:
    """The same for facts, none of which has a default that depends on others; a NamedTuple has no defaults."""
    if issubclass(kind, tuple):
        return dict(getattr(kind, '_field_defaults'))
    return {name: getattr(_fresh(kind), name) for name in attributes(kind)}
