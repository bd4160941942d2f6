"""What graphs do not show, of a program that was written: attributes, types, declarations."""

from __future__ import annotations

from typing import Any, Container, Dict, List, Mapping, Tuple

from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.importer import ImportedProgram
from transpiler.backends.paddle3.naming import COMBINE
from transpiler.backends.paddle3.marks import without_mark
from transpiler.errors import VerificationError

# Who made an op.
_OF_MAKING = frozenset({'op_callstack'})


def check_frame(before: ImportedProgram,
                after: ImportedProgram,
                origins: Mapping[int, int],
                spare: int,
                added: Container[int] = frozenset()) -> None:
    """Raises VerificationError unless every op of `after`, but those with an id in `added`, is what it stands for, but for what
    it reads."""
    for new, handle in after.handles.items():
        if handle.op.id() in added and new not in origins:
            continue  # whoever read it has looked at it
        if new not in origins:
            raise VerificationError(f'{handle.op.name()} was added and stands for nothing')
        source = before.handles[origins[new]]
        if _looks(source.op) != _looks(handle.op):
            raise VerificationError(
                f'{handle.op.name()} has other attributes or results than what it stands for')
        shapes = [[len(slot) for slot in each.operands + each.results] for each in (source, handle)]
        if shapes[0] != shapes[1]:
            raise VerificationError(f'{handle.op.name()} reads or makes another number of values')
    check_lists(after.program.global_block())
    there = _declared(before)
    if (_declared(after)[:len(there)] != there or len(after.declarations) != len(there) + spare):
        raise VerificationError('an input, parameter or state was lost, added or moved')


def check_lists(block: Any) -> None:
    """Raises VerificationError unless the members of a list are as they were where it was made: the executor takes them for read there,
    and may have worked in place on one that nobody but an op in between has named."""
    made: Dict[int, int] = {}  # by id of an op: where it stands
    named: Dict[str, int] = {}  # by value: where it was named last
    for at, op in enumerate(block.ops):
        made[op.id()] = at
        read = [v for v in op.operands_source() if v.initialized()]
        for maker in (v.get_defining_op() for v in read if v.is_combine()):
            members = maker.operands_source() if maker and maker.name() == COMBINE else ()
            if any(named.get(v.id, -1) > made.get(maker.id(), at) for v in members):
                raise VerificationError(
                    f'{op.name()} reads a list with a member that was named since it was made')
        if op.name() != COMBINE:
            named.update((v.id, at) for v in read)
        for inner in op.blocks():
            check_lists(inner)


def _declared(imported: ImportedProgram) -> List[Tuple[Any, ...]]:
    return [_looks(op) for op in imported.declarations]


def _looks(op: Any) -> Tuple[Any, ...]:
    return (op.name(), op.num_operands(), _attributes(op), [_type(v) for v in op.results()])


def _attributes(op: Any) -> Dict[str, str]:
    given = without_mark(given_attributes(op))
    return {name: repr(value) for name, value in given.items() if name not in _OF_MAKING}


def _type(value: Any) -> Tuple[Any, ...]:
    if not value.initialized():
        return ()
    if not value.is_dense_tensor_type():
        return (value.is_combine(), value.is_selected_row_type())
    return (value.dtype, tuple(value.shape), value.persistable)
