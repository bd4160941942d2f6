"""Reading and replacing the contents of a live `paddle.static.Program`."""

from __future__ import annotations

from typing import Any, Dict

import paddle
from paddle.base import core, framework

from transpiler.errors import InvalidProgramError, MergedVariableError
from transpiler.program_desc.emitter import EmittedProgram

_MERGED = '_merged_variables'
_RELEASED = ''  # given back, to nobody in particular


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


def replace_contents(program: framework.Program, emitted: EmittedProgram) -> None:
    """Makes `program` the emitted one, in place; parameters stay parameters.

    Fetching a name that was merged away or released raises from now on, from clones too.
    """
    _forget_variables(program, emitted)
    program._rebuild_from_desc(core.ProgramDesc(emitted.message.SerializeToString()))
    gone = {name: _RELEASED for name in emitted.released}
    _guard(program, {**merged_variables(program), **gone, **emitted.merged})


def _forget_variables(program: framework.Program, emitted: EmittedProgram) -> None:
    """Paddle's move of a block keeps the variables that the new one lacks; fetching one would give None."""
    for index, block in enumerate(emitted.message.blocks):
        desc = program.desc.block(index)
        kept = {v.name for v in block.vars}
        for variable in desc.all_vars():
            if variable.name() not in kept:
                desc._remove_var(variable.name().encode())


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
