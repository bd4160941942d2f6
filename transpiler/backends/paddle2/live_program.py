"""Reading and replacing the contents of a live `paddle.static.Program`."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Dict, Iterable, Iterator, Optional, Sequence, Set, Tuple

import paddle
from paddle.base import core, framework
from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import read_by, written_by
from transpiler.backends.paddle2.emitter import ROLE, EmittedProgram
from transpiler.backends.paddle2.frames import without_ops
from transpiler.backends.paddle2.guard import guard, merged_variables
from transpiler.backends.call_stacks import frames
from transpiler.backends.paddle2.importer import CALL_STACK
from transpiler.backends.paddle2.naming import INNER_LISTS, NAME_LISTS
from transpiler.errors import InvalidProgramError

_TENSOR = core.VarDesc.VarType.LOD_TENSOR
_FORMER = '_descs_before_memory_optimize'
_NOWHERE, _MAIN = -1, 0
_AT_A_TIME = 64  # ops that are made of bytes
Stacks = Dict[Tuple[int, int], Tuple[str, ...]]  # by block and position there
_BLOCKS = (framework_pb2.BLOCK, framework_pb2.BLOCKS)
_POINTERS = (*_BLOCKS, framework_pb2.VAR, framework_pb2.VARS)


def message_of(program: Any, stacks: Optional[Stacks] = None) -> framework_pb2.ProgramDesc:
    """The desc of `program`; raises InvalidProgramError if it is no static-graph program.

    Op by op: Paddle writes a block in bytes from messages that it makes of all ops first, twice as large as the ops, and then
    keeps. The versions of operators, which only saving notes, are left out, and of call stacks, which are most of a program,
    all but the one line that is looked at; `stacks` gets their frames.
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
        _add_block(message, program.desc.block(index), {} if stacks is None else stacks)
    return message


def _add_block(message: framework_pb2.ProgramDesc, desc: core.BlockDesc, stacks: Stacks) -> None:
    block = message.blocks.add()
    block.idx, block.parent_idx = desc.id, desc.parent
    if desc.get_forward_block_idx() != _NOWHERE:
        block.forward_block_idx = desc.get_forward_block_idx()
    for variable in desc.all_vars():
        block.vars.add().MergeFromString(variable.serialize_to_string())
    known: Dict[Tuple[str, ...],
                Tuple[str, ...]] = {}  # layers that a loop made have their stacks in common
    for index in range(desc.op_size()):
        op = core.OpDesc()  # a copy: what is made of an op to write it in bytes stays with it
        op.copy_from(desc.op(index))
        if op.has_attr(CALL_STACK):
            lines = tuple(op.attr(CALL_STACK))
            if lines not in known:
                known[lines] = frames(lines)
            found = stacks[desc.id, index] = known[lines]
            op._set_strs_attr(CALL_STACK, list(found[:1]))
        block.ops.add().MergeFromString(op.serialize_to_string())


def replace_contents(program: framework.Program, emitted: EmittedProgram) -> None:
    """Makes `program` the emitted one, in place; variables and ops that remain stay the objects they are.

    All or nothing: the new desc is made beside the old one, and what Paddle refuses leaves the program as it was.
    Fetching a name that was merged away or released raises from now on, from clones too.
    """
    desc = _described(program, emitted)
    before = _Contents(program)
    try:
        _adopt(program, desc, emitted)
    except BaseException:
        before.restore()
        raise
    _keep_variables(program, before.desc)
    declared = {v.name for v in emitted.message.blocks[0].vars}
    gone = {name: new for name, new in emitted.merged.items() if name not in declared}
    empty = {name: name for name in (*emitted.emptied, *emitted.stands_for)}
    guard(program, {**merged_variables(program), **gone, **empty})


def _described(program: framework.Program, emitted: EmittedProgram) -> core.ProgramDesc:
    """The desc of the emitted program. Ops that `program` has are copied inside Paddle, and renamed: from bytes, it would
    read and free all their call stacks."""
    desc = core.ProgramDesc(without_ops(emitted.message).SerializeToString())
    identified: Set[int] = set()
    for message in emitted.message.blocks:
        origins = emitted.origins[message.idx]
        if not origins:  # no op runs it
            origins = [_NOWHERE] * len(message.ops)
        _append_ops(desc, program, message.idx, emitted, origins, identified)
    return desc


