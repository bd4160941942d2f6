"""Holding the order of ops in the executor's default, multi-threaded mode.

The executor starts whatever is ready, on four threads on a CPU. What it respects are hazards on variable names, also
on names in slots that the operator does not know. So ops that must follow each other get an output slot of our own
with one shared variable, which no kernel ever sees: each op that writes it waits for the one before. Nothing is run,
allocated or kept alive for it, it works in blocks of loops and branches, in every executor mode, and it is part of the
program: clones, copies and saved programs carry it.

`op.dist_attr.scheduling_priority` is not enough (2.6.2): every op that waits for nothing becomes a task of its own, and
of the ops that follow a CPU op all but one do; priorities rank only what one thread finds ready.
"""

from __future__ import annotations

from typing import List, Set

from paddle.base.proto import framework_pb2

ORDER_SLOT = 'ExecutionOrder'
_NAME = 'execution_order@block_{}'


def pin(message: framework_pb2.ProgramDesc, block: int) -> None:
    """Makes the executor run the ops of `block` in the order in which they stand.

    Two neighbours that a variable orders already need no more; the others write the block's order variable.
    """
    ops = message.blocks[block].ops
    name = _NAME.format(block)
    bound: Set[int] = set()
    accesses = [(_arguments(op.inputs), _arguments(op.outputs)) for op in ops]
    for i in range(1, len(ops)):
        if not _ordered_by_names(*accesses[i - 1], *accesses[i]):
            bound.update((i - 1, i))
    for i in sorted(bound):
        ops[i].outputs.add(parameter=ORDER_SLOT, arguments=[name])
    if bound:
        variable = message.blocks[block].vars.add(name=name, persistable=False)
        variable.type.type = framework_pb2.VarType.LOD_TENSOR
        variable.type.lod_tensor.tensor.data_type = framework_pb2.VarType.FP32
        variable.type.lod_tensor.tensor.dims.append(1)


def unpin(message: framework_pb2.ProgramDesc) -> None:
    """Takes all that `pin` added out again."""
    for index, block in enumerate(message.blocks):
        kept = [v for v in block.vars if v.name != _NAME.format(index)]
        if len(kept) == len(block.vars):
            continue
        del block.vars[:]
        block.vars.extend(kept)
        for op in block.ops:
            _remove_order_slot(op)


def is_pinned(message: framework_pb2.ProgramDesc, block: int) -> bool:
    """Whether the order of `block` is held by `pin`."""
    return any(v.name == _NAME.format(block) for v in message.blocks[block].vars)


def _remove_order_slot(op: framework_pb2.OpDesc) -> None:
    slots = [s for s in op.outputs if s.parameter != ORDER_SLOT]
    if len(slots) < len(op.outputs):
        del op.outputs[:]
        op.outputs.extend(slots)


def _ordered_by_names(read_first: Set[str], written_first: Set[str], read: Set[str],
                      written: Set[str]) -> bool:
    return bool(written_first & read or written_first & written or read_first & written)


def _arguments(slots: List[framework_pb2.OpDesc.Var]) -> Set[str]:
    return {n for s in slots if s.parameter != ORDER_SLOT for n in s.arguments}
