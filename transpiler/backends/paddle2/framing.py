"""What a message says that its graph does not show: declarations, slots, attributes, and where releases find nothing to hold.

The graph is what is proved equal; here it is made sure that the runtime will read the new message as that graph. Nothing is
shared with what writes it but names.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import ROLE, named_by, read_by, role_of, written_by
from transpiler.backends.paddle2.importer import (EMPTY_ARRAY, FIRST_TYPE, NEVER_WRITTEN,
                                                  ImportedProgram, is_forget, is_release,
                                                  type_of_empty)
from transpiler.backends.paddle2.naming import Renamed, rename_lists
from transpiler.backends.paddle2.registry import EMPTY_NAME
from transpiler.backends.paddle2.rows import ROW_SUM, ROW_SUM_ATTRIBUTES, row_attributes, row_number_attributes
from transpiler.errors import VerificationError
from transpiler.ir import FORGET, MEMORY_KINDS, MOVE, RELEASE, SHARE, UNCOPIED, Meaning, Op, ValueKind, leaves_out
from transpiler.ir.dtypes import ROW_NUMBER

_Block = framework_pb2.BlockDesc
_Desc = framework_pb2.OpDesc
_Attributes = Mapping[str, object]
_ONEDNN = 'use_mkldnn'
_BACKWARD = 1
_Type = framework_pb2.VarType.Type
_FP32, _TENSOR, _ARRAY = (framework_pb2.VarType.FP32, framework_pb2.VarType.LOD_TENSOR,
                          framework_pb2.VarType.LOD_TENSOR_ARRAY)
_FIELDS = MappingProxyType({
    framework_pb2.INT: 'i',
    framework_pb2.FLOAT: 'f',
    framework_pb2.STRING: 's',
    framework_pb2.BOOLEAN: 'b',
    framework_pb2.BOOLEANS: 'bools',
    framework_pb2.INTS: 'ints',
    framework_pb2.LONGS: 'longs'
})


def check_blocks(old: framework_pb2.ProgramDesc, new: framework_pb2.ProgramDesc) -> None:
    """Raises VerificationError unless the blocks of the two stand around each other in the same way."""
    if [(b.idx, b.parent_idx, b.forward_block_idx) for b in old.blocks
       ] != [(b.idx, b.parent_idx, b.forward_block_idx) for b in new.blocks]:
        raise VerificationError('the blocks are others than before')
    if (old.version, old.op_version_map) != (new.version, new.op_version_map):
        raise VerificationError('the version is another than before')


def check_frame(program: ImportedProgram,
                again: ImportedProgram,
                origins: Mapping[int, int],
                renamed: Renamed = Renamed()) -> None:
    """Raises VerificationError unless the message of `again`, read again, declares and says what that of `program` does.

    Args:
        program: as it was.
        again: what was written, read again.
        origins: op of `program` for each op of `again` that stands for one.
        renamed: the new names, by the old ones, of variables that attributes may list.
    """
    old, new = program.message, again.message
    everywhere: Dict[str, List[framework_pb2.VarDesc]] = {}
    for block in old.blocks:
        for variable in block.vars:
            everywhere.setdefault(variable.name, []).append(variable)
    ends_gradients = bool(again.done - program.done)
    for before, after in zip(old.blocks, new.blocks):
        _check_declarations(before, after, everywhere, ends_gradients)
        _check_emptiness(after)
    missing = _undeclared(new) - _undeclared(old)
    if missing:
        raise VerificationError(f'variable {sorted(missing)[0]!r} is not declared')
    for op in again.graph.ops:
        if op.id in origins:
            _check_kept(program, again, program.graph.ops[origins[op.id]], op, renamed)
        else:
            _check_added(again, op)
    _check_roles(program, again, origins)


def _check_declarations(before: _Block, after: _Block,
                        everywhere: Mapping[str, List[framework_pb2.VarDesc]],
                        ends_gradients: bool) -> None:
    """A name that was there is declared as it was; one that is new is nobody's parameter."""
    had = {v.name: v for v in before.vars}
    for name, count in Counter(v.name for v in after.vars).items():
        if count > 1 and count > sum(v.name == name for v in before.vars):
            raise VerificationError(f'variable {name!r} is declared twice')
    for variable in after.vars:
        name = variable.name
        if name in had:
            same = variable == _expected(had[name], ends_gradients)
        elif name in (EMPTY_ARRAY, NEVER_WRITTEN) or type_of_empty(name):
            same = variable == _expected(_empty(name), ends_gradients)
        else:
            twins = everywhere.get(name, ())
            same = not (variable.persistable or variable.is_parameter or
                        variable.need_check_feed) and (not twins or any(
                            _without_flags(t) == _without_flags(variable) for t in twins))
        if not same:
            raise VerificationError(f'variable {name!r} is declared otherwise than before')
    gone = {v.name for v in before.vars if v.persistable} - {v.name for v in after.vars}
    if gone:
        raise VerificationError(f'variable {sorted(gone)[0]!r} is gone')


