"""Dims with more bits than shape inference has room for: many operators count in 32 (Paddle 2.6.2).

The words of all rows laid flat may be as many in a probe, if in no run. What is left of them in 32 bits is taken for anything then: two
of what is broadcast for one, as it is below zero or a single row.
"""
from __future__ import annotations

from functools import lru_cache
from itertools import count, islice
from typing import Dict, Iterable, List, Mapping, Tuple

from paddle.base import core
from paddle.base.framework import OpProtoHolder

Shape = Tuple[int, ...]
_MOST = 2**31 - 1
_APART = 1000
_FEW = 7
_IN, _OUT = ('X', 'Y'), 'Out'


def stand_ins(dims: Iterable[int]) -> List[Mapping[int, int]]:
    """Numbers in the place of those of `dims` that may have no room, twice: what an operator gives on as it is it gives on both times. None
    where all have room."""
    known = set(dims)
    large = sorted(d for d in known if d > _MOST)
    free = (d for d in count(_MOST, -_APART) if d not in known)
    return [dict(zip(large, islice(free, len(large)))) for _ in range(2 if large else 0)]


def replaced(shape: Shape, numbers: Mapping[int, int]) -> Shape:
    """With `numbers` in the place of dims."""
    return tuple(numbers.get(d, d) for d in shape) if numbers else shape


def back(numbers: Mapping[int, int]) -> Dict[int, int]:
    """What is replaced by what it has replaced."""
    return {other: d for d, other in numbers.items()}


def is_of_two(kind: str) -> bool:
    """Whether it has the slots of what is broadcast; others may end the process when they are asked with those."""
    proto = OpProtoHolder.instance().op_proto_map.get(kind)
    if proto is None or [slot.name for slot in proto.outputs] != [_OUT]:
        return False
    needed = {slot.name for slot in proto.inputs if not slot.dispensable}
    return needed <= {*_IN} <= {slot.name for slot in proto.inputs}


@lru_cache(maxsize=None)
def wraps(kind: str) -> bool:
    """Whether it takes rows for others of which there are 2**32 more. Of those that want two operands to be like each other."""
    return is_of_two(kind) and accepts(kind, _FEW + 2**32) and not accepts(kind, _FEW + 1)


def accepts(kind: str, rows: int) -> bool:
    """Whether one with these slots takes so many rows beside a few."""
    program = core.ProgramDesc()  # which a block does not hold
    block = program.block(0)
    op = block.append_op()
    op.set_type(kind)
    for slot, dim in zip((*_IN, _OUT), (rows, _FEW, _FEW)):
        variable = block.var(slot.encode())
        variable.set_type(core.VarDesc.VarType.LOD_TENSOR)
        variable.set_dtype(core.VarDesc.VarType.FP32)
        variable.set_shape([dim, _FEW])
        (op.set_input if slot in _IN else op.set_output)(slot, [slot])
    try:
        op.check_attrs()
        op.infer_shape(block)
    except Exception:  # whatever Paddle throws
        return False
    return True
