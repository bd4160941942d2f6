"""Ops that infer the same shapes where they find the same ones: a deep program is one layer again and again."""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, Hashable, List, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import OF_MAKING

_VarType = framework_pb2.VarType
TENSORS = (_VarType.LOD_TENSOR, _VarType.SELECTED_ROWS)
UNLIKE = -1
# What comes out depends on more than the shapes that they find, or is needed for more than shapes.
_OF_THEIR_OWN = frozenset({'fill_constant', 'rnn', 'shape'})


def without_framework(program: framework_pb2.ProgramDesc) -> framework_pb2.ProgramDesc:
    """A copy of which Paddle has less to read: without the attributes that shape inference does not ask for."""
    message = framework_pb2.ProgramDesc()
    message.CopyFrom(program)
    for block in message.blocks:
        for op in block.ops:
            attributes = op.attrs
            for at in range(len(attributes) - 1, -1, -1):
                if attributes[at].name in OF_MAKING:
                    del attributes[at]
    return message


def likenesses(message: framework_pb2.ProgramDesc) -> List[List[int]]:
    """For each block of what `without_framework` gives, a number for each of its ops, the same for those that are alike, in whatever
    blocks: of one operator, with equal attributes, and with variables of equal types in their slots. UNLIKE for ops that name
    anything but tensors."""
    numbers: Dict[Hashable, int] = {}
    types = [{
        v.name: _number(numbers, v.type.SerializeToString()) if v.type.type in TENSORS else UNLIKE
        for v in block.vars
    }
             for block in message.blocks]

    def type_of(name: str, block: int) -> int:
        while block >= 0 and name not in types[block]:
            block = message.blocks[block].parent_idx
        return types[block][name] if block >= 0 else UNLIKE

    looks = [[_look(op, partial(type_of, block=block.idx))
              for op in block.ops]
             for block in message.blocks]
    return [[_number(numbers, look) if look else UNLIKE for look in each] for each in looks]


def _number(numbers: Dict[Hashable, int], look: Hashable) -> int:
    return numbers.setdefault(look, len(numbers))


def _look(op: framework_pb2.OpDesc, type_of: Callable[[str], int]) -> Tuple[Hashable, ...]:
    """Equal for ops that are alike; nothing for one that is like none."""
    if op.type in _OF_THEIR_OWN:
        return ()
    look: List[Hashable] = [op.type]
    met: Dict[str, int] = {}  # an op that works in place names a variable twice
    for slots in (op.inputs, op.outputs):
        for slot in slots:
            look.append(slot.parameter)
            for name in slot.arguments:
                kind = type_of(name)
                if kind == UNLIKE:
                    return ()
                look.append((kind, met.setdefault(name, len(met))))
        look.append(None)
    look += [a.SerializeToString() for a in op.attrs]
    return tuple(look)
