"""Which operators have independent rows, as their kinds and attributes say."""
from __future__ import annotations

import pytest

from transpiler.ir import Size
from transpiler.serving.described import Described
from transpiler.serving.in_parts import make_op
from transpiler.serving.row_wise import row_operands

N = Size.dim('N')


def shape(*dims):
    return tuple(Size.of(d) for d in dims)


SHAPES = {
    'image': shape(N, 8, 4, 4),
    'image2': shape(N, 8, 4, 4),
    'small': shape(N, 8),
    'flat': shape(N, 128),
    'table': shape(4, 8),
    'bias': shape(8),
    'row': shape(1, 8, 4, 4),
    'rows': shape(N),
    'heads': shape(N, 4, 6, 8),
    'heads2': shape(N, 4, 6, 8),
    'scores': shape(N, 4, 6, 6),
    'turned': shape(8, N, 4, 4),
    'filter': shape(8, 8, 3, 3),
    'matrix': shape(8, 8),
    'matrix_n': shape(8, N),
    'out': shape(N, 8, 4, 4),
    'out2': shape(N, 8),
    'out_flat': shape(N, 128),
    'out_scores': shape(N, 4, 6, 6),
    'out_n': shape(N, N),
    'statistics': shape(8),
    'mean': shape(8),
}
PARAMETERS = {'bias', 'filter', 'matrix', 'table', 'mean'}


def sliced(kind, inputs, outputs, read=('out', 'out2', 'out_flat', 'out_scores', 'out_n'), **given):
    desc = make_op(kind, {
        s: [n] if isinstance(n, str) else n for s, n in inputs.items()
    }, {
        s: [n] if isinstance(n, str) else n for s, n in outputs.items()
    }, **given)
    found = row_operands(Described(desc), SHAPES, N, PARAMETERS, set(read))
    return None if found is None else set(found)


X, OUT = {'X': 'image'}, {'Out': 'out'}


@pytest.mark.parametrize('expected, kind, inputs, outputs, attributes', [
    ({'image'}, 'fused_conv2d', {'Input': 'image', 'Filter': 'filter'}, {'Output': 'out'}, {}),
    ({'image', 'image2'}, 'fused_conv2d',
     {'Input': 'image', 'Filter': 'filter', 'ResidualData': 'image2'}, {'Output': 'out'}, {}),
    ({'image'}, 'relu', X, OUT, {}),
    ({'image', 'image2'}, 'elementwise_add', {'X': 'image', 'Y': 'image2'}, OUT, {'axis': -1}),
    ({'image'}, 'elementwise_add', {'X': 'image', 'Y': 'row'}, OUT, {'axis': -1}),
    ({'image'}, 'elementwise_add', {'X': 'image', 'Y': 'bias'}, OUT, {'axis': 1}),
    ({'image', 'rows'}, 'elementwise_mul', {'X': 'image', 'Y': 'rows'}, OUT, {'axis': 0}),
    ({'heads', 'heads2'}, 'matmul_v2', {'X': 'heads', 'Y': 'heads2'}, {'Out': 'out_scores'},
     {'trans_y': True}),
    ({'small'}, 'matmul_v2', {'X': 'small', 'Y': 'matrix'}, {'Out': 'out2'}, {}),
    ({'image', 'image2'}, 'concat', {'X': ['image', 'image2']}, OUT, {'axis': 1}),
    ({'scores'}, 'softmax', {'X': 'scores'}, {'Out': 'out_scores'}, {'axis': -1}),
    ({'image'}, 'reshape2', X, {'Out': 'out_flat'}, {'shape': [-1, 128]}),
    ({'image'}, 'reduce_mean', X, {'Out': 'out2'}, {'dim': [2, 3]}),
    ({'image'}, 'transpose2', X, OUT, {'axis': [0, 2, 3, 1]}),
    ({'image'}, 'batch_norm', {'X': 'image', 'Mean': 'mean'},
     {'Y': 'out', 'MeanOut': 'mean', 'SavedMean': 'statistics'}, {'is_test': True}),
])  # yapf: disable
def test_rows_are_shared_out(expected, kind, inputs, outputs, attributes):
    assert sliced(kind, inputs, outputs, **attributes) == expected


@pytest.mark.parametrize('kind, inputs, outputs, attributes', [
    ('cumsum', X, OUT, {'axis': 1}),
    ('batch_norm', {'X': 'image', 'Mean': 'mean'}, {'Y': 'out', 'MeanOut': 'mean'}, {}),
    ('batch_norm', {'X': 'image', 'Mean': 'mean'}, {'Y': 'out', 'MeanOut': 'mean'},
     {'is_test': True, 'trainable_statistics': True}),
    ('relu', X, {'Out': 'bias'}, {}),
    ('relu', {'X': 'turned'}, OUT, {}),
    ('softmax', X, OUT, {'axis': 0}),
    ('softmax', X, OUT, {'axis': -4}),
    ('concat', {'X': ['image', 'image2']}, OUT, {'axis': 0}),
    ('concat', {'X': ['image', 'row']}, OUT, {'axis': 1}),
    ('elementwise_add', {'X': 'image', 'Y': 'turned'}, OUT, {'axis': -1}),
    ('elementwise_add', {'X': 'row', 'Y': 'image'}, OUT, {'axis': -1}),
    ('elementwise_add', {'X': 'small', 'Y': 'table'}, {'Out': 'out2'}, {'axis': -1}),
    ('layer_norm', X, {'Y': 'out'}, {'begin_norm_axis': 0}),
    ('fc', {'Input': 'image', 'W': 'matrix'}, OUT, {'in_num_col_dims': 0}),
    ('transpose2', X, OUT, {'axis': [1, 0, 2, 3]}),
    ('reshape2', X, {'Out': 'out_flat'}, {'shape': [8, 128]}),
    ('reduce_mean', X, {'Out': 'out2'}, {'dim': [0]}),
    ('reduce_mean', X, {'Out': 'out2'}, {'dim': [-4]}),
    ('reduce_mean', X, {'Out': 'out2'}, {'dim': [1], 'reduce_all': True}),
    ('slice', {'Input': 'image'}, OUT, {'axes': [0]}),
    ('matmul_v2', {'X': 'small', 'Y': 'matrix'}, {'Out': 'out2'}, {'trans_x': True}),
    ('matmul_v2', {'X': 'matrix', 'Y': 'matrix_n'}, {'Out': 'out_n'}, {}),
    ('fused_matmul', {'X': 'heads', 'Y': 'heads2'}, {'Out': 'out_scores'},
     {'fused_transpose_X': [1, 0, 2, 3]}),
    ('dropout', X, OUT, {}),
])  # yapf: disable
def test_rows_may_depend_on_each_other(kind, inputs, outputs, attributes):
    assert sliced(kind, inputs, outputs, **attributes) is None


def test_a_result_that_nobody_reads_may_have_any_shape():
    inputs, outputs = {'X': 'image'}, {'Y': 'out', 'Mean': 'statistics'}
    assert sliced('layer_norm', inputs, outputs, begin_norm_axis=1) == {'image'}
    assert sliced('layer_norm', inputs, outputs, read=('out', 'statistics'),
                  begin_norm_axis=1) is None
