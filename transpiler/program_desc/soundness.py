"""What a saved program must be for Paddle to load it: Paddle crashes on some that are not, rather than say so."""

from __future__ import annotations

from typing import Iterator, Optional, Set, Union

from paddle.base.proto import framework_pb2

from transpiler.program_desc.registry import EMPTY_NAME, OpRegistry

_NO_BLOCK = -1


def unknown_operator(message: framework_pb2.ProgramDesc) -> Optional[str]:
    """The first operator that this Paddle does not have."""
    registry = OpRegistry()
    for block in message.blocks:
        for index, op in enumerate(block.ops):
            if not registry.is_registered(op.type):
                return f'operator {op.type!r} (op {index} of block {block.idx})'
    return None


def defect(message: framework_pb2.ProgramDesc, for_inference: bool) -> Optional[str]:
    """What is wrong with the blocks of a program, if anything is.

    A training program may name variables that the runtime makes by itself: gradients in step scopes.
    """
    for block in message.blocks:
        garbled = next((n for n in _all_names(block) if not isinstance(n, str)), None)
        if garbled is not None:
            return f'a name in block {block.idx} is no text: {garbled!r}'
    for position, block in enumerate(message.blocks):
        if block.idx != position or not _NO_BLOCK <= block.parent_idx < position:
            return f'block {position} says that it is block {block.idx}, in block {block.parent_idx}'
        if position and block.parent_idx == _NO_BLOCK:
            return f'block {position} is in no block'
    for block in message.blocks:
        wrong = _wrong_argument(message, block) if for_inference else None
        wrong = wrong or _wrong_block(message, block)
        if wrong is not None:
            return wrong
    return None


def _all_names(block: framework_pb2.BlockDesc) -> Iterator[Union[str, bytes]]:
    """Names as protobuf reads them: as bytes, where they are no UTF-8."""
    yield from (v.name for v in block.vars)
    for op in block.ops:
        yield op.type
        yield from (a.name for a in op.attrs)
        for slot in [*op.inputs, *op.outputs]:
            yield slot.parameter
            yield from slot.arguments


def _wrong_block(message: framework_pb2.ProgramDesc,
                 block: framework_pb2.BlockDesc) -> Optional[str]:
    for index, op in enumerate(block.ops):
        for attribute in op.attrs:
            blocks = list(attribute.blocks_idx)
            if attribute.type == framework_pb2.BLOCK:
                blocks.append(attribute.block_idx)
            if any(not 0 <= b < len(message.blocks) for b in blocks):
                return (
                    f'attribute {attribute.name!r} of operator {op.type!r} (op {index} of block '
                    f'{block.idx}) names a block that is not there')
    return None


def _wrong_argument(message: framework_pb2.ProgramDesc,
                    block: framework_pb2.BlockDesc) -> Optional[str]:
    declared = _visible(message, block.idx)
    for index, op in enumerate(block.ops):
        for slot in [*op.inputs, *op.outputs]:
            for name in slot.arguments:
                if name not in declared and name != EMPTY_NAME:
                    return (f'variable {name!r} of operator {op.type!r} (op {index} of block '
                            f'{block.idx}) is not declared')
    return None


def _visible(message: framework_pb2.ProgramDesc, index: int) -> Set[str]:
    return {v.name for block in _chain(message, index) for v in block.vars}


def _chain(message: framework_pb2.ProgramDesc, index: int) -> Iterator[framework_pb2.BlockDesc]:
    while index >= 0:
        yield message.blocks[index]
        index = message.blocks[index].parent_idx
