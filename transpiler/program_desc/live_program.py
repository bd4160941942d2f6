"""Reading and replacing the contents of a live `paddle.static.Program`."""

from __future__ import annotations

from typing import Any, Dict

import paddle
from paddle.base import core, framework
from paddle.base.proto import framework_pb2

from transpiler.errors import InvalidProgramError, MergedVariableError

_MERGED = '_merged_variables'


def serialize(program: Any) -> bytes:
    """The desc of `program`; raises InvalidProgramError if it is no static-graph program."""
    if isinstance(program, paddle.static.CompiledProgram):
        raise InvalidProgramError(
            'memory_optimize takes a paddle.static.Program: call it before CompiledProgram(program)'
        )
    if not isinstance(program, framework.Program):
        raise InvalidProgramError(
            f'memory_optimize takes a paddle.static.Program, not {type(program).__name__}')
    return program.desc.serialize_to_string()


def replace_contents(program: framework.Program, message: framework_pb2.ProgramDesc,
                     merged: Dict[str, str]) -> None:
    """Makes `program` the program of `message`, in place; parameters stay parameters.

    Fetching a name of `merged` raises from now on, from clones too.
    """
    program._rebuild_from_desc(core.ProgramDesc(message.SerializeToString()))
    _guard(program, {**merged_variables(program), **merged})


def merged_variables(program: framework.Program) -> Dict[str, str]:
    """Names that an earlier call merged away, and the names whose memory they use."""
    return dict(getattr(program, _MERGED, {}))


def _guard(program: framework.Program, merged: Dict[str, str]) -> None:
    if merged:
        program.__class__ = OptimizedProgram
        setattr(program, _MERGED, merged)
        for block in program.blocks:
            block.__class__ = _GuardedBlock


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
                    raise MergedVariableError(
                        f'variable {name!r} cannot be fetched: memory_optimize gave its memory to '
                        f'{merged[name]!r}. Build the program again and pass it in fetch_list: '
                        f'memory_optimize(program, fetch_list=[{name!r}, ...])')
        return super().append_op(*args, **kwargs)
