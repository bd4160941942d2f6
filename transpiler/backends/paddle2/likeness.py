"""Ops that infer the same shapes where they find the same ones: a deep program is one layer again and again."""

from __future__ import annotations

from typing import Dict, Hashable, List, Mapping, Tuple

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


def likenesses(message: framework_pb2.ProgramDesc) -> List[int]:
    """A number for each op of the main block of what `without_framework` gives, the same for those that are alike: of one
    operator, with equal attributes, and with variables of equal types in their slots. UNLIKE for ops that name anything
    but tensors.

    Only of programs of one block: inner blocks know variables by names of other blocks.
    """
    block = message.blocks[0]
    if len(message.blocks) > 1:
        return [UNLIKE] * len(block.ops)
    numbers: Dict[Hashable, int] = {}
    types = {
        v.name: numbers.setdefault(v.type.SerializeToString(), len(numbers))
        for v in block.vars
        if v.type.type in TENSORS
    }
    looks = (_look(op, types) for op in block.ops)
    return [numbers.setdefault(look, len(numbers)) if look else UNLIKE for look in looks]


def _look(op: framework_pb2.OpDesc, types: Mapping[str, int]) -> Tuple[Hashable, ...]:
    """Equal for ops that are alike; nothing for one that is like none."""
    if op.type in _OF_THEIR_OWN:
        return ()
    look: List[Hashable] = [op.type]
    met: Dict[str, int] = {}  # an op that works in place names a variable twice
    for slots in (op.inputs, op.outputs):
        for slot in slots:
            look.append(slot.parameter)
            for name in slot.arguments:
                if name not in types:
                    return ()
                look.append((types[name], met.setdefault(name, len(met))))
        look.append(None)
    look += [a.SerializeToString() for a in op.attrs]
    return tuple(look)
