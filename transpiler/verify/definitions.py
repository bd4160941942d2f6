"""Definitions: what the verifier knows of the contents of a cell, and what they look like."""

from __future__ import annotations

from typing import Dict, FrozenSet, Hashable, List, Optional, Tuple

from transpiler.ir import Graph, Value

Definition = Tuple[Hashable, ...]
Cells = Dict[int, FrozenSet[Definition]]  # storage -> definitions that may be in it
Observations = Dict[Tuple, FrozenSet[Definition]]  # (origin op, operand position) -> what it sees


def released(definition: Definition) -> Definition:
    return definition if definition[0] in ('released', 'bare') else ('released', *definition)


def with_shape(definition: Definition) -> Definition:
    """What the memory held whose data is gone, and whose shape is not."""
    return definition[1:] if definition[0] == 'released' else definition


def same_shapes(old: Graph, definitions: FrozenSet[Definition]) -> bool:
    """Whether a reader of the shape alone can't tell these definitions apart."""
    looks = set()
    for definition in definitions:
        value = _defined_value(old, definition)
        if value is None or value.extent is None:
            return False
        looks.add((value.extent, value.dtype, value.lod_level))
    return len(looks) == 1


def _defined_value(old: Graph, definition: Definition) -> Optional[Value]:
    if definition[0] == 'released':
        return _defined_value(old, definition[1:])
    if definition[0] == 'final':
        return _defined_value(old, definition[2:])
    if definition[0] == 'initial':
        named = [v for v in old.values if v.name == definition[1]]
        return named[0] if len({v.extent for v in named}) == 1 else None
    if definition[0] == 'partial':  # as large as the whole sum
        return old.values[old.ops[definition[1]].results[0]]
    if not isinstance(definition[0], int):
        return None
    if definition[1] != 'result':
        return old.values[old.ops[definition[0]].results[definition[1]]]
    region = next(r for r in old.regions if r.op == definition[0] and r.results)
    return old.values[region.results[definition[2]][1]]


def describe(old: Graph, definitions: FrozenSet[Definition]) -> str:
    names: List[str] = []
    for definition in sorted(definitions, key=repr):
        if definition[0] == 'initial':
            names.append(f'the initial {definition[1]!r}')
        elif not isinstance(definition[0], int):
            names.append(f'memory that was {definition[0]}')
        elif definition[1] == 'result':
            names.append(f'what the region of op {definition[0]} hands out')
        else:
            op = old.ops[definition[0]]
            names.append(
                f'{old.values[op.results[definition[1]]].name!r} of {op.kind} (op {op.id})')
    return ', '.join(names) or 'nothing'
