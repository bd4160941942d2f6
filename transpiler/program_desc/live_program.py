"""Reading and replacing the contents of a live `paddle.static.Program`."""

from __future__ import annotations

from typing import Any, Dict

import paddle
from paddle.base import core, framework
from paddle.base.proto import framework_pb2

from transpiler.errors import InvalidProgramError, MergedVariableError
from transpiler.program_desc.emitter import EmittedProgram

_TENSOR = core.VarDesc.VarType.LOD_TENSOR
_MERGED = '_merged_variables'
_RELEASED = ''  # given back, to nobody in particular


def serialize(program: Any) -> bytes:
    """The desc of `program`; raises InvalidProgramError if it is no static-graph program.

    Block by block: Paddle's serialization of the whole copies it first. The versions of operators, which only saving notes,
    are left out.
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
        message.blocks.add().MergeFromString(program.desc.block(index).serialize_to_string())
    return message.SerializeToString()


def replace_contents(program: framework.Program, emitted: EmittedProgram) -> None:
    """Makes `program` the emitted one, in place; variables that remain stay the objects they are.

    Fetching a name that was merged away or released raises from now on, from clones too.
    """
    source = core.ProgramDesc(emitted.message.SerializeToString())
    for index, message in enumerate(emitted.message.blocks):
        _replace_variables(program.block(index), message, source.block(index))
    for index, message in enumerate(emitted.message.blocks):
        _replace_ops(program.block(index), message, source.block(index))
    gone = {name: _RELEASED for name in emitted.released}
    _guard(program, {**merged_variables(program), **gone, **emitted.merged})


def _replace_variables(block: framework.Block, message: framework_pb2.BlockDesc,
                       source: core.BlockDesc) -> None:
    kept = {v.name for v in message.vars}
    for desc in block.desc.all_vars():
        if desc.name() not in kept:
            _remove_variable(block, desc)
    for name in (v.name for v in message.vars):
        if not block.desc.has_var(name.encode()):
            _add_variable(block, source.find_var(name.encode()))


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


def _replace_ops(block: framework.Block, message: framework_pb2.BlockDesc,
                 source: core.BlockDesc) -> None:
    block.ops.clear()
    for variable in block.vars.values():
        variable.op = None  # the one that makes it, which goes; the new one enters itself
    if block.desc.op_size():
        block.desc._remove_op(0, block.desc.op_size())
    for index, op in enumerate(message.ops):
        desc = block.desc.append_op()
        desc.copy_from(source.op(index))
        for attribute in op.attrs:
            _point_home(desc, attribute, block)
        block.ops.append(framework.Operator(block=block, desc=desc))


def _point_home(desc: core.OpDesc, attribute: framework_pb2.OpDesc.Attr,
                block: framework.Block) -> None:
    """An attribute that is a block or a variable is a pointer into the program it was copied from."""
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
