"""Open dims: where a dim of a result is open, what made it tells, unless Paddle's own inference does (`symbolic`).

What is `told` holds in every run. What is `guessed` is for figures alone: an operator that Paddle's inference does not know may do with
its operands what it likes.
"""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType
from typing import Any, Callable, List, Mapping, Optional, Sequence

from transpiler.backends.operators import kept_rows
from transpiler.backends.paddle3.aliases import DIALECT
from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.constants import constant_maker
from transpiler.backends.paddle3.marks import rows_of
from transpiler.backends.paddle3.naming import bare_kind
from transpiler.backends.paddle3.operators import UNMADE
from transpiler.backends.paddle3.tensors import Shape
from transpiler.ir import Size
from transpiler.ir.symbols import BATCH

# Their result has the elements of their first operand.
_SAME_ELEMENTS = ('reshape', 'flatten', 'squeeze', 'unsqueeze', 'view_shape')
# They change no dim but those along their axes.
_ALONG_AXES = ('split', 'slice', 'strided_slice', 'topk', 'kthvalue', 'unbind', 'stack')
# Their result's open dims are not those of an operand.
_NEW_DIMS = ('expand', 'tile', 'repeat', 'gather', 'nonzero', 'masked_select', 'unique', 'pad', 'arange', 'linspace',
             'full', 'one_hot', 'shape', 'index', 'scatter', 'diag', 'meshgrid', 'sequence', 'unfold')  # yapf: disable
# Slots of what recurrent layers and hierarchical sigmoids keep for their gradients, and of a tree of one's own.
_MASK, _KEPT, _PRODUCTS, _WAYS = 'dropout_state_out', 'reserve', 'pre_out', 'path'
_NOTHING = (Size(),)
GRADIENT = '_grad'
Shapes = Sequence[Sequence[Optional[Shape]]]  # by slot of an op: of the values there


def declared_shape(dims: Sequence[int]) -> Optional[Shape]:
    """Of an input: its first dim may be open, which is the batch."""
    if any(d < 0 for d in dims[1:]):
        return None
    return tuple(Size.dim(BATCH) if d < 0 else Size.of(d) for d in dims)


def told_shape(op: Any, slot: int, dims: Sequence[int], operands: Shapes) -> Optional[Shape]:
    """The shape of a result of `op` with these dims, below 0 where open, by what the program says; None if it does not."""
    open_at = _open_at(dims)
    if not open_at:
        return tuple(map(Size.of, dims))
    if bare_kind(op) == 'transpose_grad' and operands[0][0] is not None:
        at = {to: i for i, to in enumerate(given_attributes(op)['perm'])}
        return tuple(operands[0][0][at[i]] for i in range(len(dims)))
    share = rows_of(op)
    if share is not None and open_at == [0]:
        return (Size.dim(BATCH) * share, *map(Size.of, dims[1:]))
    return None


def all_fixed(shapes: Shapes) -> bool:
    """Whether no dim is open, nor unknown: of such operands an operator declares what it makes, and the inference may contradict it."""
    return all(s is not None and all(d.is_constant for d in s) for slot in shapes for s in slot)


def kernel_shape(op: Any, slot: int, operands: Shapes) -> Optional[Shape]:
    """The shape of a result that is as the kernel makes it, whatever Paddle says of it: declared, or inferred; None of all others."""
    kind = bare_kind(op)
    if kind not in UNMADE and kind not in _KEEP:
        return None
    name = op.get_output_names()[slot]
    if kind in _KEEP:
        return _KEEP[kind](op, name, operands)
    return _NOTHING if name == UNMADE[kind] else None


def gradient_source(op: Any, slot: int, dims: Sequence[int]) -> Optional[Any]:
    """The value that a result of `op` with these dims is the gradient of, and looks like, where `op` has that, or what was made of it by the
    operator whose gradient it is; None of lists."""
    if not bare_kind(op).endswith(GRADIENT):
        return None
    own = gradients_of(op)[slot]
    source = _of_forward(op, slot) if own is None else op.operand_source(own)
    dense = source is not None and source.initialized() and source.is_dense_tensor_type()
    return source if dense and _agree(source.shape, dims) else None


def _of_forward(op: Any, slot: int) -> Optional[Any]:
    name = op.get_output_names()[slot] if op.name().startswith(DIALECT) else ''
    for value in op.operands_source():
        maker = value.get_defining_op() if value.initialized() else None
        if maker is not None and f'{bare_kind(maker)}{GRADIENT}' == bare_kind(op):
            named = zip(maker.get_input_names(), maker.operands_source())
            return next((v for each, v in named if f'{each}{GRADIENT}' == name), None)
    return None


def _agree(dims: Sequence[int], others: Sequence[int]) -> bool:
    return len(dims) == len(others) and all(a == b or min(a, b) < 0 for a, b in zip(dims, others))


def guessed_shape(op: Any, dims: Sequence[int], operands: Shapes) -> Optional[Shape]:
    """The shape of a result if `op` makes it as most operators do; None where they differ."""
    given = [s for slot in operands for s in slot]
    shapes = [s for s in given if s is not None]
    if bare_kind(op).endswith(GRADIENT):
        fitting = {s for s in shapes if _fits(s, dims)}
        if len(fitting) == 1:
            return fitting.pop()
    open_at = _open_at(dims)
    # What a rule of the operator made of an open dim is no dim.
    if min(dims) < -1 or op.num_regions() or len(open_at) > 1 or not shapes or len(shapes) < len(
            given):
        return None
    dim = _open_dim(op, dims, open_at[0], shapes)
    return None if dim is None else tuple(dim if d < 0 else Size.of(d) for d in dims)


