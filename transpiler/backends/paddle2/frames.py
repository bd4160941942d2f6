"""Programs without their ops. A message keeps the memory of what it has let go of, so one whose ops change is made anew."""

from __future__ import annotations

from paddle.base.proto import framework_pb2


def without_ops(message: framework_pb2.ProgramDesc,
                declared: bool = True) -> framework_pb2.ProgramDesc:
    """`message` without ops; without variables too, if they are not `declared`."""
    frame = framework_pb2.ProgramDesc()
    for field, given in message.ListFields():
        if field.name != 'blocks':
            getattr(frame, field.name).CopyFrom(given)
    for old in message.blocks:
        new = frame.blocks.add(idx=old.idx, parent_idx=old.parent_idx)
        if old.HasField('forward_block_idx'):
            new.forward_block_idx = old.forward_block_idx
        if declared:
            new.vars.extend(old.vars)
    return frame
