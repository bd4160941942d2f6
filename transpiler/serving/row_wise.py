"""Operators whose rows are independent: row r of their results is computed from row r of some operands alone.

Rows are counted on axis 0, which mostly is the batch. What all rows share (weights, statistics, a table of positions) is
no such operand. Only what is in the table below counts; of an operator that is not, nothing is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Callable, Container, FrozenSet, List, Mapping, Optional, Protocol, Sequence, Tuple

from transpiler.ir import Size

Shape = Optional[Tuple[Size, ...]]


class Operator(Protocol):
    """An operator as Paddle 2.6 says it: `kind`, slots and attributes have the names that they have there."""

    @property
    def kind(self) -> str:
        ...

    @property
    def results(self) -> Sequence[Tuple[str, str]]:
        """(slot, name of what is written) in order."""

    def operands(self, *slots: str) -> List[str]:
        """Names of what is read in these slots."""

    def attribute(self, name: str, default: Any) -> Any:
        """Its value, lists as lists; `default` where the operator does not carry it."""


class _Op:
    """What a condition may ask of an operator."""

    def __init__(self, operator: Operator, shapes: Mapping[str, Shape], rows: Size) -> None:
        self.attribute, self.operands = operator.attribute, operator.operands
        self._shapes = shapes
        self._rows = rows

    def rank(self, name: str) -> int:
        return len(self._shapes.get(name) or ())

    def has_rows(self, name: str) -> bool:
        shape = self._shapes.get(name)
        return bool(shape) and shape[0] == self._rows

    def is_one_row(self, name: str) -> bool:
        shape = self._shapes.get(name)
        return bool(shape) and shape[0] == Size.of(1)

    def not_first(self, axis: int, slot: str = 'X') -> bool:
        """Whether `axis` of the operand is known to be another one than that of the rows."""
        rank = self.rank(self.operands(slot)[0])
        return rank > 0 and axis % rank != 0


_Condition = Callable[[_Op], bool]


def _always(_: _Op) -> bool:
    return True


@dataclass(frozen=True)
class _Rule:
    """`rows`: slots whose operands have the rows. `broadcast`: slots whose operands are broadcast to the result, so that
    they have the rows or are shared by all. `either`: slots of which `holds` has to see that.

    `state`: slots of results that are parameters and are left as they are.
    """

    rows: Tuple[str, ...] = ('X',)
    holds: _Condition = _always
    broadcast: Tuple[str, ...] = ()
    either: Tuple[str, ...] = ()
    state: Tuple[str, ...] = ()


def row_operands(operator: Operator, shapes: Mapping[str, Shape], rows: Size,
                 persistable: Container[str], read: Container[str]) -> Optional[FrozenSet[str]]:
    """Names of the operands that have the rows; None if the rows of the results are not known to be independent.

    Args:
        operator: which it is.
        shapes: by name.
        rows: what axis 0 of the operands and results has to be.
        persistable: names of parameters and state.
        read: names that some operator reads; a result that none reads may have any shape.
    """
    rule = _RULES.get(operator.kind)
    op = _Op(operator, shapes, rows)
    if rule is None or not op.operands(*rule.rows[:1]):
        return None
    found = set(op.operands(*rule.rows))
    if not all(map(op.has_rows, found)) or not rule.holds(op):
        return None
    found.update(filter(op.has_rows, op.operands(*rule.either)))
    results = [name for _, name in operator.results]
    widest = max(map(op.rank, [*found, *filter(op.has_rows, results)]))
    for name in op.operands(*rule.broadcast):
        if _is_aligned(op, name, widest) and op.has_rows(name):
            found.add(name)
        elif not _is_shared(op, name, widest):
            return None
    for slot, name in operator.results:
        is_state = name in persistable
        if is_state != (slot in rule.state):
            return None
        if not is_state and name in read and not op.has_rows(name):
            return None
    return frozenset(found)


def _is_aligned(op: _Op, name: str, widest: int) -> bool:
    """Whether axis 0 of this operand meets axis 0 of the widest one when the two are broadcast."""
    return op.rank(name) == widest or op.attribute('axis', -1) == 0


def _is_shared(op: _Op, name: str, widest: int) -> bool:
    """Whether each row meets all of this operand."""
    rank = op.rank(name)
    return 0 < rank and (op.is_one_row(name) if _is_aligned(op, name, widest) else rank < widest)


def _uses_fixed_statistics(op: _Op) -> bool:
    fixed = op.attribute('is_test', False) or op.attribute('use_global_stats', False)
    return fixed and not op.attribute('trainable_statistics', False)


def _normalises_within_rows(op: _Op) -> bool:
    return op.attribute('begin_norm_axis', 1) >= 1


def _keeps_first_dim(op: _Op) -> bool:
    return op.attribute('in_num_col_dims', 1) >= 1 and op.attribute('x_num_col_dims', 1) >= 1


def _axis_is_inner(default: int) -> _Condition:
    return lambda op: op.not_first(op.attribute('axis', default)) and not op.operands('AxisTensor')


def _transposes_within_rows(op: _Op) -> bool:
    return op.attribute('axis', [])[:1] == [0]


def _reshapes_within_rows(op: _Op) -> bool:
    """The number of rows is taken from the operand, whatever it is; that it stays is seen from the result's shape."""
    shape = op.attribute('shape', [])
    return shape[:1] in ([0], [-1]) and not op.operands('Shape', 'ShapeTensor')


