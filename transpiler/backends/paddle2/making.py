"""Ops from plain Python values."""

from __future__ import annotations

from typing import Dict, List

from paddle.base.proto import framework_pb2


def make_fill(name: str, dims: List[int], data_type: int, value: float,
              **attributes: object) -> framework_pb2.OpDesc:
    """The op that makes `name` a tensor of these dims, all of one value."""
    op = framework_pb2.OpDesc(type='fill_constant')
    op.outputs.add(parameter='Out', arguments=[name])
    op.attrs.add(name='shape', type=framework_pb2.LONGS, longs=dims)
    _add_attributes(op, {'dtype': data_type, 'value': value, **attributes})
    return op


def make_op(kind: str, inputs: Dict[str, List[str]], outputs: Dict[str, List[str]],
            **attributes: object) -> framework_pb2.OpDesc:
    """An op with these arguments by slot."""
    op = framework_pb2.OpDesc(type=kind)
    for slots, given in ((op.inputs, inputs), (op.outputs, outputs)):
        for parameter, arguments in given.items():
            slots.add(parameter=parameter, arguments=arguments)
    _add_attributes(op, attributes)
    return op


def _add_attributes(op: framework_pb2.OpDesc, attributes: Dict[str, object]) -> None:
    for name, value in attributes.items():
        if isinstance(value, bool):
            op.attrs.add(name=name, type=framework_pb2.BOOLEAN, b=value)
        elif isinstance(value, int):
            op.attrs.add(name=name, type=framework_pb2.INT, i=value)
        elif isinstance(value, float):
            op.attrs.add(name=name, type=framework_pb2.FLOAT, f=value)
        elif isinstance(value, str):
            op.attrs.add(name=name, type=framework_pb2.STRING, s=value)
        else:
            op.attrs.add(name=name, type=framework_pb2.INTS, ints=value)
