"""What the variables of a rewritten program are called.

A name of the user's stands for what it stood for, or is gone: whoever asks for it, by whatever path, is told by Paddle that
there is no such variable. So what is given back before the end, or lives in one memory with others, gets a name that is
nobody's. Only the main block's variables can be asked for; in inner blocks a storage is called after its last tenant.

Loops and branches and their gradients find much by name at run time (2.6.2: X and X@GRAD inside, and the gradient of what a
loop both reads and writes under one name inside and outside). What an op with blocks names keeps its name, or gets a new one
together with its gradient, in all blocks at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Mapping, MutableSequence, Sequence, Set, Tuple

from paddle.base.proto import framework_pb2

from transpiler.analysis.positions import spans
from transpiler.backends.paddle2.importer import ImportedProgram
from transpiler.ir import RELEASE, SHARE, Graph, Value, ValueKind
from transpiler.analysis.interference import named_by_regions

RELEASED, SHARED = '@released', '@shared'
# Attributes that list variables of the main block by name, and those that list what a block inside has.
NAME_LISTS = ('op_role_var', 'skip_eager_deletion_vars')
INNER_LISTS = ('original_output_grad',)
_GRADIENT = '@GRAD'


@dataclass
class Renamed:
    """New names by old ones: of variables of the main block, and of those that have them in all blocks."""

    in_main: Dict[str, str] = field(default_factory=dict)
    everywhere: Dict[str, str] = field(default_factory=dict)


@dataclass
class Names:
    """The name of each value, by id, and which value each storage is called after. `replaced` has the new names by those that
    are gone, `stands_for` the names that the new ones were made of. `emptied` are names that could not be replaced, of
    variables that are given back."""

    by_value: Dict[int, str]
    called_after: Dict[int, int]  # by storage
    replaced: Renamed = field(default_factory=Renamed)
    stands_for: Dict[str, str] = field(default_factory=dict)
    emptied: Set[str] = field(default_factory=set)

    def __getitem__(self, value: int) -> str:
        return self.by_value[value]

    def is_called_after(self, value: Value) -> bool:
        return self.called_after.get(value.storage, value.id) == value.id


def names_of(program: ImportedProgram, graph: Graph) -> Names:
    """Names for the values of `graph`, which was `program`."""
    names = _by_last_tenant(graph)
    taken = {v.name for block in program.message.blocks for v in block.vars}
    taken.update(names.by_value.values())
    fixed = named_by_regions(graph)
    emptied: Dict[str, Value] = {}
    for values, ending in _not_to_be_found(program, graph):
        old = names[values[0].id]
        if not fixed.isdisjoint(v.id for v in values):
            emptied.update({old: values[0]} if ending == RELEASED else {})
            continue
        new = _unused(old + ending, taken)
        taken.add(new)
        names.stands_for[new] = old
        for value in values:
            names.by_value[value.id] = new
            names.replaced.in_main[value.name] = new
    called = _Called(graph, names)
    for old, value in emptied.items():
        if names[value.id] == old and not _rename_everywhere(called, names, value, taken, emptied):
            names.emptied.add(old)
    return names


class _Called:
    """The values of a graph by what they are called; what gets a new name from then on is not found by it."""

    def __init__(self, graph: Graph, names: Names) -> None:
        self._names = names
        self._by_name: Dict[str, List[Value]] = {}
        for value in graph.values:
            self._by_name.setdefault(names[value.id], []).append(value)
        self._of_gradients = [v.name for v in graph.values if 2 * _GRADIENT in v.name]

    def any_of(self, names: Sequence[str]) -> List[Value]:
        """The values that are called one of `names`, by id."""
        found = (value for name in names for value in self._by_name.get(name, ())
                 if self._names[value.id] == name)
        return sorted(found, key=lambda value: value.id)

    def has_gradient(self, gradient: str) -> bool:
        """Whether something is the gradient of what that name of a gradient stands for."""
        return any(name.startswith(gradient + _GRADIENT) for name in self._of_gradients)


def _rename_everywhere(values: _Called, names: Names, emptied: Value, taken: Set[str],
                       all_emptied: Mapping[str, Value]) -> bool:
    """Gives what `emptied` and its gradient, or it and what it is the gradient of, are called a new name in all blocks: what
    the runtime makes of a name, it makes of the new one. Not where one of the two is to be found under its name."""
    old = names[emptied.id]
    root = old[:-len(_GRADIENT)] if old.endswith(_GRADIENT) else old
    pair = (root, root + _GRADIENT)
    called = values.any_of(pair)
    kept = any(v.may_be_asked_for for v in called)
    if root not in all_emptied and emptied.kind is not ValueKind.ARRAY:
        kept = kept or any(v.region == 0 and names[v.id] == root for v in called)
    if kept or values.has_gradient(pair[1]):
        return False
    new = _unused(root + RELEASED, taken, also=_GRADIENT)
    renamed = {root: new, pair[1]: new + _GRADIENT}
    taken.update(renamed.values())
    for value in called:
        name = names.by_value[value.id] = renamed[names[value.id]]
        names.stands_for[name] = root if name == new else pair[1]
        if value.region == 0:
            names.replaced.in_main[value.name] = name
    names.replaced.in_main.update(renamed)
    names.replaced.everywhere.update(renamed)
    return True


def rename_lists(op: framework_pb2.OpDesc, replaced: Renamed) -> None:
    """Puts new names into those attributes of `op` that name variables."""
    for attribute in op.attrs if replaced.in_main else ():
        if attribute.name in NAME_LISTS:
            _replace(attribute.strings, replaced.in_main)
        elif attribute.name in INNER_LISTS:
            _replace(attribute.strings, replaced.everywhere)
        elif attribute.type == framework_pb2.VAR:
            attribute.var_name = replaced.in_main.get(attribute.var_name, attribute.var_name)
        elif attribute.type == framework_pb2.VARS:
            _replace(attribute.vars_name, replaced.in_main)


def _by_last_tenant(graph: Graph) -> Names:
    names = Names({v.id: v.name for v in graph.values}, {})
    shared = graph.storage_members()
    found = spans(graph) if shared else {}
    for storage, members in shared.items():
        last = max(members, key=lambda v: (found[v].first, v))
        names.called_after[storage] = last
        for value in members:
            names.by_value[value] = graph.values[last].name
    return names


def _not_to_be_found(program: ImportedProgram,
                     graph: Graph) -> Iterator[Tuple[Sequence[Value], str]]:
    """The values of each storage of the main block whose name would not give what it gave, and the ending of a new one."""
    given_back = {
        graph.values[v].storage for op in graph.ops if op.kind == RELEASE for v in op.writes()
    }
    given_up = {
        graph.values[v].storage for op in graph.region_ops(0) if op.kind == SHARE
        for v in op.reads()
    }
    imported = program.graph.values
    members: Dict[int, List[Value]] = {}
    for value in graph.values:
        if value.region == 0:
            members.setdefault(value.storage, []).append(value)
    for storage, values in members.items():
        if any(v.known_outside for v in values):
            continue  # never released and never shared; the proof looks for their names
        from_inside = any(v.id < len(imported) and imported[v.id].region for v in values)
        if storage in given_back:
            yield values, RELEASED
        elif len({v.name for v in values}) > 1 or from_inside or storage in given_up:
            yield values, SHARED


def _unused(name: str, taken: Set[str], also: str = '') -> str:
    """`name`, or with a number behind it, so that nothing is called that, nor that with `also` behind it."""
    number, found = 1, name
    while found in taken or found + also in taken:
        number += 1
        found = f'{name}{number}'
    return found


def _replace(listed: MutableSequence[str], replaced: Mapping[str, str]) -> None:
    listed[:] = [replaced.get(name, name) for name in listed]
