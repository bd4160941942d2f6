"""Which operands decide the dims of a result, by the names that Paddle gives to what gradients read and make: `x_grad` is like `x`."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

_PRODUCTS = frozenset({'matmul', 'matmul_v2'})  # of matrices, their two innermost dims
_OF_EACH_ELEMENT = ('elementwise_', 'logical_', 'bitwise_')  # as names begin
_OTHERS = frozenset({
    'add_n', 'concat', 'where', 'equal', 'not_equal', 'less_than', 'less_equal', 'greater_than',
    'greater_equal', 'fmax', 'fmin', 'lerp', 'heaviside', 'hypot', 'nextafter', 'copysign',
    'masked_fill', 'addmm', 'baddbmm', 'gammaincc', 'trunc_divide'
})  # `add_n` wants them all alike, `concat` in all dims but one

Slots = Sequence[Sequence[int]]  # by slot: positions of its arguments


def extents_of(kind: str,
               names_in: Sequence[str],
               operands: Slots,
               names_out: Sequence[str],
               results: Slots,
               gradient: str,
               each_element: bool = False) -> Dict[str, Any]:
    """Those of `OpFacts`. What the gradient of a slot is called ends in `gradient`; `each_element`: it is known to take its operands
    element by element."""
    given = dict(zip(names_in, operands))
    alike, gradients = [], []
    for name, made in zip(names_out, results):
        alike += zip(made, given.get(_without(name, gradient), ()))
    for name, positions in given.items():
        if _without(name, gradient) in given:
            gradients += positions
    return {
        'alike': tuple(alike),
        'gradients': frozenset(gradients),
        'broadcasts': 0 if each_element else _inner_dims(kind)
    }


def _without(name: str, ending: str) -> str:
    return name[:-len(ending)] if name.endswith(ending) else ''


def _inner_dims(kind: str) -> Optional[int]:
    if kind.endswith('_grad'):
        return None
    if kind in _PRODUCTS:
        return 2
    return 0 if kind.startswith(_OF_EACH_ELEMENT) or kind in _OTHERS else None