def _expected(had: framework_pb2.VarDesc, ends_gradients: bool) -> framework_pb2.VarDesc:
    """How what was declared as `had` is to be declared: what memory is given to has no gradient any more."""
    found = framework_pb2.VarDesc()
    found.CopyFrom(had)
    if ends_gradients and not had.persistable and had.type.type in (_TENSOR, _ARRAY):
        found.stop_gradient = True
    return found


def _without_flags(variable: framework_pb2.VarDesc) -> framework_pb2.VarDesc:
    """It moved to another block: nobody but ops looks for it there."""
    found = framework_pb2.VarDesc()
    found.CopyFrom(variable)
    for flag in ('persistable', 'is_parameter', 'stop_gradient', 'need_check_feed'):
        found.ClearField(flag)
    return found


def _empty(name: str) -> framework_pb2.VarDesc:
    """How the tensor, and the array, without elements are declared."""
    variable = framework_pb2.VarDesc(name=name)
    if name == EMPTY_ARRAY:
        variable.type.type = _ARRAY
        variable.type.tensor_array.tensor.data_type = _FP32
        return variable
    variable.type.type = _TENSOR
    variable.type.lod_tensor.tensor.data_type = _Type.Value(type_of_empty(name) or FIRST_TYPE)
    variable.type.lod_tensor.tensor.dims.append(0)
    return variable


def _undeclared(message: framework_pb2.ProgramDesc) -> Set[str]:
    """Names that ops use, and no block around them declares."""
    found: Set[str] = set()
    declared = [{v.name for v in block.vars} for block in message.blocks]
    for block in message.blocks:
        named = set(named_by(*block.ops)) - declared[0]  # the main block is around all others
        for scope in _scopes(message, block.idx):
            if not named:
                break
            named -= declared[scope]
        found |= named
    return found - {EMPTY_NAME}


def _scopes(message: framework_pb2.ProgramDesc, index: int) -> Iterator[int]:
    """Blocks in which a name of block `index` is looked up."""
    seen: Set[int] = set()
    pending = [index]
    while pending:
        index = pending.pop()
        if 0 <= index < len(message.blocks) and index not in seen:
            seen.add(index)
            yield index
            block = message.blocks[index]
            pending += [block.parent_idx, block.forward_block_idx]


def _check_emptiness(block: _Block) -> None:
    """What releases take the place of a buffer from is made before them, in their own block, once and empty."""
    declared = {v.name for v in block.vars}
    made: Set[str] = set()
    for op in block.ops:
        read, written = set(read_by(op)), set(written_by(op))
        empty = set(filter(type_of_empty, written))
        if EMPTY_ARRAY in written or empty & made or (empty and not _makes_empty(op)):
            raise VerificationError(f'{op.type} would write what releases need empty')
        made |= empty
        if NEVER_WRITTEN in written or (NEVER_WRITTEN in read and not is_forget(op)):
            raise VerificationError(f'{op.type} would touch what never has anything in it')
        for name in (n for n in read if n == EMPTY_ARRAY or type_of_empty(n)):
            if not (name in made | {EMPTY_ARRAY} and name in declared and is_release(op)):
                raise VerificationError(f'{op.type} would read {name!r} before it is made')


def _makes_empty(op: _Desc) -> bool:
    said = _said(op)
    return (op.type == 'fill_constant' and not op.inputs and _slots(op.outputs) == [('Out', 1)] and
            said == {
                'shape': [0],
                'dtype': _Type.Value(type_of_empty(op.outputs[0].arguments[0])),
                'value': 0.0
            })


def _check_kept(program: ImportedProgram, again: ImportedProgram, old: Op, new: Op,
                renamed: Renamed) -> None:
    """The same slots, the same attributes, and variables of the same types."""
    before, after = program.descs[old.id], again.descs[new.id]
    if old.facts.left_fold and new.facts.means is Meaning.ROWS_ADDED:
        _check_row_sum(program, again, old, new)
        return
    is_part = old.facts.left_fold and len(new.operands) < len(old.operands)
    slots = [_slots(before.inputs), _slots(before.outputs)]
    if is_part:
        slots[0] = [(slots[0][0][0], len(new.operands)), *slots[0][1:]]
    # Paddle, which reads slots by name, puts those of a program that it reads in the order of their names.
    now = [_slots(after.inputs), _slots(after.outputs)]
    if (slots != now and
        [*map(sorted, slots)] != [*map(sorted, now)]) or before.is_target != after.is_target:
        raise VerificationError(f'{before.type} has other slots than before')
    expected = _Desc()
    expected.CopyFrom(before)
    rename_lists(expected, renamed)
    if expected.attrs != after.attrs and _without_role(expected) != _without_role(after):
        raise VerificationError(f'{before.type} has other attributes than before')
    pairs = list(zip(old.results, new.results))
    pairs += [] if is_part else zip(old.operands, new.operands)
    left_out = leaves_out(old, new)
    for had, has in pairs:
        if has < 0 <= had and left_out:
            continue
        if (had < 0) != (has < 0):
            raise VerificationError(f'{before.type} has an argument more or less than before')
        if has >= 0 and _looks(program, had) != _looks(again, has):
            raise VerificationError(
                f'{again.graph.values[has].name!r} of {before.type} is declared '
                'as another type of variable')


