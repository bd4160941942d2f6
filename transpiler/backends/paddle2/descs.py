"""What descs of ops say, and how their blocks are filled."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Iterable, List, Mapping, Optional

from paddle.base.proto import framework_pb2

ROLE = 'op_role'
# Fields of an attribute by its type.
_FIELDS: Mapping[int, str] = MappingProxyType({
    framework_pb2.INT: 'i', framework_pb2.FLOAT: 'f', framework_pb2.STRING: 's',
    framework_pb2.BOOLEAN: 'b', framework_pb2.LONG: 'l', framework_pb2.FLOAT64: 'float64',
    framework_pb2.INTS: 'ints', framework_pb2.LONGS: 'longs', framework_pb2.FLOATS: 'floats',
    framework_pb2.BOOLEANS: 'bools', framework_pb2.STRINGS: 'strings',
})  # yapf: disable
# What attributes say of who made an op, not of what it computes.
OF_MAKING = frozenset({'op_callstack', 'op_device', 'op_namescope', ROLE, 'op_role_var'})


def read_by(*ops: framework_pb2.OpDesc) -> List[str]:
    """What they read, slot by slot; twice what is read twice."""
    return [name for op in ops for slot in op.inputs for name in slot.arguments]


def written_by(*ops: framework_pb2.OpDesc) -> List[str]:
    """What they write, slot by slot."""
    return [name for op in ops for slot in op.outputs for name in slot.arguments]


def named_by(*ops: framework_pb2.OpDesc) -> List[str]:
    """What they read and write, op by op."""
    return [name for op in ops for name in (*read_by(op), *written_by(op))]


def value_of(attribute: framework_pb2.OpDesc.Attr) -> Any:
    """A number, a text, or a list of them; None for one of another type, as a block is."""
    field = _FIELDS.get(attribute.type)
    if field is None:
        return None
    value = getattr(attribute, field)
    return value if isinstance(value, (int, float, str)) else list(value)


def role_of(op: framework_pb2.OpDesc) -> Optional[int]:
    """Whether it says that it is of the forward part, the backward part, or an optimizer; None if it says nothing."""
    return next((a.i for a in op.attrs if a.name == ROLE), None)


def is_onednn(op: framework_pb2.OpDesc) -> bool:
    """Whether its kernel wants a layout of its own: what it reads and writes may have another name then, in the same memory."""
    return any(a.name == 'use_mkldnn' and a.b for a in op.attrs)


def runs_blocks(op: framework_pb2.OpDesc) -> bool:
    """Whether it has a block, or several, to run."""
    return any(a.type in (framework_pb2.BLOCK, framework_pb2.BLOCKS) for a in op.attrs)


def replace_ops(block: framework_pb2.BlockDesc, ops: Iterable[framework_pb2.OpDesc]) -> None:
    """Makes `ops`, some of which may be of `block` itself, all that it has."""
    copies = [framework_pb2.OpDesc.FromString(op.SerializeToString()) for op in ops]
    del block.ops[:]
    block.ops.extend(copies)


def keep_variables(block: framework_pb2.BlockDesc, names: Iterable[str]) -> None:
    """Drops the declarations of all others."""
    wanted = set(names)
    kept = [
        framework_pb2.VarDesc.FromString(v.SerializeToString())
        for v in block.vars
        if v.name in wanted
    ]
    del block.vars[:]
    block.vars.extend(kept)


def declare_vector(block: framework_pb2.BlockDesc,
                   name: str,
                   length: int,
                   data_type: int = framework_pb2.VarType.FP32) -> framework_pb2.VarDesc:
    """Declares a tensor of one dim."""
    variable = block.vars.add(name=name)
    variable.type.type = framework_pb2.VarType.LOD_TENSOR
    variable.type.lod_tensor.tensor.data_type = data_type
    variable.type.lod_tensor.tensor.dims.append(length)
    return variable
