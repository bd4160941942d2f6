"""Runs the operators of a program one at a time, and sees what each allocates.

All tensors stay in one scope, so that each operator finds what the ones before it made. What the counter shows above
what stays allocated when the operator is through is its kernel's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np
import paddle
from paddle.base import core
from paddle.base.proto import framework_pb2

from benchmarks.kernels.fit import Sample
from transpiler.backends import formulas
from transpiler.backends.kernel_tables import Kernel
from transpiler.backends.paddle2.registry import EMPTY_NAME
from transpiler.backends.paddle2.workspaces import attributes_of
from transpiler.ir import Size
from transpiler.serving.apart import current_bytes, peak_bytes

_VarType = core.VarDesc.VarType
_FLOAT_BYTES = 4
# And in the calling thread: of each thread Paddle counts peaks only above what that thread has held once.
_IN_ORDER = {
    'FLAGS_new_executor_sequential_run': True,
    'FLAGS_new_executor_serial_run': True,
}


@dataclass(frozen=True)
class Tensor:
    """A tensor as it was when the operator ran; no dtype if it had no memory. `rows`: of selected rows."""

    shape: Tuple[int, ...]
    dtype: str
    rows: bool = False


Slots = Mapping[str, Tuple[Tensor, ...]]
# Attributes that no kernel looks at.
_NOT_FACTS = frozenset({
    'op_role', 'op_role_var', 'op_namescope', 'op_callstack', 'op_device', 'with_quant_attr', 'name'
})


@dataclass(frozen=True)
class Observation:
    """What one run of one operator allocated, in bytes.

    `own`: above what stayed. `kept`: what stayed; `declared`: what its new results should take.
    """

    desc: framework_pb2.OpDesc
    inputs: Slots
    outputs: Slots
    own: int
    kept: int
    declared: int

    def to_dict(self) -> Dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            **self.__dict__, 'desc': self.desc.SerializeToString().hex(),
            'inputs': _plain(self.inputs),
            'outputs': _plain(self.outputs)
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Observation:
        """What `to_dict` made."""
        desc = framework_pb2.OpDesc.FromString(bytes.fromhex(found['desc']))
        slots = {name: _tensors(found[name]) for name in ('inputs', 'outputs')}
        return cls(**{**found, **slots, 'desc': desc})


def sample(seen: Observation) -> Sample:
    """`seen`, with what it says of a kernel."""
    slots: Dict[str, Tuple[formulas.Tensor, ...]] = {}
    for said, named in ((seen.desc.inputs, seen.inputs), (seen.desc.outputs, seen.outputs)):
        for slot in said:
            tensors = zip(slot.arguments, named.get(slot.parameter, ()))
            slots.setdefault(slot.parameter,
                             tuple(_of_formula(t) for name, t in tensors if name != EMPTY_NAME))
    names = frozenset(a.name for a in seen.desc.attrs) - _NOT_FACTS
    return Sample(Kernel(seen.desc.type, attributes_of(seen.desc), slots), seen.own, names)


def _of_formula(seen: Tensor) -> formulas.Tensor:
    item = core.size_of_dtype(getattr(core.VarDesc.VarType, seen.dtype)) if seen.dtype else 0
    return formulas.Tensor(tuple(map(Size.of, seen.shape)), item, seen.dtype, seen.rows)


def _plain(slots: Slots) -> Dict[str, Any]:
    return {slot: [[list(t.shape), t.dtype, t.rows] for t in each] for slot, each in slots.items()}


def _tensors(slots: Mapping[str, Any]) -> Slots:
    return {
        slot: tuple(Tensor(tuple(shape), dtype, rows) for shape, dtype, rows in each)
        for slot, each in slots.items()
    }


class Bench:
    """Runs operators alone in a scope of its own.

    The peak cannot be reset. Untouched tensors, which cost no pages, fill the gap between what is held and the highest
    peak so far: so the next peak shows whatever its size.
    """

    def __init__(self) -> None:
        self._flags = paddle.get_flags(list(_IN_ORDER))
        paddle.set_flags(_IN_ORDER)
        self.scope = paddle.static.Scope()
        self._executor = paddle.static.Executor(paddle.CPUPlace())
        self._ballast: List[core.LoDTensor] = []

    def close(self) -> None:
        """Gives all memory back."""
        self._ballast.clear()
        self._executor.close()
        paddle.set_flags(self._flags)
        self.scope._remove_from_pool()

    def feed(self, values: Mapping[str, Any]) -> None:
        """Sets inputs: arrays, or pairs of an array and the lengths of its sequences."""
        for name, value in values.items():
            array, lengths = value if isinstance(value, tuple) else (value, None)
            tensor = self.scope.var(name).get_tensor()
            tensor.set(np.ascontiguousarray(array), core.CPUPlace())
            if lengths is not None:
                tensor.set_recursive_sequence_lengths([lengths])

    def run(self, program: paddle.static.Program) -> Iterator[Observation]:
        """What each operator of the main block allocates, in program order.

        Raises:
            whatever an operator does.
        """
        block = program.global_block()
        for op in block.ops:
            yield self.run_op(block, op)

    def run_op(self, block: Any, op: Any) -> Observation:
        alone = _alone(block, op)
        inputs = self._tensors({s: op.input(s) for s in op.input_names})
        with paddle.static.scope_guard(self.scope):
            before = self._held(op.output_arg_names)
            self._fill()
            start = current_bytes()
            self._executor.run(alone)
            peak, end = peak_bytes(), current_bytes()
        outputs = self._tensors({s: op.output(s) for s in op.output_names})
        declared = sum(
            _bytes(t)
            for slot in op.output_names
            for name, t in zip(op.output(slot), outputs.get(slot, ()))
            if name not in before)
        desc = framework_pb2.OpDesc.FromString(op.desc.serialize_to_string())
        return Observation(desc, inputs, outputs, peak - max(end, start), end - start, declared)

    def tensor(self, name: str) -> Any:
        """The tensor of that name, if it has one with memory, else None."""
        variable = self.scope.find_var(name)
        return None if variable is None else _dense(variable)

    def _fill(self) -> None:
        gap = (peak_bytes() - current_bytes()) // _FLOAT_BYTES
        if gap > 0:
            tensor = core.LoDTensor()
            tensor._set_dims([gap])
            tensor._alloc_float(core.CPUPlace())
            self._ballast.append(tensor)

    def _held(self, names: List[str]) -> List[str]:
        """Those of `names` that have memory already."""
        found = ((n, self.scope.find_var(n)) for n in names)
        return [n for n, variable in found if variable is not None and _dense(variable) is not None]

    def _tensors(self, names: Mapping[str, List[str]]) -> Dict[str, Tuple[Tensor, ...]]:
        return {slot: tuple(self._tensor(n) for n in each) for slot, each in names.items() if each}

    def _tensor(self, name: str) -> Tensor:
        variable = self.scope.find_var(name)
        tensor = None if variable is None else _dense(variable)
        if tensor is None:
            return Tensor((), '')
        return Tensor(tuple(tensor.shape()), tensor._dtype().name, _is_rows(variable))


def _alone(block: Any, op: Any) -> paddle.static.Program:
    """A program of `op` alone, none of whose tensors is collected."""
    program = paddle.static.Program()
    made = program.global_block().desc
    for name in dict.fromkeys(op.input_arg_names + op.output_arg_names):
        like = block._find_var_recursive(name)
        if like is None:
            continue
        kind = like.desc.type()
        variable = made.var(name.encode())
        variable.set_type(kind)
        if kind in (_VarType.LOD_TENSOR, _VarType.SELECTED_ROWS):
            variable.set_shape(like.desc.shape())
            variable.set_dtype(like.desc.dtype())
        variable.set_persistable(True)
    made.append_op().copy_from(op.desc)
    program._sync_with_cpp()
    return program


def _dense(variable: Any) -> Any:
    """The tensor of a variable that has one with memory, else None."""
    tensor = variable.get_selected_rows().get_tensor() if _is_rows(variable) else None
    if tensor is None:
        try:
            tensor = variable.get_tensor()
        except (RuntimeError, ValueError):  # an array, scopes, ...
            return None
    return tensor if tensor._is_initialized() else None


def _is_rows(variable: Any) -> bool:
    try:
        variable.get_selected_rows()
    except (RuntimeError, ValueError):
        return False
    return True


def _bytes(tensor: Tensor) -> int:
    if not tensor.dtype:
        return 0
    return int(np.prod(tensor.shape, dtype=np.int64)) * core.size_of_dtype(
        getattr(_VarType, tensor.dtype))
