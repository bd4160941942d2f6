"""From a graph to text."""

from __future__ import annotations

import enum
import json
from collections import Counter
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union, get_args, get_origin

from transpiler.ir.graph import Graph, Op, Region, Value
from transpiler.ir.size import Size
from transpiler.ir.text.forms import PLAIN, PLAIN_DIM, REFERENCES, attributes, defaults, hints

_INDENT = '  '


def printed(graph: Graph) -> str:
    """All of `graph`: what no region names any more, too."""
    return '\n'.join(_Printer(graph).lines()) + '\n'


class _Printer:

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        names = Counter(v.name for v in graph.values)
        self._handles = {v.id: _handle(v, names[v.name] > 1) for v in graph.values}
        self._values: Dict[int, List[Value]] = {}
        for value in graph.values:
            self._values.setdefault(value.region, []).append(value)
        self._done: Set[int] = set()  # regions

    def lines(self) -> Iterator[str]:
        for region in self._graph.regions:
            if region.id not in self._done and not self._stands_in_an_op(region):
                yield from self._region(region, -1, -1, '')
        for region in self._graph.regions:
            if region.id not in self._done:
                yield from self._region(region, -1, -1, '')
        listed = {op for region in self._graph.regions for op in region.ops}
        lost = [op for op in self._graph.ops if op.id not in listed]
        if lost:
            yield 'lost {'
            for op in lost:
                yield _INDENT + self._op_head(op, -1, op.regions)
            yield '}'

    def _stands_in_an_op(self, region: Region) -> bool:
        """Whether the op that runs it is in a region itself, and says so."""
        if not 0 <= region.op < len(self._graph.ops):
            return False
        op = self._graph.ops[region.op]
        return (region.id in op.regions and 0 <= op.region < len(self._graph.regions) and
                op.id in self._graph.regions[op.region].ops)

    def _region(self, region: Region, op: int, parent: int, indent: str) -> Iterator[str]:
        self._done.add(region.id)
        kind = region.kind.name.lower()
        head = [f'region {region.id} {kind}', *self._attributes(region, op=op, parent=parent)]
        yield indent + ' '.join(head) + ' {'
        deeper = indent + _INDENT
        for value in self._values.get(region.id, ()):
            yield deeper + self._value(value)
        for inner in self._graph.region_ops(region.id):
            yield from self._op(inner, region.id, deeper)
        yield indent + '}'

    def _op(self, op: Op, region: int, indent: str) -> Iterator[str]:
        regions = [self._graph.regions[r] for r in op.regions]
        nested = all(r.op == op.id and r.id not in self._done for r in regions)
        if not regions or not nested or len(set(op.regions)) < len(regions):
            yield indent + self._op_head(op, region, op.regions)
            return
        yield indent + self._op_head(op, region, ()) + ' {'
        for inner in regions:
            yield from self._region(inner, op.id, region, indent + _INDENT)
        yield indent + '}'

    def _op_head(self, op: Op, region: int, regions: Tuple[int, ...]) -> str:
        made = f' -> {self._references(op.results)}' if op.results else ''
        head = f'op {op.id} {_name(op.kind)}({self._references(op.operands)}){made}'
        # Regions that stand in it are not listed.
        context = {'region': region, 'regions': () if regions else op.regions}
        return ' '.join([head, *self._attributes(op, **context)])

    def _value(self, value: Value) -> str:
        shape = '?' if value.shape is None else ', '.join(map(size_text, value.shape))
        size = '?' if value.size is None else size_text(value.size)
        dtype = _name(value.dtype) if value.dtype else ''
        head = f'value {value.id} {self._handles[value.id]}: {dtype}[{shape}] {size} bytes'
        return ' '.join([head, *self._attributes(value)])

    def _references(self, values: Sequence[int]) -> str:
        return ', '.join(map(self._reference, values))

    def _reference(self, value: int) -> str:
        return '-' if value < 0 else self._handles[value]

    def _attributes(self, thing: Any, **context: Any) -> Iterator[str]:
        """Fields that are not as they mostly are."""
        mostly, types = defaults(thing, **context), hints(type(thing))
        for name in attributes(type(thing)):
            value = getattr(thing, name)
            if name in mostly and _same(value, mostly[name]):
                continue
            if value is True:
                yield name
            else:
                yield f'{name}={self._literal(value, types[name], name in REFERENCES)}'

    def _literal(self, value: Any, hint: Any, references: bool) -> str:
        inner = _element_types(value, hint)
        if inner is not None:
            parts = [self._literal(v, t, references) for v, t in inner]
            return '[' + ', '.join(sorted(parts) if isinstance(value, frozenset) else parts) + ']'
        if isinstance(value, enum.Enum):
            return value.name.lower()
        if isinstance(value, bool) or value is None:
            return str(value).lower()
        if isinstance(value, Size):
            return size_text(value)
        if isinstance(value, int):
            return self._reference(value) if references else str(value)
        if isinstance(value, float):
            return repr(value)
        if isinstance(value, str):
            return json.dumps(value)
        return '(' + ' '.join(self._attributes(value)) + ')'


def _same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and value == other


def _element_types(value: Any, hint: Any) -> Optional[List[Tuple[Any, Any]]]:
    """Elements of a tuple or set with what they are declared as; None for anything else."""
    if get_origin(hint) is Union:
        hint = next(t for t in get_args(hint) if t is not type(None))
    if get_origin(hint) not in (tuple, frozenset) or value is None:
        return None
    types = get_args(hint)
    if len(types) == 1 or types[1] is Ellipsis:
        return [(v, types[0]) for v in value]
    return list(zip(value, types))


def _handle(value: Value, shared: bool) -> str:
    return f"%{_name(value.name)}'{value.id}" if shared else f'%{_name(value.name)}'


def _name(text: str) -> str:
    return text if PLAIN.fullmatch(text) else json.dumps(text)


def size_text(size: Size) -> str:
    """A polynomial, its dims in quotes where their names are odd."""
    return size.text(lambda dim: dim if PLAIN_DIM.fullmatch(dim) else json.dumps(dim))
