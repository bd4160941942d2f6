"""What the variables of a rewritten program are called.

A name of the user's stands for what it stood for, or is gone: whoever asks for it, by whatever path, is told by Paddle that
there is no such variable. So what is given back before the end, or lives in one memory with others, gets a name that is
nobody's. Only the main block's variables can be asked for; in inner blocks a storage is called after its last tenant.

Loops and branches and their gradients find much by name at run time (2.6.2: X and X@GRAD inside, and the gradient of what a
loop both reads and writes under one name inside and outside). What an op with blocks names keeps its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Mapping, MutableSequence, Sequence, Set, Tuple

from paddle.base.proto import framework_pb2

from transpiler.analysis.positions import spans
from transpiler.ir import RELEASE, Graph, Value
from transpiler.passes.eligibility import named_by_regions
from transpiler.program_desc.importer import ImportedProgram

RELEASED, SHARED = '@released', '@shared'
# Attributes that list variables of the main block by name.
NAME_LISTS = ('op_role_var', 'skip_eager_deletion_vars')


@dataclass
class Names:
    """The name of each value, by id, and which value each storage is called after. `replaced` has the new names by those of
    the main block that are gone, `stands_for` the names that the new ones were made of. `emptied` are names that could not
    be replaced, of variables that are given back."""

    by_value: Dict[int, str]
    called_after: Dict[int, int]  # by storage
    replaced: Dict[str, str] = field(default_factory=dict)
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
    for values, ending in _not_to_be_found(program, graph):
        old = names[values[0].id]
        if not fixed.isdisjoint(v.id for v in values):
            names.emptied.update([old] if ending == RELEASED else ())
            continue
        new = _unused(old + ending, taken)
        taken.add(new)
        names.stands_for[new] = old
        for value in values:
            names.by_value[value.id] = new
            names.replaced[value.name] = new
    return names


def rename_lists(op: framework_pb2.OpDesc, replaced: Mapping[str, str]) -> None:
    """Puts new names into those attributes of `op` that name variables of the main block."""
    for attribute in op.attrs if replaced else ():
        if attribute.name in NAME_LISTS:
            _replace(attribute.strings, replaced)
        elif attribute.type == framework_pb2.VAR:
            attribute.var_name = replaced.get(attribute.var_name, attribute.var_name)
        elif attribute.type == framework_pb2.VARS:
            _replace(attribute.vars_name, replaced)


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
    imported = program.graph.values
    members: Dict[int, List[Value]] = {}
    for value in graph.values:
        if value.region == 0:
            members.setdefault(value.storage, []).append(value)
    for storage, values in members.items():
        if any(v.fed or v.fetched or v.persistable for v in values):
            continue  # never released and never shared; the proof looks for their names
        from_inside = any(v.id < len(imported) and imported[v.id].region for v in values)
        if storage in given_back:
            yield values, RELEASED
        elif len({v.name for v in values}) > 1 or from_inside:
            yield values, SHARED


def _unused(name: str, taken: Set[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f'{name}{number}'
    return found


def _replace(listed: MutableSequence[str], replaced: Mapping[str, str]) -> None:
    listed[:] = [replaced.get(name, name) for name in listed]
