"""Reading and replacing the contents of a live `paddle.static.Program`."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Set

import paddle
from paddle.base import core, framework
from paddle.base.proto import framework_pb2

from transpiler.errors import InvalidProgramError, MergedVariableError
from transpiler.program_desc.emitter import ROLE, EmittedProgram
from transpiler.program_desc.importer import CALL_STACK, source_line

_TENSOR = core.VarDesc.VarType.LOD_TENSOR
_MERGED = '_merged_variables'
_RELEASED = ''  # given back, to nobody in particular
_NOWHERE = -1
_POINTERS = (framework_pb2.BLOCK, framework_pb2.BLOCKS, framework_pb2.VAR, framework_pb2.VARS)


def message_of(program: Any) -> framework_pb2.ProgramDesc:
    """The desc of `program`; raises InvalidProgramError if it is no static-graph program.

    Block by block: Paddle's serialization of the whole copies it first. The versions of operators, which only saving notes,
    are left out, and of call stacks, which are most of a program, all but the one line that is looked at.
    """
    if isinstance(program, paddle.static.CompiledProgram):
        raise InvalidProgramError(
            'memory_optimize takes a paddle.static.Program: call it before CompiledProgram(program)'
        )
    if not isinstance(program, framework.Program):
        raise InvalidProgramError(
            f'memory_optimize takes a paddle.static.Program, not {type(program).__name__}')
    message = framework_pb2.ProgramDesc()
    message.version.version = program.desc._version()
    for index in range(program.desc.num_blocks()):
        block = message.blocks.add()
        block.MergeFromString(program.desc.block(index).serialize_to_string())
        _shorten_call_stacks(block)
    return message


def _shorten_call_stacks(block: framework_pb2.BlockDesc) -> None:
    for op in block.ops:
        for attribute in op.attrs:
            if attribute.name == CALL_STACK:
                attribute.strings[:] = [source_line(attribute.strings)]


def replace_contents(program: framework.Program, emitted: EmittedProgram) -> None:
    """Makes `program` the emitted one, in place; variables and ops that remain stay the objects they are.

    Ops that were there are copied inside Paddle, and renamed: from bytes, it would read and free all their call stacks.
    Fetching a name that was merged away or released raises from now on, from clones too.
    """
    added = _added(program, emitted)
    source = core.ProgramDesc(added.SerializeToString())
    for block, message, new in zip(program.blocks, emitted.message.blocks, added.blocks):
        _remove_variables(block, {v.name for v in message.vars})
        for variable in new.vars:
            _add_variable(block, source.block(block.idx).find_var(variable.name.encode()))
    sizes = [block.desc.op_size() for block in program.blocks]
    for block in program.blocks:
        _append_ops(block, emitted, source.block(block.idx))
    for block, size in zip(program.blocks, sizes):
        if emitted.origins[block.idx]:
            block.desc._remove_op(0, size)
            _wrap_ops(block, emitted)
    gone = {name: _RELEASED for name in emitted.released}
    _guard(program, {**merged_variables(program), **gone, **emitted.merged})


def _added(program: framework.Program, emitted: EmittedProgram) -> framework_pb2.ProgramDesc:
    """What `program` does not have of the emitted one: variables and ops, by block."""
    added = framework_pb2.ProgramDesc()
    for old, new, origins in zip(program.blocks, emitted.message.blocks, emitted.origins):
        block = added.blocks.add(idx=new.idx, parent_idx=new.parent_idx)
        block.vars.extend(v for v in new.vars if not old.desc.has_var(v.name.encode()))
        block.ops.extend(op for op, origin in zip(new.ops, origins) if origin is None)
    return added


def _remove_variables(block: framework.Block, kept: Set[str]) -> None:
    for desc in block.desc.all_vars():
        if desc.name() not in kept:
            _remove_variable(block, desc)


def _remove_variable(block: framework.Block, desc: core.VarDesc) -> None:
    """What the user may still hold of it keeps a desc: Paddle frees the one in the block."""
    name = desc.name()
    held = block.vars.pop(name, None)
    if held is not None:
        held.desc = core.VarDesc(name)
        held.desc.set_type(desc.type())
        if desc.type() == _TENSOR:
            held.desc.set_shape(desc.shape())
            held.desc.set_dtype(desc.dtype())
    block.desc._remove_var(name.encode())


def _add_variable(block: framework.Block, desc: core.VarDesc) -> None:
    tensor: Dict[str, Any] = {}
    if desc.type() == _TENSOR:
        tensor = {'shape': desc.shape(), 'dtype': desc.dtype(), 'lod_level': desc.lod_level()}
    block.create_var(name=desc.name(), type=desc.type(), persistable=desc.persistable(), **tensor)


def _append_ops(block: framework.Block, emitted: EmittedProgram, added: core.BlockDesc) -> None:
    """Puts the emitted ops behind those that the block has, of which they may be copies."""
    origins, new = emitted.origins[block.idx], map(added.op, range(added.op_size()))
    for op, origin in zip(emitted.message.blocks[block.idx].ops, origins):
        desc = block.desc.append_op()
        if origin is None:
            desc.copy_from(next(new))
        else:
            home, position = emitted.places[origin]
            desc.copy_from(block.program.block(home).desc.op(position))
            _rename(desc, op)
            if origin in emitted.cloned:
                _set_role(desc, op)
        for attribute in op.attrs:
            if attribute.type in _POINTERS:
                _point_home(desc, attribute, block)


def _rename(desc: core.OpDesc, op: framework_pb2.OpDesc) -> None:
    """Gives `desc` the arguments of `op`."""
    if desc.input_arg_names() != _arguments(op.inputs):
        for slot in op.inputs:
            desc.set_input(slot.parameter, list(slot.arguments))
    if desc.output_arg_names() != _arguments(op.outputs):
        for name in set(desc.output_names()).difference(slot.parameter for slot in op.outputs):
            desc.remove_output(name)
        for slot in op.outputs:
            desc.set_output(slot.parameter, list(slot.arguments))


def _arguments(slots: Iterable[framework_pb2.OpDesc.Var]) -> List[str]:
    return [name for slot in slots for name in slot.arguments]


def _set_role(desc: core.OpDesc, op: framework_pb2.OpDesc) -> None:
    for attribute in op.attrs:
        if attribute.name == ROLE:
            desc._set_int32_attr(ROLE, attribute.i)


def _wrap_ops(block: framework.Block, emitted: EmittedProgram) -> None:
    """Gives the ops of the block, whose descs are new, their objects: those that they had, or new ones."""
    for variable in block.vars.values():
        variable.op = None  # the one that makes it
    had = dict(enumerate(block.ops))
    block.ops.clear()
    for index, origin in enumerate(emitted.origins[block.idx]):
        desc = block.desc.op(index)
        home, position = emitted.places.get(origin, (block.idx, _NOWHERE))
        op = had.pop(position, None) if home == block.idx else None
        if op is None:
            op = framework.Operator(block=block, desc=desc)
        op.desc = desc
        for variable in filter(None, map(block.vars.get, desc.output_arg_names())):
            variable.op = variable.op or op
        block.ops.append(op)


def _point_home(desc: core.OpDesc, attribute: framework_pb2.OpDesc.Attr,
                block: framework.Block) -> None:
    """An attribute that is a block or a variable is a pointer into the block that it was copied from."""
    kind, name, blocks = attribute.type, attribute.name, block.program.desc
    if kind == framework_pb2.BLOCK:
        desc.set_block_attr(name, blocks.block(attribute.block_idx))
    elif kind == framework_pb2.BLOCKS:
        desc.set_blocks_attr(name, [blocks.block(i) for i in attribute.blocks_idx])
    elif kind == framework_pb2.VAR:
        desc.set_var_attr(name, block.desc.find_var_recursive(attribute.var_name.encode()))
    elif kind == framework_pb2.VARS:
        found = [block.desc.find_var_recursive(n.encode()) for n in attribute.vars_name]
        desc.set_vars_attr(name, found)


def merged_variables(program: framework.Program) -> Dict[str, str]:
    """Names whose contents an earlier call gave up, and the names that have their memory now, if any."""
    return dict(getattr(program, _MERGED, {}))


def _guard(program: framework.Program, merged: Dict[str, str]) -> None:
    if merged:
        program.__class__ = OptimizedProgram
        setattr(program, _MERGED, merged)
        for block in program.blocks:
            block.__class__ = _GuardedBlock


def _cannot_be_fetched(name: str, heir: str) -> str:
    what = f'gave its memory to {heir!r}' if heir else 'releases it after its last use'
    return (f'variable {name!r} cannot be fetched: memory_optimize {what}. Build the program again '
            f'and pass it in fetch_list: memory_optimize(program, fetch_list=[{name!r}, ...])')


class OptimizedProgram(framework.Program):
    """A Program that knows which of its variables gave their memory away.

    The executor clones a program and appends fetch ops to the clone; that is where a fetch of such a variable
    is caught, before it can fail with a message that says nothing of the cause.
    """

    def clone(self, for_test: bool = False) -> framework.Program:
        copy = super().clone(for_test)
        _guard(copy, merged_variables(self))
        return copy


class _GuardedBlock(framework.Block):

    def append_op(self, *args: Any, **kwargs: Any) -> framework.Operator:
        if kwargs.get('type') in ('fetch', 'fetch_v2'):
            merged = merged_variables(self.program)
            for variable in kwargs.get('inputs', {}).get('X', ()):
                name = variable if isinstance(variable, str) else variable.name
                if name in merged:
                    raise MergedVariableError(_cannot_be_fetched(name, merged[name]))
        return super().append_op(*args, **kwargs)