def _check_row_sum(program: ImportedProgram, again: ImportedProgram, old: Op, new: Op) -> None:
    """A step of a sum, by rows: the operands are what the proof takes them for, and nothing else is said."""
    desc = again.descs[new.id]
    slots = [_slots(desc.inputs), _slots(desc.outputs)]
    looks = [_looks(again, v) for v in new.operands + new.results]
    sum_looks = _looks(program, old.results[0])
    if (slots != [[('X', 1), ('AddValue', 1), ('Index', 1)], [('Out', 1)]] or
            desc.type != ROW_SUM or _said(desc) != ROW_SUM_ATTRIBUTES or
            looks != [sum_looks, sum_looks, (ValueKind.DENSE, ROW_NUMBER[0]), sum_looks]):
        raise VerificationError(
            f'the {desc.type} that adds rows for {old.kind} does something else')


def _looks(program: ImportedProgram, value: int) -> Tuple:
    facts = program.graph.values[value]
    return facts.kind, facts.dtype


def _check_roles(program: ImportedProgram, again: ImportedProgram, origins: Mapping[int,
                                                                                    int]) -> None:
    """A clone may count as part of the backward, so that clone(for_test=True) takes it out; one of them is what it was."""
    roles: Dict[int, Set[Optional[int]]] = {}
    # Those are written anew, each time.
    kept = (
        (new, old) for new, old in origins.items() if again.graph.ops[new].kind not in MEMORY_KINDS)
    for new, old in kept:
        roles.setdefault(old, set()).add(role_of(again.descs[new]))
    for old, found in roles.items():
        role = role_of(program.descs[old])
        if role not in found or not found <= {role, _BACKWARD}:
            raise VerificationError(f'{program.descs[old].type} has another role than before')


def _check_added(again: ImportedProgram, op: Op) -> None:
    """An added op says no more and nothing else than the graph takes it for."""
    expected = _ADDED.get(op.kind)
    if expected is None:
        raise VerificationError(f'an operator {op.kind} was added')
    desc = again.descs[op.id]
    slots = [s.parameter for s in desc.inputs], [s.parameter for s in desc.outputs]
    if (slots not in _SLOTS[op.kind]) or not expected(again, op, _said(desc)) or desc.is_target:
        raise VerificationError(f'the {desc.type} that was added for {op.kind} does something else')


def _is_plain(_again: ImportedProgram, _op: Op, said: _Attributes) -> bool:
    return not said


def _is_release_or_share(again: ImportedProgram, op: Op, said: _Attributes) -> bool:
    desc = again.descs[op.id]
    if desc.type == 'assign':
        return not said and len(op.results) == 1
    flags = said.get('share_dims_and_dtype', [])
    one_for_each = len(desc.inputs[0].arguments) == len(op.results) == len(flags)
    shape = {SHARE: {False}, MOVE: {True}}.get(op.kind, {False, True})
    if not _keeps_types(again, op) if op.kind == RELEASE else op.operands != _order_operands(
            again, op):
        return False
    return one_for_each and said.keys() == {'share_dims_and_dtype'} and shape >= set(flags)


def _keeps_types(again: ImportedProgram, op: Op) -> bool:
    """What is released gets the type of the tensor without elements: it has to be that which it had, if its shape is read."""
    dtype = type_of_empty(again.descs[op.id].inputs[0].arguments[0])
    released, shaped = (again.graph.values[v] for v in op.results), again.shapes_read
    return all(v.dtype == dtype for v in released if v.storage in shaped)


def _forgets(again: ImportedProgram, op: Op, said: _Attributes) -> bool:
    desc = again.descs[op.id]
    one = len(desc.inputs[0].arguments) == len(op.results) == 1
    return one and not desc.outputs[1].arguments and said == {'share_dims_and_dtype': [False]}


