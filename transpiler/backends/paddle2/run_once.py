"""The op that runs a block once: `conditional_block_infer`, on a condition that is always true, or on none.

It runs the ops of the block one after the other, in program order, by Paddle's old executor, in the thread that runs the op.
Variables that the block declares are made anew each time, and freed after their last use, before the next op starts; those of
blocks around it are found by name. Nothing is kept for pairs of ops.
"""

from __future__ import annotations

from typing import List, Set

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import declare_vector
from transpiler.backends.paddle2.making import make_fill

RUNS_BLOCK = 'conditional_block_infer'
BLOCK = 'sub_block'
# What ops name, and nobody makes, that run the segments which a main block is cut into.
SEGMENTED = 'transpiler.in_segments'


def is_segmented(message: framework_pb2.ProgramDesc) -> bool:
    """Whether its main block is cut into segments."""
    return any(v.name == SEGMENTED for v in message.blocks[0].vars)


def declare_always(block: framework_pb2.BlockDesc, condition: str) -> framework_pb2.OpDesc:
    """Declares `condition` in `block`; the op that makes it true."""
    declare_vector(block, condition, 1, framework_pb2.VarType.BOOL)
    return make_fill(condition, [1], framework_pb2.VarType.BOOL, 1.0, force_cpu=True)


def run_block(parent: framework_pb2.BlockDesc, inner: int, outside: Set[str], written: Set[str],
              scope: str, condition: str) -> framework_pb2.OpDesc:
    """The op of `parent` that runs block `inner`, which reads the variables `outside` of it, or writes them, if `condition` is true."""
    read = sorted(outside - written)
    return _running(parent, inner, [condition], read, sorted(outside & written), scope, True)


def run_block_always(parent: framework_pb2.BlockDesc, inner: int, outside: Set[str],
                     written: Set[str], scope: str) -> framework_pb2.OpDesc:
    """The same for one of the segments, which asks for nothing: it runs if none of its `Input` is empty, and has none; what it reads stands where a
    condition would, and is not looked at."""
    read = [SEGMENTED, *sorted(outside - written)]
    return _running(parent, inner, read, [], sorted(outside & written), scope, False)


def _running(parent: framework_pb2.BlockDesc, inner: int, conditions: List[str], read: List[str],
             made: List[str], scope: str, is_scalar: bool) -> framework_pb2.OpDesc:
    parent.vars.add(name=scope).type.type = framework_pb2.VarType.STEP_SCOPES
    op = framework_pb2.OpDesc(type=RUNS_BLOCK)
    op.inputs.add(parameter='Cond', arguments=conditions)
    op.inputs.add(parameter='Input', arguments=read)
    op.outputs.add(parameter='Out', arguments=made)
    op.outputs.add(parameter='Scope', arguments=[scope])
    op.attrs.add(name=BLOCK, type=framework_pb2.BLOCK, block_idx=inner)
    op.attrs.add(name='is_scalar_condition', type=framework_pb2.BOOLEAN, b=is_scalar)
    return op
