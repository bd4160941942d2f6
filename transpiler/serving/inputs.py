"""Inputs that a run frees as soon as they are used, for callers that set them before every run.

A predictor holds its inputs from run to run. So the first ops move each of them to a variable of their own block, which
is freed after its last use like any other, and leave an empty tensor behind. A run whose inputs were not set again
fails with Paddle's error for a tensor without memory: it cannot give a wrong answer.
"""

from __future__ import annotations

from typing import List, Set

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import declare_vector, named_by, replace_ops, runs_blocks, written_by
from transpiler.backends.paddle2.importer import EMPTY_TENSOR
from transpiler.backends.paddle2.making import make_fill

_HELD = '.held'
_MOVE = 'share_data'  # the same buffer under both names, with its shape, layout and type


def held_name(name: str) -> str:
    """What an input is called once it is moved."""
    return name + _HELD


def movable_inputs(message: framework_pb2.ProgramDesc) -> List[str]:
    """Fed tensors that only plain ops of the main block read."""
    block = message.blocks[0]
    fixed = set(named_by(*(op for inner in message.blocks[1:] for op in inner.ops)))
    for op in block.ops:
        if op.type in ('fetch', 'fetch_v2') or runs_blocks(op):
            fixed.update(named_by(op))
        elif op.type != 'feed':
            fixed.update(written_by(op))
    fed = written_by(*(op for op in block.ops if op.type == 'feed'))
    dense = {
        v.name
        for v in block.vars
        if v.type.type == framework_pb2.VarType.LOD_TENSOR and not v.type.lod_tensor.lod_level
    }
    return [n for n in fed if n in dense and n not in fixed]


def move_inputs(message: framework_pb2.ProgramDesc) -> framework_pb2.ProgramDesc:
    """The same program, whose inputs are empty once it has started."""
    result = framework_pb2.ProgramDesc()
    result.CopyFrom(message)
    moved = movable_inputs(result)
    if not moved:
        return result
    block = result.blocks[0]
    _declare(block, moved)
    feeds = [op for op in block.ops if op.type == 'feed']
    others = [_reading(op, set(moved)) for op in block.ops if op.type != 'feed']
    empty = make_fill(EMPTY_TENSOR, [0], framework_pb2.VarType.FP32, 0.0)
    replace_ops(block, [*feeds, *map(_move, moved), empty, *map(_empty, moved), *others])
    return result


def _reading(op: framework_pb2.OpDesc, moved: Set[str]) -> framework_pb2.OpDesc:
    for slot in op.inputs:
        slot.arguments[:] = [held_name(n) if n in moved else n for n in slot.arguments]
    return op


def _declare(block: framework_pb2.BlockDesc, moved: List[str]) -> None:
    for variable in [v for v in block.vars if v.name in set(moved)]:
        held = block.vars.add()
        held.CopyFrom(variable)
        held.name = held_name(variable.name)
        held.need_check_feed = False
    declare_vector(block, EMPTY_TENSOR, 0)


def _move(name: str) -> framework_pb2.OpDesc:
    op = framework_pb2.OpDesc(type=_MOVE)
    op.inputs.add(parameter='X', arguments=[name])
    op.outputs.add(parameter='Out', arguments=[held_name(name)])
    return op


def _empty(name: str) -> framework_pb2.OpDesc:
    op = framework_pb2.OpDesc(type='share_buffer')
    op.inputs.add(parameter='X', arguments=[EMPTY_TENSOR])
    op.outputs.add(parameter='Out', arguments=[name])
    op.outputs.add(parameter='XOut', arguments=[EMPTY_TENSOR])
    # The dims stay: an op accepts a tensor of no rows, but none without the memory that its rows need.
    op.attrs.add(name='share_dims_and_dtype', type=framework_pb2.BOOLEANS, bools=[False])
    return op