def _append_ops(desc: core.ProgramDesc, old: framework.Program, index: int, emitted: EmittedProgram,
                origins: Sequence[Optional[int]], identified: Set[int]) -> None:
    """Puts the emitted ops into block `index` of `desc`: copies of those of the program, and added ones."""
    block, ops = desc.block(index), emitted.message.blocks[index].ops
    places = [emitted.places.get(origin, (index, at)) for at, origin in enumerate(origins)]
    had = [
        None if origin is None else old.block(home).desc.op(position)
        for origin, (home, position) in zip(origins, places)
    ]
    # Another operator may stand for one that the program has.
    had = [op if op is not None and op.type() == new.type else None for op, new in zip(had, ops)]
    added = _added_ops(emitted.message, index, (op for op, of in zip(ops, had) if of is None))
    for op, origin, copied in zip(ops, origins, had):
        new = block.append_op()
        if copied is None:
            new.copy_from(next(added))
        else:
            new.copy_from(copied)
            _rename(new, op)
            _rename_lists(new, op)
            if origin in emitted.cloned:
                _set_role(new, op)
            if index in emitted.segments:
                _shorten_call_stack(new, op)
        _identify(new, identified)
        for attribute in op.attrs:
            if attribute.type in _POINTERS:
                _point_home(new, attribute, desc, block)


def _added_ops(message: framework_pb2.ProgramDesc, block: int,
               ops: Iterable[framework_pb2.OpDesc]) -> Iterator[core.OpDesc]:
    """Paddle's own form of `ops`, each for as long as the next is not asked for. Some at a time: a program that Paddle makes
    of bytes keeps all that it has read."""
    left = iter(ops)
    while True:
        some = list(itertools.islice(left, _AT_A_TIME))
        if not some:
            return
        runs_blocks = any(a.type in _BLOCKS for op in some for a in op.attrs)
        home = block if runs_blocks else 0  # for others the main block does, and Paddle makes no more
        frame = without_ops(message, declared=False) if runs_blocks else _empty(message)
        frame.blocks[home].ops.extend(some)
        made = core.ProgramDesc(frame.SerializeToString())
        for index in range(len(some)):
            yield made.block(home).op(index)


def _empty(message: framework_pb2.ProgramDesc) -> framework_pb2.ProgramDesc:
    """A program of the version of `message` with a main block that has nothing in it."""
    frame = framework_pb2.ProgramDesc(version=message.version)
    frame.blocks.add(idx=0, parent_idx=-1)
    return frame


def _identify(op: core.OpDesc, identified: Set[int]) -> None:
    """A copy is known as the op that it is a copy of, to passes that look for that; each but the first is an op of its own."""
    if op.original_id() in identified:
        op.set_original_id(op.id())
    identified.add(op.original_id())


def _rename(desc: core.OpDesc, op: framework_pb2.OpDesc) -> None:
    """Gives `desc` the arguments of `op`."""
    if desc.input_arg_names() != read_by(op):
        for name in set(desc.input_names()).difference(slot.parameter for slot in op.inputs):
            desc.remove_input(name)
        for slot in op.inputs:
            desc.set_input(slot.parameter, list(slot.arguments))
    if desc.output_arg_names() != written_by(op):
        for name in set(desc.output_names()).difference(slot.parameter for slot in op.outputs):
            desc.remove_output(name)
        for slot in op.outputs:
            desc.set_output(slot.parameter, list(slot.arguments))


def _shorten_call_stack(desc: core.OpDesc, op: framework_pb2.OpDesc) -> None:
    """To the line of the user's that `op` has: each run of a segment copies all that its ops say."""
    for attribute in op.attrs:
        if attribute.name == CALL_STACK:
            desc._set_strs_attr(CALL_STACK, list(attribute.strings))


def _rename_lists(desc: core.OpDesc, op: framework_pb2.OpDesc) -> None:
    for attribute in op.attrs:
        if attribute.name in (*NAME_LISTS, *INNER_LISTS) and desc.attr(attribute.name) != list(
                attribute.strings):
            desc._set_strs_attr(attribute.name, list(attribute.strings))


def _set_role(desc: core.OpDesc, op: framework_pb2.OpDesc) -> None:
    for attribute in op.attrs:
        if attribute.name == ROLE:
            desc._set_int32_attr(ROLE, attribute.i)


def _point_home(op: core.OpDesc, attribute: framework_pb2.OpDesc.Attr, desc: core.ProgramDesc,
                block: core.BlockDesc) -> None:
    """An attribute that is a block or a variable is a pointer into the program that it was copied from."""
    kind, name = attribute.type, attribute.name
    if kind == framework_pb2.BLOCK:
        op.set_block_attr(name, desc.block(attribute.block_idx))
    elif kind == framework_pb2.BLOCKS:
        op.set_blocks_attr(name, [desc.block(i) for i in attribute.blocks_idx])
    elif kind == framework_pb2.VAR:
        op.set_var_attr(name, block.find_var_recursive(attribute.var_name.encode()))
    elif kind == framework_pb2.VARS:
        found = [block.find_var_recursive(n.encode()) for n in attribute.vars_name]
        op.set_vars_attr(name, found)


