"""What Paddle's registry says an operator looks like, against how a file has it: slots, attributes and their types."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import Dict, Iterable, Mapping, Optional

from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.registry import EMPTY_NAME

_GRADIENT = '_grad'
GRADIENT_OF = '@GRAD'  # ends the name of a slot, and is in the names of gradients
_WHOLE = frozenset({'BOOLEAN', 'INT', 'LONG', 'SCALAR', 'VAR', 'VARS'})
_WHOLES = frozenset({'BOOLEANS', 'INTS', 'LONGS', 'SCALARS', 'VAR', 'VARS'})
# By the type that is registered, those that Paddle takes in its place, of programs of other versions too.
_TAKEN: Mapping[str, frozenset] = MappingProxyType({
    **dict.fromkeys(('BOOLEAN', 'INT', 'LONG'), _WHOLE),
    **dict.fromkeys(('FLOAT', 'FLOAT64', 'SCALAR'), _WHOLE | {'FLOAT', 'FLOAT64'}),
    **dict.fromkeys(('BOOLEANS', 'INTS', 'LONGS'), _WHOLES),
    **dict.fromkeys(('FLOATS', 'FLOAT64S', 'SCALARS'), _WHOLES | {'FLOATS', 'FLOAT64S'}),
})
_LISTS = ('ints', 'floats', 'strings', 'bools', 'longs', 'float64s', 'scalars')


def malformed(op: framework_pb2.OpDesc) -> Optional[str]:
    """What `op` lacks, or has of a wrong type; None if nothing. Of gradients the registry knows the attributes only."""
    return _wrong_slot(op) or _wrong_attribute(op)


def _wrong_slot(op: framework_pb2.OpDesc) -> Optional[str]:
    """Outputs may be missing: what an operator does not find there, it does not make."""
    for what, slots in (('input', op.inputs), ('output', op.outputs)):
        names = [s.parameter for s in slots]
        if len(set(names)) < len(names):
            return f'has an {what} twice'
    given = {s.parameter for s in op.inputs if any(n != EMPTY_NAME for n in s.arguments)}
    form = _protos().get(op.type)
    runs_block = any(a.type == framework_pb2.BLOCK for a in op.attrs)
    for slot in form.inputs if form is not None else ():
        # What runs a block takes what the block reads, which may be nothing.
        may_lack = slot.dispensable or slot.extra or (slot.duplicable and runs_block)
        if not may_lack and slot.name not in given:
            return f'has no input {slot.name!r}'
    is_gradient = form is None and op.type.endswith(_GRADIENT)
    if is_gradient and not any(name.endswith(GRADIENT_OF) for name in given):
        return 'has no gradient among its inputs'
    return None


def _wrong_attribute(op: framework_pb2.OpDesc) -> Optional[str]:
    known = _attribute_types(op.type)
    for attribute in op.attrs:
        wanted = known.get(attribute.name)
        found = framework_pb2.AttrType.Name(attribute.type)
        if wanted is None or found == wanted or found in _TAKEN.get(wanted, ()):
            continue
        # Python's empty list has no type.
        if not (wanted.endswith('S') and found.endswith('S') and not _length(attribute)):
            return f'has attribute {attribute.name!r} as {found}, which is {wanted}'
    return None


def _length(attribute: framework_pb2.OpDesc.Attr) -> int:
    return sum(len(getattr(attribute, name)) for name in _LISTS)


@lru_cache(maxsize=None)
def _protos() -> Dict[str, framework_pb2.OpProto]:
    found = map(framework_pb2.OpProto.FromString, core.get_all_op_protos())
    return {proto.type: proto for proto in found}


@lru_cache(maxsize=None)
def _attribute_types(kind: str) -> Mapping[str, str]:
    """By name. A gradient takes over the attributes of its operator; some are the same for all."""
    while kind not in _protos() and kind.endswith(_GRADIENT):
        kind = kind[:-len(_GRADIENT)]
    proto = _protos().get(kind)
    return _types_of(proto.attrs) if proto is not None else _common_types()


@lru_cache(maxsize=None)
def _common_types() -> Mapping[str, str]:
    shared = [_types_of(proto.attrs).items() for proto in _protos().values()]
    return dict(set.intersection(*map(set, shared))) if shared else {}


def _types_of(attributes: Iterable[framework_pb2.OpProto.Attr]) -> Mapping[str, str]:
    return {a.name: framework_pb2.AttrType.Name(a.type) for a in attributes}
