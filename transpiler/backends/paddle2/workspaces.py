"""What kernels allocate for themselves while they run (Paddle 2.6.2 on a CPU, without oneDNN).

`workspaces.json` is what `python -m benchmarks.kernels` found by running each kernel alone at several sizes. For each
kind of operator it has cases, of which the first whose conditions hold gives the bytes: a formula, see `formulas`.
Conditions are `last @axis` (the attribute is the last dim of the first operand), `@name = value` in JSON, `has SLOT`,
`rows SLOT` (selected rows), `alike SLOT SLOT` (of one type), `SLOT of FP32`, `SLOT dims 4`, `negative @name` (one of its numbers is),
or two formulas that are equal; `not` turns each around.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2 import einsum
from transpiler.backends.paddle2.formulas import Slots, Tensor, evaluate
from transpiler.ir import NOTHING, Graph, Op, Size, Value, ValueKind

TABLE = Path(__file__).with_name('workspaces.json')
# Kernels that only run others, move names about, or hand buffers in and out.
_WITHOUT = frozenset({'feed', 'fetch', 'fetch_v2', 'share_buffer', 'share_data', 'depend', 'nop'})
# Kernels that wait for those of other workers, and take no memory of Paddle's besides: tests/fleet_worker.py runs them over gloo.
COLLECTIVES = frozenset({
    'c_allreduce_sum', 'c_allreduce_max', 'c_allreduce_min', 'c_allreduce_prod', 'c_broadcast',
    'c_reduce_sum', 'c_reduce_max', 'c_allgather'
})
_Attribute = framework_pb2.OpDesc.Attr
_BLOCKS = (framework_pb2.BLOCK, framework_pb2.BLOCKS)


class Case(NamedTuple):
    """Bytes of the kernels for which all of `when` hold. `at_most`: a bound, where no formula gives them to the byte."""

    when: Tuple[str, ...]
    bytes: str
    at_most: bool = False


class Kernel(NamedTuple):
    """An operator about to run: its attributes, and the tensors of its slots, inputs before outputs."""

    kind: str
    attributes: Callable[[str], Any]
    slots: Slots


@lru_cache(maxsize=1)
def table() -> Mapping[str, Tuple[Case, ...]]:
    """Cases by kind of operator."""
    return parse(TABLE.read_text(encoding='utf-8'))


def parse(text: str) -> Mapping[str, Tuple[Case, ...]]:
    """The table that `text` holds as JSON."""
    found: Dict[str, Tuple[Case, ...]] = {}
    for kind, cases in json.loads(text).items():
        found[kind] = tuple(
            Case(tuple(c.get('when', ())), c['bytes'], c.get('at_most', False)) for c in cases)
    return MappingProxyType(found)


def case_of(kernel: Kernel, cases: Tuple[Case, ...]) -> Optional[Case]:
    """The first of `cases` whose conditions hold for `kernel`."""
    return next((case for case in cases if all(holds(c, kernel) for c in case.when)), None)


def workspace(kernel: Kernel, cases: Tuple[Case, ...]) -> Optional[Size]:
    """Bytes that `kernel` allocates besides its results, by `cases`; None if they don't tell."""
    if kernel.kind in (einsum.KIND, einsum.GRADIENT):
        exact = einsum.workspace(kernel.kind, kernel.attributes(einsum.EQUATION), kernel.slots)
        if exact is not None:
            return exact
    case = case_of(kernel, cases)
    return None if case is None else evaluate(case.bytes, kernel.slots)


def workspace_of(graph: Graph, op: Op, desc: framework_pb2.OpDesc) -> Optional[Size]:
    """Bytes that the kernel of `op`, imported from `desc` into `graph`, allocates besides its results; None if nobody
    knows."""
    if desc.type in _WITHOUT | COLLECTIVES or any(a.type in _BLOCKS for a in desc.attrs):
        return NOTHING
    cases = table().get(desc.type, ())
    if len(cases) == 1 and cases[0].bytes == '0':
        return NOTHING
    return workspace(kernel_of(graph, op, desc), cases)


