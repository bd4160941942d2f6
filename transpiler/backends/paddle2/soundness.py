"""What a saved program must be for Paddle to load it: Paddle crashes on some that are not, rather than say so."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from types import MappingProxyType
from typing import Dict, FrozenSet, Iterator, List, Optional, Set, Union

from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.op_forms import GRADIENT_OF, malformed
from transpiler.backends.paddle2.registry import EMPTY_NAME, OpRegistry

_NO_BLOCK = -1
_MOST_DIMS = 64
_VarType = framework_pb2.VarType
# By type, the field that describes the contents of a variable.
_CONTENTS = MappingProxyType({
    _VarType.LOD_TENSOR: 'lod_tensor',
    _VarType.SELECTED_ROWS: 'selected_rows',
    _VarType.LOD_TENSOR_ARRAY: 'tensor_array',
})


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
    wrong = _wrong_order(message) or _wrong_blocks(message)
    for block in message.blocks if wrong is None else ():
        wrong = (_wrong_variable(block) or _wrong_operator(block) or
                 _wrong_argument(message, block, for_inference))
        if wrong is not None:
            break
    return wrong


def _wrong_order(message: framework_pb2.ProgramDesc) -> Optional[str]:
    """A block comes behind the one that it is in, and behind the one that it is the gradient of."""
    for position, block in enumerate(message.blocks):
        if block.idx != position or not _NO_BLOCK <= block.parent_idx < position:
            return f'block {position} says that it is block {block.idx}, in block {block.parent_idx}'
        if position and block.parent_idx == _NO_BLOCK:
            return f'block {position} is in no block'
        if not _NO_BLOCK <= block.forward_block_idx < max(position, 1):
            return (f'block {position} says that it is the gradient of block '
                    f'{block.forward_block_idx}')
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


def _wrong_blocks(message: framework_pb2.ProgramDesc) -> Optional[str]:
    """Operators run blocks that are there, and none that runs itself, however deep."""
    runs: List[Set[int]] = [set() for _ in message.blocks]
    for block in message.blocks:
        for index, op in enumerate(block.ops):
            for attribute in op.attrs:
                blocks = _named_blocks(attribute)
                if any(not 0 <= b < len(message.blocks) for b in blocks):
                    return (f'attribute {attribute.name!r} of {_place(op, index, block)} names a '
                            'block that is not there')
                runs[block.idx].update(blocks)
    # What runs no block, or only such as were taken out before, is taken out; what stays is in a circle, or runs one.
    run_by: List[List[int]] = [[] for _ in runs]
    for block, inner in enumerate(runs):
        for each in inner:
            run_by[each].append(block)
    left = [len(inner) for inner in runs]
    free = [block for block, count in enumerate(left) if not count]
    while free:
        for outer in run_by[free.pop()]:
            left[outer] -= 1
            if not left[outer]:
                free.append(outer)
    stuck = next((block for block, count in enumerate(left) if count), None)
    return None if stuck is None else f'block {stuck} runs itself, or blocks that run themselves'


def _named_blocks(attribute: framework_pb2.OpDesc.Attr) -> List[int]:
    if attribute.type == framework_pb2.BLOCK:
        return [attribute.block_idx]
    return list(attribute.blocks_idx)


def _place(op: framework_pb2.OpDesc, index: int, block: framework_pb2.BlockDesc) -> str:
    return f'operator {op.type!r} (op {index} of block {block.idx})'


def _wrong_variable(block: framework_pb2.BlockDesc) -> Optional[str]:
    declared: Dict[str, framework_pb2.VarDesc] = {}
    for variable in block.vars:
        name, looks = variable.name, variable.type
        if declared.setdefault(name, variable) != variable:
            return f'variable {name!r} of block {block.idx} is declared twice, not alike'
        contents = _CONTENTS.get(looks.type)
        if contents is None:
            continue
        if not looks.HasField(contents):
            return f'variable {name!r} of block {block.idx} has no description of its type'
        found = getattr(looks, contents)
        tensor = found if contents == 'selected_rows' else found.tensor
        if tensor.data_type not in _numbers():
            kind = framework_pb2.VarType.Type.Name(tensor.data_type)
            return f'variable {name!r} of block {block.idx} has elements of type {kind}, which is none'
        if any(not -1 <= dim < 2**62 for dim in tensor.dims) or len(tensor.dims) > _MOST_DIMS:
            return f'variable {name!r} of block {block.idx} has dims that no tensor has'
        if contents != 'selected_rows' and not 0 <= found.lod_level <= _MOST_DIMS:
            return f'variable {name!r} of block {block.idx} has {found.lod_level} levels of LoD'
    return None


@lru_cache(maxsize=None)
def _numbers() -> FrozenSet[int]:
    """The types that elements of tensors may have."""
    found = set()
    for kind in framework_pb2.VarType.Type.values():
        with contextlib.suppress(Exception):  # Paddle's own errors have no common base
            core.size_of_dtype(core.VarDesc.VarType(kind))
            found.add(kind)
    return frozenset(found)


def _wrong_operator(block: framework_pb2.BlockDesc) -> Optional[str]:
    for index, op in enumerate(block.ops):
        wrong = malformed(op)
        if wrong is not None:
            return f'{_place(op, index, block)} {wrong}'
    return None


def _wrong_argument(message: framework_pb2.ProgramDesc, block: framework_pb2.BlockDesc,
                    for_inference: bool) -> Optional[str]:
    declared = _visible(message, block.idx)
    for index, op in enumerate(block.ops):
        for slot in [*op.inputs, *op.outputs]:
            for name in slot.arguments:
                is_made = block.idx > 0 and not for_inference and GRADIENT_OF in name
                if name not in declared and name != EMPTY_NAME and not is_made:
                    return f'variable {name!r} of {_place(op, index, block)} is not declared'
    return None


def _visible(message: framework_pb2.ProgramDesc, index: int) -> Set[str]:
    """Names of the blocks around, and of those that they are the gradients of."""
    names: Set[str] = set()
    seen, left = set(), [index]
    while left:
        at = left.pop()
        if at >= 0 and at not in seen:
            seen.add(at)
            block = message.blocks[at]
            names.update(v.name for v in block.vars)
            left += [block.parent_idx, block.forward_block_idx]
    return names
