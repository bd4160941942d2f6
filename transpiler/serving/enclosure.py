"""An inference program as one block that a `conditional_block_infer` runs: safe, and small, under every predictor.

Paddle Inference rewrites the main block of what it loads with passes that assume each name to be written once, and
holds every variable of the main block for ever. A block that an operator runs is left alone by those passes, its
variables are freed after their last use, and its ops run in program order. Nothing in it reuses a name, so there is
nothing that a pass could misread. The condition is always true.

Where two kernels want different layouts, the runtime converts an operand and keeps the copy as long as the scope
of the op. So each op has a block, and thereby a scope, of its own within the block of all.
"""

from __future__ import annotations

from typing import Iterable, Iterator, List, Set

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import named_by, replace_ops, runs_blocks, written_by
from transpiler.backends.paddle2.importer import is_release
from transpiler.backends.paddle2.registry import EMPTY_NAME
from transpiler.backends.paddle2.run_once import BLOCK, declare_always, run_block

CONDITION = 'transpiler.always'
_SCOPE = 'transpiler.scope'
_ENDS = ('feed', 'fetch', 'fetch_v2')
# Makes an operator keep pointers into its scope while the scope's address is the same. The scope of a block is
# another one in each run, possibly at the same address: the pointers would dangle.
_CACHED = '@ENABLE_CACHE_RUNTIME_CONTEXT@'


def is_enclosed(message: framework_pb2.ProgramDesc) -> bool:
    """Whether `enclose` made this program."""
    return any(v.name == CONDITION for v in message.blocks[0].vars)


def enclose(message: framework_pb2.ProgramDesc) -> framework_pb2.ProgramDesc:
    """The same program with all ops of its main block, but feeds and fetches, in a block of their own."""
    result = framework_pb2.ProgramDesc()
    result.CopyFrom(message)
    del result.blocks[:]
    main = result.blocks.add(idx=0, parent_idx=-1)
    inner = result.blocks.add(idx=1, parent_idx=0)
    old = message.blocks[0]
    inner.ops.extend(op for op in old.ops if op.type not in _ENDS)
    _share_out_variables(old, main, inner)
    for block in message.blocks[1:]:
        copy = result.blocks.add()
        copy.CopyFrom(block)
        copy.idx, copy.parent_idx = block.idx + 1, block.parent_idx + 1
        if block.forward_block_idx >= 0:
            copy.forward_block_idx = block.forward_block_idx + 1
    for block in result.blocks[1:]:
        _renumber(block.ops)
    main.ops.extend(op for op in old.ops if op.type == 'feed')
    outside = {v.name for v in main.vars if v.type.type == framework_pb2.VarType.LOD_TENSOR}
    main.ops.extend([
        declare_always(main, CONDITION),
        run_block(main, inner.idx, outside, outputs_of(inner.ops), _SCOPE, CONDITION)
    ])
    for block in [inner, *_run_always(result, inner)]:
        _separate(result, block)
    main.ops.extend(op for op in old.ops if op.type in _ENDS[1:])
    return result


def _share_out_variables(old: framework_pb2.BlockDesc, main: framework_pb2.BlockDesc,
                         inner: framework_pb2.BlockDesc) -> None:
    ends = set(named_by(*(op for op in old.ops if op.type in _ENDS)))
    for variable in old.vars:
        outside = variable.persistable or variable.name in ends
        (main if outside else inner).vars.add().CopyFrom(variable)


def _renumber(ops: Iterable[framework_pb2.OpDesc]) -> None:
    for op in ops:
        kept = [a for a in op.attrs if a.name != _CACHED]
        for attribute in kept:
            if attribute.type == framework_pb2.BLOCK:
                attribute.block_idx += 1
            elif attribute.type == framework_pb2.BLOCKS:
                attribute.blocks_idx[:] = [i + 1 for i in attribute.blocks_idx]
        kept = [framework_pb2.OpDesc.Attr.FromString(a.SerializeToString()) for a in kept]
        del op.attrs[:]
        op.attrs.extend(kept)


def _run_always(program: framework_pb2.ProgramDesc,
                block: framework_pb2.BlockDesc) -> List[framework_pb2.BlockDesc]:
    """The blocks that ops of `block` run under the condition that is always true: those that run for each part."""
    found = [op for op in block.ops if CONDITION in named_by(op)]
    indices = [a.block_idx for op in found for a in op.attrs if a.name == BLOCK]
    return [program.blocks[i] for i in dict.fromkeys(indices)]


def _separate(program: framework_pb2.ProgramDesc, block: framework_pb2.BlockDesc) -> None:
    """Gives each op of `block` a block of its own, but those that run blocks already."""
    ops = []
    for index, group in enumerate(_groups(block)):
        if runs_blocks(group[0]):
            ops.append(group[0])
            continue
        own = program.blocks.add(idx=len(program.blocks), parent_idx=block.idx)
        own.ops.extend(group)
        named = set(named_by(*group)) - {EMPTY_NAME}
        ops.append(
            run_block(block, own.idx, named, outputs_of(group), f'{_SCOPE}.{index}', CONDITION))
    replace_ops(block, ops)


def _groups(block: framework_pb2.BlockDesc) -> Iterator[List[framework_pb2.OpDesc]]:
    """Each op by itself; those at the start that move inputs together, since they write what nobody may see written."""
    moving = max((i + 1 for i, op in enumerate(block.ops) if is_release(op)), default=0)
    if moving:
        yield list(block.ops[:moving])
    yield from ([op] for op in block.ops[moving:])


def outputs_of(ops: Iterable[framework_pb2.OpDesc]) -> Set[str]:
    """What the ops write. An input that they empty is only read, as far as a pass may know: it was written by its feed."""
    return set(written_by(*(op for op in ops if not is_release(op))))
