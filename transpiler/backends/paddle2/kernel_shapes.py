"""Shapes that kernels give their results and compile-time shape inference does not say (Paddle 2.6.2 on a CPU).

Found by running each kernel alone and comparing (`tests/backends/paddle2/test_kernel_shapes.py` does it again). Some are known
before the run all the same: `correct` sets those. Where the data decides there may be a most, or a least: `at_most` and `at_least`
give it.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Callable, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np
from paddle.base import core

from transpiler.backends.formulas import Tensor, evaluate
from transpiler.backends.operators import kept_rows
from transpiler.backends.paddle2.contents import KnownContents
from transpiler.backends.paddle2.part_names import sliced_shape
from transpiler.backends.products import product_dims
from transpiler.ir import Size

Shape = Tuple[int, ...]

# Dims by result: formulas of the operands.
_DIMS: Mapping[str, Mapping[str, Tuple[str, ...]]] = MappingProxyType({
    'batch_norm': {'ReserveSpace': ('0',)},
    'nanmedian': {'MedianIndex': ('2*#X',)},  # two places for each element
    'warpctc': {'Loss': ('Logits[1]', '1')},  # padded: [words, sentences, classes]
    'warprnnt': {'loss': ('input[0]',)},
})  # yapf: disable
# Results that are like an operand.
_LIKE: Mapping[str, Mapping[str, str]] = MappingProxyType({
    'crop_grad': {'X@GRAD': 'X'},  # inferred like the gradient that it is given
    'crop_tensor_grad': {'X@GRAD': 'X'},
    'expand_as_v2': {'Out': 'Y'},
    # A gradient, like what it is the gradient of; the array is linked in, its shape is not known yet.
    'read_from_array': {'Out': 'X_W'},
    'warpctc': {'WarpCTCGrad': 'Logits'},
    'warprnnt': {'warprnntgrad': 'input'},
})  # yapf: disable
# What an open dim of a result is at the most: the kernel picks elements of an operand, or counts them.
_MOST: Mapping[str, Mapping[str, str]] = MappingProxyType({
    'masked_select': {'Y': '#X'},
    'where_index': {'Out': '#Condition'},
    'unique': dict.fromkeys(('Out', 'Index', 'Indices', 'Counts'), '#X'),
    'unique_consecutive': dict.fromkeys(('Out', 'Index', 'Counts'), '#X'),
    'unique_with_counts': dict.fromkeys(('Out', 'Index', 'Count'), '#X'),
    'nms': {'KeepBoxesIdxs': 'Boxes[0]'},
    'distribute_fpn_proposals': {
        'MultiFpnRois': 'FpnRois[0]', 'RestoreIndex': 'FpnRois[0]', 'MultiLevelRoIsNum': 'RoisNum[0]'},
    'generate_proposals_v2': {'RpnRois': 'Scores[0]*@post_nms_topN', 'RpnRoiProbs': 'Scores[0]*@post_nms_topN'},
    'matrix_nms': {'RoisNum': 'BBoxes[0]'},
})  # yapf: disable
# What an open dim of a result is at the least, where the data may make any number of it.
_LEAST: Mapping[str, Mapping[str, str]] = MappingProxyType({
    'bincount': {'Out': '1*@minlength'},
})  # yapf: disable
LEAST_KINDS = frozenset(_LEAST)
_PICK_ROWS = ('unique', 'unique_consecutive')
_NUMBERS = MappingProxyType({
    core.VarDesc.VarType.FP32: np.float32,
    core.VarDesc.VarType.FP64: np.float64,
})


def correct(op: core.OpDesc, kind: str, block: core.BlockDesc, contents: KnownContents) -> None:
    """Gives the results of `op`, of this kind, whose shapes were just inferred those that its kernel will give them."""
    if kind in _BY_KIND:
        _BY_KIND[kind](op, block, contents)
    for slot, like in _LIKE.get(kind, {}).items():
        source = _shape(op, like, block)
        if source is not None:
            _set(op, slot, block, source)
    for slot, dims in _DIMS.get(kind, {}).items():
        found = [_number(formula, op, block) for formula in dims]
        if None not in found:
            _set(op, slot, block, found)


def at_most(op: core.OpDesc, kind: str, name: str, shape: Shape, block: core.BlockDesc) -> Shape:
    """`shape` of the result `name`, its open dims as large as they can be; as it is where nobody knows."""
    most = _rows(op, block) if kind in _PICK_ROWS else None
    return _with_dims(op, name, shape, block, _MOST.get(kind, {}), most)


def at_least(op: core.OpDesc, kind: str, name: str, shape: Shape, block: core.BlockDesc) -> Shape:
    """`shape` of the result `name`, its open dims as small as they can be; as it is where nobody knows."""
    return _with_dims(op, name, shape, block, _LEAST.get(kind, {}))


def _with_dims(op: core.OpDesc,
               name: str,
               shape: Shape,
               block: core.BlockDesc,
               formulas: Mapping[str, str],
               known: Optional[int] = None) -> Shape:
    """`shape` with the number of the formula of its slot, or what is `known` if anything is, in the place of open dims."""
    slot = next((s for s in formulas if s in op.output_names() and name in op.output(s)), None)
    if slot is None:
        return shape
    found = _number(formulas[slot], op, block) if known is None else known
    return shape if found is None else tuple(found if dim < 0 else dim for dim in shape)


def _rows(op: core.OpDesc, block: core.BlockDesc) -> Optional[int]:
    """The dim of which parts are picked; None if it is all elements."""
    axis, source = list(op.attr('axis') or ()), _shape(op, 'X', block)
    return source[axis[0]] if axis and source is not None else None


def _number(formula: str, op: core.OpDesc, block: core.BlockDesc) -> Optional[int]:
    """What `formula` is of the operands of `op`; None if a shape is not known, or an operand is not there."""
    factors = [part for part in formula.split('*') if not part.startswith('@')]
    named = [part[1:] for part in formula.split('*') if part.startswith('@')]
    if not all(map(op.has_attr, named)):  # a tensor has it
        return None
    slots: Dict[str, Tuple[Tensor, ...]] = {}
    for slot in op.input_names():
        shapes = [_dims(block, name) for name in op.input(slot)]
        slots[slot] = tuple(
            Tensor(None if s is None else tuple(map(Size.of, s)), 1) for s in shapes)
    found = evaluate('*'.join(factors), slots)
    return None if found is None else math.prod(map(op.attr, named)) * found.evaluate({})


def _shape(op: core.OpDesc, slot: str, block: core.BlockDesc) -> Optional[Shape]:
    """That of the first tensor of a slot, if all its dims are known."""
    if slot not in op.input_names() or not op.input(slot):
        return None
    return _dims(block, op.input(slot)[0])


def _dims(block: core.BlockDesc, name: str) -> Optional[Shape]:
    variable = block.find_var_recursive(name.encode())
    shape = None if variable is None else tuple(variable.shape())
    return None if shape is None or any(dim < 0 for dim in shape) else shape


def _set(op: core.OpDesc, slot: str, block: core.BlockDesc, shape: Sequence[int]) -> None:
    names = op.output(slot) if slot in op.output_names() else ()
    variable = block.find_var_recursive(names[0].encode()) if names else None
    if variable is not None:
        variable.set_shape(list(shape))


def _slice(op: core.OpDesc, block: core.BlockDesc, contents: KnownContents) -> None:
    """Where the parts of a program begin and end is computed as it runs."""
    if 'EndsTensor' not in op.input_names() or not op.input('EndsTensor'):
        return
    source, result = op.input('Input')[0], op.output('Out')[0]
    shape = sliced_shape(source, result, block.find_var_recursive(source.encode()).shape())
    if shape is not None:
        _set(op, 'Out', block, shape)


def _flatten(op: core.OpDesc, block: core.BlockDesc, contents: KnownContents) -> None:
    """Counted in 32 bits, in which the dims of a probe may have no room."""
    shape = _shape(op, 'X', block)
    if shape:
        start, end = (op.attr(a) % len(shape) for a in ('start_axis', 'stop_axis'))
        one = math.prod(shape[start:end + 1])
        _set(op, 'Out', block, [*shape[:start], one, *shape[end + 1:]])


def _rnn(op: core.OpDesc, block: core.BlockDesc, contents: KnownContents) -> None:
    """The kernel sizes what it keeps for its gradient itself."""
    kept = block.find_var_recursive(op.output('Out')[0].encode())
    out = kept.shape()
    reserve = block.find_var_recursive(op.output('Reserve')[0].encode())
    if reserve is not None and -1 not in out and not op.attr('is_test'):
        rows = kept_rows(op.attr('mode'), op.attr('num_layers'))
        reserve.set_shape([rows, math.prod(out) * _item_bytes(kept) // _item_bytes(reserve)])


def _item_bytes(variable: core.VarDesc) -> int:
    """What is declared for the reserve is bytes, but elements of the result's type are in it."""
    return core.size_of_dtype(variable.dtype())


