"""Gradients of broadcasts: what their kernels allocate (Paddle 3.3.1 on a CPU)."""

from __future__ import annotations

from typing import FrozenSet, Optional

from transpiler.backends.broadcasts import in_one_run
from transpiler.backends.formulas import Slots
from transpiler.ir import NOTHING, Size

ADD = 'add_grad'
KINDS: FrozenSet[str] = frozenset({
    ADD, 'subtract_grad', 'multiply_grad', 'divide_grad', 'elementwise_pow_grad', 'maximum_grad', 'minimum_grad', 'fmax_grad',
    'fmin_grad', 'heaviside_grad', 'remainder_grad'
})  # yapf: disable


def workspace(kind: str, slots: Slots) -> Optional[Size]:
    """Bytes besides the results: those once more, unless the operands are broadcast in one run of dims. But for the gradient of
    a sum that nobody broadcasts, where no other is asked for: it is a copy."""
    operands = [tensor.shape for slot in ('x', 'y') for tensor in slots[slot]]
    results = [tensor for slot in ('x_grad', 'y_grad') for tensor in slots.get(slot, ())]
    if None in operands or any(each.shape is None for each in results):
        return None
    if in_one_run(set(operands)):
        return NOTHING
    if kind == ADD and [each.shape for each in results
                       ] == [each.shape for each in slots['out_grad']]:
        return NOTHING
    return Size.total(each.bytes for each in results)