def _flattens_within_rows(op: _Op) -> bool:
    return op.not_first(op.attribute('start_axis', 1))


def _changes_inner_axes(op: _Op) -> bool:
    """Dims of one go or come, behind the rows."""
    axes = op.attribute('axes', [])
    return bool(axes) and min(axes) >= 1 and not op.operands('AxesTensor', 'AxesTensorList')


def _slices_within_rows(op: _Op) -> bool:
    taken = op.attribute('axes', []) + op.attribute('decrease_axis', [])
    dynamic = op.operands('StartsTensor', 'EndsTensor', 'StartsTensorList', 'EndsTensorList')
    return min(taken, default=0) >= 1 and not dynamic


def _reduces_within_rows(op: _Op) -> bool:
    axes = op.attribute('dim', [0])
    return bool(axes) and not op.attribute('reduce_all', False) and all(map(op.not_first, axes))


def _is_test(op: _Op) -> bool:
    return op.attribute('is_test', False)


def _multiplies_within_rows(op: _Op) -> bool:
    """Rows of X, each with all of Y: a plain matrix, or, where both are batches of matrices, Y's own of that row."""
    x, y = op.operands('X')[0], op.operands('Y')[0]
    if not all(_is_kept(op, side) for side in ('X', 'Y', 'Out')):
        return False
    x_rank, y_rank = (len(op.attribute(f'fused_reshape_{side}', [])) or op.rank(n)
                      for side, n in (('X', x), ('Y', y)))
    transposed = any(op.attribute(n, False) for n in ('trans_x', 'transpose_X'))
    if x_rank < 3 and (x_rank < 2 or transposed):
        return False
    return not op.has_rows(y) if y_rank == 2 else y_rank == x_rank and op.has_rows(y)


def _is_kept(op: _Op, side: str) -> bool:
    """Whether the reshape and transpose that are fused into a product leave axis 0 of this operand or result alone."""
    return (op.attribute(f'fused_reshape_{side}', [])[:1] in ([], [0]) and
            op.attribute(f'fused_transpose_{side}', [])[:1] in ([], [0]))


def _table() -> Mapping[str, _Rule]:
    convolution = _Rule(('Input',), broadcast=('ResidualData',))
    product = _Rule(('X',), _multiplies_within_rows, ('ResidualData',), ('Y',))
    rules = {
        'conv2d': convolution,
        'depthwise_conv2d': convolution,
        'fused_conv2d': convolution,
        'conv2d_transpose': convolution,
        'pool2d': _Rule(),
        'batch_norm': _Rule(('X',), _uses_fixed_statistics, state=('MeanOut', 'VarianceOut')),
        'layer_norm': _Rule(('X',), _normalises_within_rows),
        'fc': _Rule(('Input',), _keeps_first_dim),
        'mul': _Rule(('X',), _keeps_first_dim),
        'matmul': product,
        'matmul_v2': product,
        'fused_matmul': product,
        'softmax': _Rule(('X',), _axis_is_inner(-1)),
        'log_softmax': _Rule(('X',), _axis_is_inner(-1)),
        'concat': _Rule(('X',), _axis_is_inner(0)),
        'split': _Rule(('X',), _axis_is_inner(0)),
        'transpose2': _Rule(('X',), _transposes_within_rows),
        'reshape2': _Rule(('X',), _reshapes_within_rows),
        'flatten_contiguous_range': _Rule(('X',), _flattens_within_rows),
        'squeeze2': _Rule(('X',), _changes_inner_axes),
        'unsqueeze2': _Rule(('X',), _changes_inner_axes),
        'slice': _Rule(('Input',), _slices_within_rows),
        'lookup_table_v2': _Rule(('Ids',)),
        'dropout': _Rule(('X',), _is_test),
    }
    rules.update((f'reduce_{k}', _Rule(('X',), _reduces_within_rows))
                 for k in ('mean', 'sum', 'max', 'min', 'prod'))
    rules.update((f'{prefix}elementwise_{k}', _Rule(('X',), broadcast=('Y',)))
                 for prefix in ('', 'fused_')
                 for k in ('add', 'sub', 'mul', 'div', 'max', 'min', 'pow'))
    rules.update(
        (k, _Rule())
        for k in ('relu', 'relu6', 'sigmoid', 'tanh', 'gelu', 'leaky_relu', 'swish', 'silu', 'mish',
                  'elu', 'softplus', 'hard_swish', 'hard_sigmoid', 'exp', 'log', 'sqrt', 'rsqrt',
                  'square', 'abs', 'pow', 'clip', 'scale', 'cast', 'assign'))
    return MappingProxyType(rules)


_RULES = _table()