def _product(op: core.OpDesc, block: core.BlockDesc, contents: KnownContents) -> None:
    """The matrices of both operands are broadcast; inferred are those of the one that has more dims."""
    x, y, made = _shape(op, 'X', block), _shape(op, 'Y', block), _dims(block, op.output('Out')[0])
    if x and y and made is not None:
        _set(op, 'Out', block, product_dims(x, y, made))


def _range(op: core.OpDesc, block: core.BlockDesc, contents: KnownContents) -> None:
    ends = [contents.of(op, slot) for slot in ('Start', 'End', 'Step')]
    if not all(ends):
        return
    kind = block.find_var_recursive(op.output('Out')[0].encode()).dtype()
    start, end, step = (_NUMBERS.get(kind, np.int64)(each[0]) for each in ends)
    if step:
        _set(op, 'Out', block, [max(0, math.ceil((end - start) / step))])


def _spaced(op: core.OpDesc, block: core.BlockDesc, contents: KnownContents) -> None:
    count = contents.of(op, 'Num')
    if count:
        _set(op, 'Out', block, [int(count[0])])


def _affine_grid(op: core.OpDesc, block: core.BlockDesc, contents: KnownContents) -> None:
    wanted = contents.of(op, 'OutputShape') or list(op.attr('output_shape') or ())
    theta = _shape(op, 'Theta', block)
    if wanted and theta is not None:
        _set(op, 'Output', block, [theta[0], *map(int, wanted[2:]), len(wanted) - 2])


_BY_KIND: Mapping[str, Callable[[core.OpDesc, core.BlockDesc, KnownContents],
                                None]] = MappingProxyType({
                                    'flatten_contiguous_range': _flatten,
                                    'slice': _slice,
                                    'matmul_v2': _product,
                                    'rnn': _rnn,
                                    'range': _range,
                                    'linspace': _spaced,
                                    'logspace': _spaced,
                                    'affine_grid': _affine_grid,
                                })