class _Contents:
    """What Python holds of a program: its desc, and which objects stand for which parts of that."""

    def __init__(self, program: framework.Program) -> None:
        self.desc = program.desc
        self._program = program
        self._blocks = [(b, b.desc, dict(b.vars), list(b.ops)) for b in program.blocks]
        self._homes = [(op, op.block) for b in program.blocks for op in b.ops]
        self._variables = [(v, v.desc, v.op) for b in program.blocks for v in b.vars.values()]
        self._ops = [(op, op.desc) for b in program.blocks for op in b.ops]

    def restore(self) -> None:
        self._program.desc = self.desc
        del self._program.blocks[len(self._blocks):]
        for op, block in self._homes:
            op.block = block
        for block, desc, variables, ops in self._blocks:
            block.desc = desc
            block.vars.clear()
            block.vars.update(variables)
            block.ops[:] = ops
        for variable, desc, op in self._variables:
            variable.desc, variable.op = desc, op
        for op, desc in self._ops:
            op.desc = desc


def _adopt(program: framework.Program, desc: core.ProgramDesc, emitted: EmittedProgram) -> None:
    """Lets the objects that stand for parts of the program stand for those of `desc`."""
    program.desc = desc
    had = {(b.idx, at): op for b in program.blocks for at, op in enumerate(b.ops)}
    count = len(program.blocks)
    program.blocks += [framework.Block(program, i) for i in range(count, desc.num_blocks())]
    for block in program.blocks:
        block.desc = desc.block(block.idx)
        _adopt_variables(block)
    for block in program.blocks:
        _adopt_ops(block, emitted, had, _MAIN if block.idx >= count else block.idx)


def _adopt_variables(block: framework.Block) -> None:
    for name, variable in list(block.vars.items()):
        found = block.desc.find_var(name.encode())
        if found is None:
            del block.vars[name]
            found = _standing_alone(variable.desc)
        variable.desc = found
    for desc in block.desc.all_vars():
        if desc.name() not in block.vars:
            _add_variable(block, desc)


def _standing_alone(desc: core.VarDesc) -> core.VarDesc:
    """For a variable that the program has no more, and that the user may still hold."""
    alone = core.VarDesc(desc.name())
    alone.set_type(desc.type())
    if desc.type() == _TENSOR:
        alone.set_shape(desc.shape())
        alone.set_dtype(desc.dtype())
    return alone


def _add_variable(block: framework.Block, desc: core.VarDesc) -> None:
    tensor: Dict[str, Any] = {'stop_gradient': desc.stop_gradient()}
    if desc.type() == _TENSOR:
        tensor.update(shape=desc.shape(), dtype=desc.dtype(), lod_level=desc.lod_level())
    block.create_var(name=desc.name(), type=desc.type(), persistable=desc.persistable(), **tensor)


def _adopt_ops(block: framework.Block, emitted: EmittedProgram,
               had: Dict[Tuple[int, int], framework.Operator], moved_from: int) -> None:
    """Gives the ops of the block their objects, those that they had there or in block `moved_from`, or new ones.

    `had` has them by block and position there.
    """
    for variable in block.vars.values():
        variable.op = None  # the one that makes it
    block.ops.clear()
    for index, origin in enumerate(emitted.origins[block.idx]):
        desc = block.desc.op(index)
        place = emitted.places.get(origin, (block.idx, _NOWHERE))
        op = had.pop(place, None) if place[0] in (block.idx, moved_from) else None
        if op is None:
            op = framework.Operator(block=block, desc=desc)
        op.desc, op.block = desc, block
        for variable in filter(None, map(block.vars.get, desc.output_arg_names())):
            variable.op = variable.op or op
        block.ops.append(op)


def _keep_variables(program: framework.Program, desc: core.ProgramDesc) -> None:
    """The desc that `program` had stays alive: there may be more than one object for one variable, of which the program
    knows the last. Its ops, with their call stacks, are let go."""
    setattr(program, _FORMER, [*getattr(program, _FORMER, []), desc])
    with contextlib.suppress(Exception):  # only takes memory, and the program is rewritten by now
        for index in range(desc.num_blocks()):
            desc.block(index)._remove_op(0, desc.block(index).op_size())