def _order_operands(again: ImportedProgram, op: Op) -> Tuple[int, ...]:
    """What the third slot of a shared buffer names: the operands themselves, which orders it before the next op."""
    desc = again.descs[op.id]
    names = {again.graph.values[v].name: v for v in op.operands}
    return tuple(names.get(n, -1) for n in desc.outputs[1].arguments)


def _fills_one(again: ImportedProgram, op: Op, said: _Attributes) -> bool:
    if type_of_empty(again.descs[op.id].outputs[0].arguments[0]):
        return _makes_empty(again.descs[op.id])
    dtype = framework_pb2.VarType.Type.Value(again.graph.values[op.results[0]].dtype)
    return said == {
        'shape': [1],
        'dtype': dtype,
        'value': said.get('value'),
        'str_value': repr(op.facts.fills)
    } and _same_looks(again, op)


def _fills_like(again: ImportedProgram, op: Op, said: _Attributes) -> bool:
    return said == {'value': op.facts.fills, 'dtype': -1} and _same_looks(again, op)


def _casts(again: ImportedProgram, op: Op, said: _Attributes) -> bool:
    """The kernel goes by the attributes, the proof by the declarations."""
    types = [
        framework_pb2.VarType.Type.Value(again.graph.values[v].dtype)
        for v in op.operands + op.results
    ]
    return said == {'in_dtype': types[0], 'out_dtype': types[1]}


def _chooses(again: ImportedProgram, op: Op, said: _Attributes) -> bool:
    return not said and _same_looks(again, op, first=1)


def _divides(again: ImportedProgram, op: Op, said: _Attributes) -> bool:
    return said == {'axis': -1} and _same_looks(again, op)


def _takes_rows(again: ImportedProgram, op: Op, said: _Attributes) -> bool:
    return op.facts.rows is not None and said == row_attributes(*op.facts.rows) and _same_looks(
        again, op)


def _numbers_rows(again: ImportedProgram, op: Op, said: _Attributes) -> bool:
    return (op.facts.rows is not None and said == row_number_attributes(*op.facts.rows) and
            _looks(again, op.results[0]) == (ValueKind.DENSE, ROW_NUMBER[0]))


def _same_looks(again: ImportedProgram, op: Op, first: int = 0) -> bool:
    """Whether its operands, from the `first` on, and its result are tensors of one type."""
    return len({_looks(again, v) for v in op.operands[first:] + op.results}) == 1


_ADDED: Mapping[str, Callable[[ImportedProgram, Op, _Attributes], bool]] = MappingProxyType({
    RELEASE: _is_release_or_share,
    SHARE: _is_release_or_share,
    MOVE: _is_release_or_share,
    FORGET: _forgets,
    UNCOPIED: _is_plain,
    'read_from_array': _is_plain,
    'fill_constant': _fills_one,
    'fill_any_like': _fills_like,
    'cast': _casts,
    'where': _chooses,
    'elementwise_div': _divides,
    'slice': _takes_rows,
    'assign_value': _numbers_rows,
})
_SHAPE_SLOT = 'ShapeOf'
_BUFFERS = (['X'], ['Out', 'XOut'])
_SLOTS = MappingProxyType({
    RELEASE: (_BUFFERS, (['X', _SHAPE_SLOT], ['Out', 'XOut']), (['X'], ['Out'])),
    SHARE: (_BUFFERS,),
    MOVE: (_BUFFERS,),
    FORGET: (_BUFFERS,),
    UNCOPIED: ((['X', 'Dep'], ['Out']),),
    'read_from_array': ((['X', 'I'], ['Out']),),
    'fill_constant': (([], ['Out']),),
    'fill_any_like': ((['X'], ['Out']),),
    'cast': ((['X'], ['Out']),),
    'where': ((['Condition', 'X', 'Y'], ['Out']),),
    'elementwise_div': ((['X', 'Y'], ['Out']),),
    'slice': ((['Input'], ['Out']),),
    'assign_value': (([], ['Out']),),
})


def _slots(slots: List[_Desc.Var]) -> List[Tuple[str, int]]:
    return [(s.parameter, len(s.arguments)) for s in slots]


def _said(desc: _Desc) -> Dict[str, object]:
    """Its attributes but for its role, and but for oneDNN's where it is off, as it is unless said: Paddle writes that into some
    ops of programs that it reads. One of a type that none of ours has is its bytes."""
    found: Dict[str, object] = {}
    for attribute in desc.attrs:
        if attribute.name != ROLE and not (attribute.name == _ONEDNN and not attribute.b):
            field = _FIELDS.get(attribute.type)
            value = getattr(attribute, field) if field else attribute.SerializeToString()
            plain = isinstance(value, (bool, int, float, str, bytes))
            found[attribute.name] = value if plain else list(value)
    return found


def _without_role(desc: _Desc) -> List[_Desc.Attr]:
    return [a for a in desc.attrs if a.name != ROLE]