def holds(condition: str, kernel: Kernel) -> bool:
    """Whether `condition` does for `kernel`; one about a dim that nobody knows does not."""
    if condition.startswith('not '):
        return not holds(condition[4:], kernel)
    words = condition.split()
    if words[0] == 'last':
        return _is_last(kernel, words[1][1:])
    if words[0] == 'negative':
        return any(number < 0 for number in kernel.attributes(words[1][1:]) or ())
    if words[0] == 'has':
        return bool(kernel.slots.get(words[1]))
    if words[0] == 'rows':
        return any(t.rows for t in kernel.slots.get(words[1], ()))
    if words[0] == 'alike':
        one, other = ({t.dtype for t in kernel.slots.get(slot, ())} for slot in words[1:])
        return one == other
    if words[1] == 'dims':
        first = kernel.slots.get(words[0], ())
        return bool(first) and first[0].shape is not None and len(first[0].shape) == int(words[2])
    if words[1] == 'of':
        return any(t.dtype == words[2] for t in kernel.slots.get(words[0], ()))
    left, right = condition.split(' = ')
    if left.startswith('@'):
        return _plain(kernel.attributes(left[1:])) == json.loads(right)
    sides = evaluate(left, kernel.slots), evaluate(right, kernel.slots)
    return None not in sides and sides[0] == sides[1]


def attributes_of(desc: framework_pb2.OpDesc) -> Callable[[str], Any]:
    """Gives an attribute of `desc` by its name; None if it has none."""

    def find(name: str) -> Any:
        return next((_value(a) for a in desc.attrs if a.name == name), None)

    return find


def _is_last(kernel: Kernel, name: str) -> bool:
    axis = kernel.attributes(name)
    axis = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    first = kernel.slots.get('X') or kernel.slots.get('Input') or ()
    if isinstance(axis, list) or axis is None or not first or first[0].shape is None:
        return False
    return axis in (-1, len(first[0].shape) - 1)


def _plain(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


_FIELDS: Mapping[int, str] = MappingProxyType({
    framework_pb2.INT: 'i', framework_pb2.FLOAT: 'f', framework_pb2.STRING: 's',
    framework_pb2.BOOLEAN: 'b', framework_pb2.LONG: 'l', framework_pb2.FLOAT64: 'float64',
    framework_pb2.INTS: 'ints', framework_pb2.LONGS: 'longs', framework_pb2.FLOATS: 'floats',
    framework_pb2.BOOLEANS: 'bools', framework_pb2.STRINGS: 'strings',
})  # yapf: disable


def _value(attribute: _Attribute) -> Any:
    field = _FIELDS.get(attribute.type)
    if field is None:
        return None
    value = getattr(attribute, field)
    if isinstance(value, (int, float, str)):
        return value
    found: List[Any] = list(value)
    return found


def kernel_of(graph: Graph, op: Op, desc: framework_pb2.OpDesc) -> Kernel:
    """`op` of `graph`, which is imported from `desc`, as the kernel that it runs."""
    named = values_of(graph, desc.outputs, op.results)
    named.update(values_of(graph, desc.inputs, op.operands))
    slots = {slot: tuple(map(_tensor, values)) for slot, values in named.items()}
    return Kernel(desc.type, attributes_of(desc), slots)


def values_of(graph: Graph, slots: Iterable[framework_pb2.OpDesc.Var],
              ids: Tuple[int, ...]) -> Dict[str, Tuple[Value, ...]]:
    """By slot: the values of `graph` that it names; `ids` are those of all `slots` by position."""
    found: Dict[str, Tuple[Value, ...]] = {}
    position = 0
    for slot in slots:
        own = ids[position:position + len(slot.arguments)]
        position += len(own)
        found.setdefault(slot.parameter, tuple(graph.values[v] for v in own if v >= 0))
    return found


def _tensor(value: Value) -> Tensor:
    return Tensor(value.shape,
                  item_bytes(value.dtype) if value.dtype else 0, value.dtype, value.kind
                  is ValueKind.SELECTED_ROWS)


@lru_cache(maxsize=None)
def item_bytes(dtype: str) -> int:
    """Bytes of an element of a type, by its name."""
    return core.size_of_dtype(getattr(core.VarDesc.VarType, dtype))
