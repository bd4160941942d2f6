"""The table of workspaces says what kernels allocate, to the byte, or bounds it; what it does not know is said."""

from __future__ import annotations

from typing import List, Tuple

import pytest

from benchmarks.kernels.alone import sample
from benchmarks.kernels.fit import Sample
from benchmarks.kernels.observing import observe
from benchmarks.kernels.recipes import all_recipes
from benchmarks.kernels.recipes.training import tested_layers
from benchmarks.kernels.table import misses
from transpiler.backends.formulas import Tensor, evaluate
from transpiler.backends.kernel_tables import Kernel, holds
from transpiler.backends.paddle2.workspaces import table, workspace
from transpiler.ir import Size

# One of each sort of formula: columns, buffers like an operand, rows of a table, sorts along a middle dim, nothing.
SAMPLE = ('images.conv3d', 'images.conv2d_strided', 'images.conv2d_transpose_groups', 'images.spectral_norm_1',
          'images.layer_norm_1', 'images.batch_norm', 'images.grid_sample_bilinear_zeros', 'images.deform_conv',
          'reductions.argsort_middle', 'reductions.topk_last', 'reductions.cumsum_last', 'shapes.matmul_broadcast',
          'shapes.matmul_weight', 'shapes.gather', 'training.lamb', 'training.lamb_sparse', 'training.adam_sparse',
          'training.lstm_3', 'training.lstm_lengths', 'training.lstm_wide', 'training.gru_both', 'training.rnn_2',
          'plain.finite', 'training.clip_norm_sparse_twice', 'reductions.sum_widened', 'reductions.sum_bool_widened',
          'training.sequence_conv', 'pointwise.add_middle', 'pointwise.gelu', 'shapes.index_put',
          'shapes.index_put_add', 'shapes.index_put_rows', 'shapes.index_put_one', 'shapes.index_put_all',
          'shapes.index_put_deep', 'reductions.unique', 'reductions.unique_axis', 'reductions.unique_middle',
          'reductions.unique_consecutive_axis', 'reductions.unique_consecutive_last',
          'shapes.repeat_interleave_middle', 'shapes.repeat_interleave_given_first', 'shapes.trace_first',
          'shapes.fft', 'shapes.fft_both', 'shapes.fft_both_middle',
          *(f'training.{name}' for name in tested_layers()))  # yapf: disable


def _runs(name: str, size: int) -> List[Sample]:
    return list(map(sample, observe(all_recipes()[name], size)))


@pytest.mark.parametrize('name', SAMPLE)
def test_kernels_allocate_what_the_table_says(name: str) -> None:
    seen = _runs(name, 1)
    assert seen
    assert misses(table(), seen, workspace) == []


def test_a_wrong_table_is_found_out() -> None:
    seen = _runs('images.conv3d', 0)
    kinds = {kind: cases for kind, cases in table().items() if 'conv3d' not in kind}
    assert {miss.kind for miss in misses(kinds, seen, workspace)} == {'conv3d', 'conv3d_grad'}


def test_the_table_covers_most_of_what_a_cpu_can_run() -> None:
    assert len(table()) >= 700
    assert sum(any(c.bytes != '0' for c in cases) for cases in table().values()) >= 140


def _tensor(*dims: int) -> Tuple[Tensor, ...]:
    return (Tensor(tuple(map(Size.of, dims)), 4, 'FP32'),)


@pytest.mark.parametrize('formula, bytes', [
    ('0', 0), ('X', 96), ('#X', 24), ('2*X + 3', 195), ('X[1]', 3), ('X[-1]', 4), ('X[1:]', 12), ('X[:-1]', 6),
    ('X.item*X[2:]*Y[0]', 80), ('1/2*X + Y', 68), ('Nobody', 0),
    ('X | Y', 96), ('Y | 2*Y', 40), ('Two', 116), ('^Two', 96), ('^#Two + 1', 25), ('X + Nobody | Y', 96)])  # yapf: disable
def test_a_formula_counts_slots_dims_and_items(formula: str, bytes: int) -> None:
    slots = {'X': _tensor(2, 3, 4), 'Y': _tensor(5), 'Two': _tensor(5) + _tensor(2, 3, 4)}
    assert evaluate(formula, slots).evaluate({}) == bytes


def test_a_formula_keeps_symbols_and_knows_what_it_does_not_know() -> None:
    batch = Size.dim('N')
    assert evaluate('2*X', {'X': (Tensor((batch, Size.of(3)), 4),)}) == batch * 24
    assert evaluate('2*X', {'X': (Tensor(None, 4),)}) is None


def test_which_is_larger_may_be_open() -> None:
    """Then it is bounded by the sum."""
    rows = {'X': (Tensor((Size.dim('N'), Size.of(3)), 4),), 'Y': _tensor(5)}
    assert evaluate('X | Y', rows) == Size.dim('N') * 12 + 20
    assert evaluate('X | 2*X', rows) == Size.dim('N') * 24
    assert evaluate('X | Z', {**rows, 'Z': (Tensor(None, 4),)}) is None


@pytest.mark.parametrize('condition, expected', [
    ('last @axis', True), ('not last @axis', False), ('@axis = 2', True), ('@mode = "a"', True), ('has X', True),
    ('has Y', False), ('rows X', False), ('alike X X', True), ('alike X Y', False), ('X of FP32', True), ('X dims 3', True), ('X[0] = 2', True),
    ('X[:2] = X[2]', False), ('negative @strides', True)])  # yapf: disable
def test_conditions_tell_kernels_apart(condition: str, expected: bool) -> None:
    attributes = {'axis': 2, 'mode': 'a', 'strides': [1, -1]}.get
    assert holds(condition, Kernel('k', attributes, {'X': _tensor(2, 3, 4)})) is expected