def _open_at(dims: Sequence[int]) -> List[int]:
    return [i for i, d in enumerate(dims) if d < 0]


def _kept_by_layers(op: Any, name: str, operands: Shapes) -> Optional[Shape]:
    """What the kernel of recurrent layers keeps for its gradient: a mask like its result, and rows; None of another result."""
    given, source = given_attributes(op), operands[0][0]
    if name in (_MASK, _KEPT) and given['is_test']:
        return _NOTHING
    if name not in (_MASK, _KEPT) or source is None:
        return None
    out = (*source[:2], Size.of(given['hidden_size'] * (2 if given['is_bidirec'] else 1)))
    if name == _MASK:
        return out
    return (Size.of(kept_rows(given['mode'], given['num_layers'])), Size.product(out))


def _kept_by_codes(op: Any, name: str, operands: Shapes) -> Optional[Shape]:
    """Of a hierarchical sigmoid: what it made at each turn of the longest way through its tree; None of another result."""
    rows, ways = operands[0][0], operands[op.get_input_names().index(_WAYS)]
    if name != _PRODUCTS or rows is None or None in ways:
        return None
    classes: int = given_attributes(op)['num_classes']
    return (rows[0], ways[0][1] if ways else Size.of((classes - 1).bit_length()))


# By operator: what Paddle declares as empty of what it keeps for its gradient, and infers to be something else.
_KEEP: Mapping[str, Callable[[Any, str, Shapes], Optional[Shape]]] = MappingProxyType({
    'rnn': _kept_by_layers,
    'hsigmoid_loss': _kept_by_codes,
})


def gradients_of(op: Any) -> Sequence[Optional[int]]:
    """For each result of `op` the operand that it is the gradient of, or if that is no operand the one that is like it, by their names;
    None where there is none. A kernel that needs what the operator made in place of what it read is of one that keeps shapes."""
    if not bare_kind(op).endswith(GRADIENT) or not op.name().startswith(DIALECT):
        return [None] * op.num_results()
    names = op.get_input_names()
    at = {f'{name}{GRADIENT}': i for i, name in enumerate(names)}
    if 'x_grad' not in at and 'out' in names:
        at['x_grad'] = names.index('out')
    return [at.get(made) for made in op.get_output_names()]


def _open_dim(op: Any, dims: Sequence[int], at: int, shapes: Sequence[Shape]) -> Optional[Size]:
    kind, axes = bare_kind(op), _axes(op)
    if kind.endswith(GRADIENT):  # like what it is the gradient of
        return _of_one_like_it(dims, at, shapes)
    if kind.startswith(_SAME_ELEMENTS):
        rest = Size.product(d for d in dims if d > 0).evaluate({})
        return Size.product(shapes[0]) * Fraction(1, rest)
    if kind == 'transpose':
        return shapes[0][given_attributes(op)['perm'][at]]
    if kind == 'concat':
        of_rank = [s for s in shapes if len(s) == len(dims)]
        along = _grown(dims, of_rank) if axes is None else _positive(axes, dims)
        if not along:
            return None
        return Size.total(s[at] for s in of_rank) if at in along else of_rank[0][at]
    if kind.startswith(_NEW_DIMS):
        return None
    if kind.startswith(_ALONG_AXES) and (axes is None or at in _positive(axes, dims)):
        return None
    return _of_one_like_it(dims, at, shapes)


def _of_one_like_it(dims: Sequence[int], at: int, shapes: Sequence[Shape]) -> Optional[Size]:
    """Of the operand that the result fits; or the one open dim that there is."""
    found = {s[at] for s in shapes if _fits(s, dims)}
    found = found or {d for s in shapes for d in s if not d.is_constant}
    return found.pop() if len(found) == 1 else None


def _fits(shape: Shape, dims: Sequence[int]) -> bool:
    return len(shape) == len(dims) and all(
        s == d if d >= 0 else not s.is_constant for d, s in zip(dims, shape))


def _axes(op: Any) -> Optional[Sequence[int]]:
    """The axes along which `op` works; None if it does not say."""
    given = given_attributes(op)
    for name in ('axes', 'axis'):
        if name in given:
            return given[name] if isinstance(given[name], list) else [given[name]]
    if 'axis' not in op.get_input_names():
        return None
    maker = constant_maker(op.operand_source(op.get_input_names().index('axis')), 'full')
    value = given_attributes(maker).get('value') if maker is not None else None
    return [int(value)] if isinstance(value, (int, float)) else None


def _grown(dims: Sequence[int], shapes: Sequence[Shape]) -> Sequence[int]:
    """The axes along which what has these `shapes` was put together, by the dims that are not open."""
    return [i for i, d in enumerate(dims) if d >= 0 and any(s[i] != d for s in shapes)]


def _positive(axes: Sequence[int], dims: Sequence[int]) -> Sequence[int]:
    return [axis + len(dims) if axis < 0 else axis for axis in axes]
