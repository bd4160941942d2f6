"""Operators that no layer of Paddle's makes any more, or none alone: appended as they are."""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence, Union

import numpy as np
import paddle
import paddle.nn.functional as F

from benchmarks.kernels.draw import Draw
from benchmarks.kernels.recipes.training import Trained

Recipe = Callable[[Draw], Any]
_KINDS = paddle.base.core.VarDesc.VarType
# Tables of programs, a program a line: the formatter would take minutes over them.
# yapf: disable


def recipes() -> Dict[str, Recipe]:
    """Programs by name."""
    return {**_pointwise(), **_losses(), **_updates(), **_arrays(), **_sentences(), **_twice(), **_boxes(), **_old()}


def _op(kind: str, inputs: Dict[str, Any], outputs: Union[str, Sequence[str]] = 'Out', types: Any = None,
        **attributes: Any) -> Any:
    """Appends an operator; its first result."""
    block = paddle.static.default_main_program().global_block()
    names = outputs.split() if isinstance(outputs, str) else outputs
    made = {}
    for name in names:
        dtype = (types or {}).get(name, 'float32')
        made[name] = block.create_var(name=f'{kind}.{name}.{len(block.ops)}', dtype=dtype, stop_gradient=False)
    block.append_op(type=kind, inputs={k: v if isinstance(v, list) else [v] for k, v in inputs.items()},
                    outputs={k: [v] for k, v in made.items()}, attrs=attributes)
    return made[names[0]]


def _pointwise() -> Dict[str, Recipe]:
    return {
        'minus': lambda d: _op('minus', {'X': d.x(d.n, d.m), 'Y': d.x(d.n, d.m)}),
        'soft_relu': lambda d: _op('soft_relu', {'X': d.x(d.n, d.m)}, threshold=20.0),
        'grad_add': lambda d: _op('grad_add', {'X': d.x(d.n, d.m), 'Y': d.x(d.n, d.m)}),
        'l1_norm': lambda d: _op('l1_norm', {'X': d.x(d.n, d.m)}),
        'softmax_mask': lambda d: paddle.incubate.softmax_mask_fuse(d.x(d.n, 2, 32, 32), d.x(d.n, 1, 32, 32)),
        'memcpy': lambda d: _op('memcpy', {'X': d.x(d.n, d.m, grad=False)}, dst_place_type=0),
        'identity_loss': lambda d: _op('identity_loss', {'X': d.x(d.n, d.m)}, reduction=0),
        'fill_zeros_like': lambda d: _op('fill_zeros_like', {'X': d.x(d.n, d.m, grad=False)}),
        'fill_batch_like': lambda d: _op('fill_constant_batch_size_like', {'Input': d.x(d.n, d.m, grad=False)},
                                         shape=[-1, d.p], value=1.0, dtype=_KINDS.FP32),
        'uniform_batch_like': lambda d: _op('uniform_random_batch_size_like', {'Input': d.x(d.n, d.m, grad=False)},
                                            shape=[-1, d.p], min=0.0, max=1.0, dtype=_KINDS.FP32),
        'gaussian_batch_like': lambda d: _op('gaussian_random_batch_size_like', {'Input': d.x(d.n, d.m, grad=False)},
                                             shape=[-1, d.p], dtype=_KINDS.FP32),
        'shuffle_channel': lambda d: _op('shuffle_channel', {'X': d.x(d.n, d.c, d.h, d.w)}, group=2),
        'partial_concat': lambda d: _op('partial_concat', {'X': [d.x(d.n, d.m), d.x(d.n, d.m)]}, start_index=0, length=3),
        'partial_sum': lambda d: _op('partial_sum', {'X': [d.x(d.n, d.m), d.x(d.n, d.m)]}, start_index=0, length=3),
        'sampling_id': lambda d: _op('sampling_id', {'X': d.x(d.n, d.m, grad=False)}, types={'Out': 'int64'}),
        'fused_add_relu': lambda d: _op('fused_elemwise_add_activation', {'X': d.x(d.n, d.m), 'Y': d.x(d.n, d.m)},
                                        'Out IntermediateOut', functor_list=['relu', 'elementwise_add'], save_intermediate_out=True),
        'abs_max': lambda d: _op('fake_quantize_dequantize_abs_max', {'X': d.x(d.n, d.m)}, 'Out OutScale'),
        'channel_abs_max': lambda d: _op('fake_channel_wise_quantize_dequantize_abs_max', {'X': d.x(d.n, d.m)}, 'Out OutScale'),
        'quantize_abs_max': lambda d: _op('fake_quantize_abs_max', {'X': d.x(d.n, d.m)}, 'Out OutScale'),
        'select_input': lambda d: _op('select_input', {'X': [d.x(d.n, d.m), d.x(d.n, d.m)],
                                                       'Mask': d.given(np.array([1], 'int32'))}),
        'dropout_nd': lambda d: _op('dropout_nd', {'X': d.x(d.n, d.m)}, 'Out Mask', {'Mask': 'uint8'}, axis=[0], dropout_prob=0.3),
    }


def _losses() -> Dict[str, Recipe]:
    return {
        'cross_entropy': lambda d: _op('cross_entropy', {'X': F.softmax(d.x(d.n, d.m)), 'Label': d.ids(4, d.n, 1)}, 'Y'),
        'cross_entropy2': lambda d: _op('cross_entropy2', {'X': F.softmax(d.x(d.n, d.m)), 'Label': d.ids(4, d.n, 1)}, 'Y MatchX XShape'),
        'bpr': lambda d: _op('bpr_loss', {'X': d.x(d.n, d.m), 'Label': d.ids(4, d.n, 1)}, 'Y'),
        'hinge': lambda d: _op('hinge_loss', {'Logits': d.x(d.n, 1), 'Labels': d.x(d.n, 1, grad=False)}, 'Loss'),
        'rank': lambda d: _op('rank_loss', {'Left': d.x(d.n, 1), 'Right': d.x(d.n, 1), 'Label': d.x(d.n, 1, grad=False)}),
        'modified_huber': lambda d: _op('modified_huber_loss', {'X': d.x(d.n, 1), 'Y': d.x(d.n, 1, grad=False)}, 'Out IntermediateVal'),
        'teacher': lambda d: _op('teacher_student_sigmoid_loss', {'X': d.x(d.n, 1), 'Label': d.x(d.n, 1, grad=False)}, 'Y'),
        'nce': lambda d: paddle.static.nn.nce(d.x(d.n, d.m), d.ids(d.v, d.n, 1), d.v, num_neg_samples=5),
        'viterbi': lambda d: paddle.text.viterbi_decode(d.x(d.n, d.t, d.m, grad=False), d.x(d.m, d.m, grad=False),
                                                        paddle.full([d.n], d.t, 'int64'))[0],
        'edit_distance': lambda d: F.sequence_mask(d.ids(d.m, d.n), d.m, 'float32'),
        'crf': lambda d: _op('linear_chain_crf', {'Emission': d.sentences(d.m), 'Transition': d.x(d.m + 2, d.m),
                                                  'Label': _words(d)}, 'LogLikelihood Alpha EmissionExps TransitionExps'),
        'crf_decoding': lambda d: _op('crf_decoding', {'Emission': d.sentences(d.m, False), 'Transition': d.x(d.m + 2, d.m, grad=False)},
                                      'ViterbiPath', {'ViterbiPath': 'int64'}),
    }


def _words(d: Draw) -> Any:
    lengths = [2 + i for i in range(d.n)]
    return d.given(np.zeros([sum(lengths), 1], 'int64'), lengths)


def _updates() -> Dict[str, Recipe]:
    found = {name: _update(name) for name in ('lars_momentum', 'ftrl', 'dpsgd', 'decayed_adagrad', 'proximal_gd')}
    found['finite'] = _finite
    found['scaling'] = _scaling
    found['coalesce'] = _coalesce
    found['average'] = _average
    return found


_SLOTS = {
    'lars_momentum': 'Velocity', 'ftrl': 'SquaredAccumulator LinearAccumulator', 'dpsgd': '',
    'decayed_adagrad': 'Moment', 'proximal_gd': '',
}
_ATTRIBUTES = {'lars_momentum': {'mu': 0.9, 'lars_coeff': 0.001, 'lars_weight_decay': [0.0005]}}
_RESULTS = {'SquaredAccumulator': 'SquaredAccumOut', 'LinearAccumulator': 'LinearAccumOut'}


def _update(kind: str) -> Recipe:

    def build(d: Draw) -> Any:
        block = paddle.static.default_main_program().global_block()
        tensors = {'Param': d.x(d.v, d.m, grad=False), 'Grad': d.x(d.v, d.m, grad=False),
                   'LearningRate': d.x(1, grad=False)}
        tensors.update((slot, d.x(d.v, d.m, grad=False)) for slot in _SLOTS[kind].split())
        results = {_RESULTS.get(s, s + 'Out'): [v] for s, v in tensors.items() if s not in ('Grad', 'LearningRate')}
        block.append_op(type=kind, inputs={k: [v] for k, v in tensors.items()}, outputs=results, attrs=_ATTRIBUTES.get(kind, {}))
        return Trained()

    return build


def _finite(d: Draw) -> Any:
    block = paddle.static.default_main_program().global_block()
    grads = [d.x(d.v, d.m, grad=False), d.x(d.n, d.p, grad=False)]
    found = block.create_var(name='found', dtype='bool')
    block.append_op(type='check_finite_and_unscale', inputs={'X': grads, 'Scale': [d.x(1, grad=False)]},
                    outputs={'Out': grads, 'FoundInfinite': [found]})
    return Trained()


def _scaling(d: Draw) -> Any:
    block = paddle.static.default_main_program().global_block()
    grads, scale = [d.x(d.v, d.m, grad=False), d.x(d.n, d.p, grad=False)], d.x(1, grad=False)
    good, bad = d.ids(1, 1, dtype='int32'), d.ids(1, 1, dtype='int32')
    block.append_op(type='update_loss_scaling',
                    inputs={'X': grads, 'FoundInfinite': [d.given(np.array([False]))], 'PrevLossScaling': [scale],
                            'InGoodSteps': [good], 'InBadSteps': [bad]},
                    outputs={'Out': grads, 'LossScaling': [scale], 'OutGoodSteps': [good], 'OutBadSteps': [bad]},
                    attrs={'incr_every_n_steps': 10, 'decr_every_n_nan_or_inf': 2, 'incr_ratio': 2.0, 'decr_ratio': 0.5})
    return Trained()


def _coalesce(d: Draw) -> Any:
    block = paddle.static.default_main_program().global_block()
    parts = [d.x(d.v, d.m, grad=False), d.x(d.n, d.p, grad=False)]
    whole = block.create_var(name='whole', dtype='float32')
    block.append_op(type='coalesce_tensor', inputs={'Input': parts}, outputs={'Output': parts, 'FusedOutput': [whole]},
                    attrs={'copy_data': True, 'dtype': _KINDS.FP32, 'use_align': False})
    return Trained()


def _average(d: Draw) -> Any:
    paddle.static.ExponentialMovingAverage(0.9)
    return paddle.mean(d.x(d.n, d.m))


def _arrays() -> Dict[str, Recipe]:
    return {'array': _array}


def _array(d: Draw) -> Any:
    at = paddle.full([1], 0, 'int64')
    array = paddle.tensor.array_write(d.x(d.n, d.m, grad=False), at)
    paddle.tensor.array_length(array)
    paddle.tensor.array_read(array, at)
    return Trained()


def _sentences() -> Dict[str, Recipe]:
    return {
        'lod_reset': lambda d: _op('lod_reset', {'X': d.sentences(d.m)}, target_lod=[0, d.n, sum(2 + i for i in range(d.n))]),
        'sequence_erase': lambda d: _op('sequence_erase', {'X': _words(d)}, types={'Out': 'int64'}, tokens=[1]),
        'ranks': _ranks,
        'im2sequence': lambda d: _op('im2sequence', {'X': d.x(d.n, d.c, d.h, d.w)}, kernels=[2, 2], strides=[1, 1],
                                     paddings=[0, 0, 0, 0]),
        'gru_unit': lambda d: _op('gru_unit', {'Input': d.x(d.n, 3 * d.k), 'HiddenPrev': d.x(d.n, d.k), 'Weight': d.x(d.k, 3 * d.k)},
                                  'Hidden Gate ResetHiddenPrev'),
        'gru_old': lambda d: _op('gru', {'Input': d.sentences(3 * d.k), 'Weight': d.x(d.k, 3 * d.k)},
                                 'Hidden BatchGate BatchResetHiddenPrev BatchHidden'),
        'lstm_old': lambda d: _op('lstm', {'Input': d.sentences(4 * d.k), 'Weight': d.x(d.k, 4 * d.k), 'Bias': d.x(1, 4 * d.k)},
                                  'Hidden Cell BatchGate BatchCellPreAct', use_peepholes=False),
        'lstm_unit': lambda d: _op('lstm_unit', {'X': d.x(d.n, 4 * d.k), 'C_prev': d.x(d.n, d.k)}, 'H C'),
    }


def _ranks(d: Draw) -> Any:
    block = paddle.static.default_main_program().global_block()
    words = d.sentences(d.m, False)
    table = block.create_var(name='table', type=_KINDS.LOD_RANK_TABLE)
    array = block.create_var(name='array', type=_KINDS.LOD_TENSOR_ARRAY, dtype='float32')
    block.append_op(type='lod_rank_table', inputs={'X': [words]}, outputs={'Out': [table]}, attrs={'level': 0})
    block.append_op(type='lod_tensor_to_array', inputs={'X': [words], 'RankTable': [table]}, outputs={'Out': [array]})
    longest, whole, shrunk = (block.create_var(name=n, dtype=t) for n, t in (('l', 'int64'), ('w', 'float32'), ('s', 'float32')))
    block.append_op(type='max_sequence_len', inputs={'RankTable': [table]}, outputs={'Out': [longest]})
    block.append_op(type='array_to_lod_tensor', inputs={'X': [array], 'RankTable': [table]}, outputs={'Out': [whole]})
    block.append_op(type='shrink_rnn_memory',
                    inputs={'X': [d.x(d.n, d.m, grad=False)], 'RankTable': [table], 'I': [paddle.full([1], 1, 'int64')]},
                    outputs={'Out': [shrunk]})
    block.append_op(type='reorder_lod_tensor_by_rank', inputs={'X': [d.x(d.n, d.m, grad=False)], 'RankTable': [table]},
                    outputs={'Out': [block.create_var(name='r', dtype='float32')]})
    return Trained()


def _again(function: Callable[..., Any], operands: int = 1) -> Recipe:
    """The gradient of a gradient."""

    def build(d: Draw) -> Any:
        given = [d.x(d.m, d.m) for _ in range(operands)]
        return paddle.static.gradients(paddle.square(function(*given)), given)

    return build


def _twice() -> Dict[str, Recipe]:
    unary = {'relu': F.relu, 'tanh': paddle.tanh, 'sigmoid': F.sigmoid, 'square': paddle.square, 'sqrt': paddle.sqrt,
             'rsqrt': paddle.rsqrt, 'log': paddle.log, 'celu': F.celu, 'elu': F.elu, 'leaky_relu': F.leaky_relu,
             'reshape': lambda x: paddle.reshape(x, [-1]), 'sin': paddle.sin, 'cos': paddle.cos,
             'softplus': F.softplus, 'pow': lambda x: paddle.pow(x, 3.0), 'exp': paddle.exp, 'mean': paddle.mean}
    binary = {'add': paddle.add, 'subtract': paddle.subtract, 'multiply': paddle.multiply, 'divide': paddle.divide,
              'matmul': paddle.matmul}
    found = {f'twice_{name}': _again(f) for name, f in unary.items()}
    found.update((f'twice_{name}', _again(f, 2)) for name, f in binary.items())
    found['twice_conv2d'] = _twice_conv
    return found


def _twice_conv(d: Draw) -> Any:
    given = [d.x(d.n, d.c, d.h, d.w), d.x(d.k, d.c, 3, 3)]
    return paddle.static.gradients(paddle.square(F.conv2d(*given)), given)


def _corners(d: Draw, grad: bool = False) -> Any:
    low = d.x(d.m, 2, grad=grad)
    return paddle.concat([low, low + 1.0], 1)


def _boxes() -> Dict[str, Recipe]:
    return {
        'iou': lambda d: _op('iou_similarity', {'X': _corners(d), 'Y': _corners(d)}),
        'anchors': lambda d: _op('anchor_generator', {'Input': d.x(d.n, d.c, d.h, d.w, grad=False)}, 'Anchors Variances',
                                 anchor_sizes=[64.0], aspect_ratios=[1.0], variances=[0.1] * 4, stride=[16.0, 16.0]),
        'density_prior_box': lambda d: _op(
            'density_prior_box', {'Input': d.x(d.n, d.c, d.h, d.w, grad=False), 'Image': d.x(d.n, 3, 64, 64, grad=False)},
            'Boxes Variances', fixed_sizes=[32.0], fixed_ratios=[1.0], densities=[2], variances=[0.1] * 4),
        'bipartite': lambda d: _op('bipartite_match', {'DistMat': d.x(d.n, d.m, grad=False)},
                                   'ColToRowMatchIndices ColToRowMatchDist', {'ColToRowMatchIndices': 'int32'}),
    }


def _old() -> Dict[str, Recipe]:
    return {
        'lookup_table': lambda d: _op('lookup_table', {'W': d.x(d.v, d.m), 'Ids': d.ids(d.v, d.p, 1)}),
        'top_k': lambda d: _op('top_k', {'X': d.x(d.n, d.m)}, 'Out Indices', {'Indices': 'int64'}, k=3),
        'matmul_old': lambda d: _op('matmul', {'X': d.x(d.n, d.c, d.m), 'Y': d.x(d.n, d.m, d.p)}),
        'matmul_old_weight': lambda d: _op('matmul', {'X': d.x(d.n, d.c, d.m), 'Y': d.x(d.m, d.p)}),
        'reshape_old': lambda d: _op('reshape', {'X': d.x(d.n, d.m)}, shape=[-1]),
        'flatten2': lambda d: _op('flatten2', {'X': d.x(d.n, d.c, d.m)}, 'Out XShape', axis=1),
        'expand_old': lambda d: _op('expand', {'X': d.x(d.n, d.m)}, expand_times=[2, 3]),
        'crop_old': lambda d: _op('crop', {'X': d.x(d.n, d.m)}, shape=[1, 5], offsets=[0, 1]),
        'reverse_old': lambda d: _op('reverse', {'X': d.x(d.n, d.m)}, axis=[1]),
        'isnan_old': lambda d: _op('isnan', {'X': d.x(d.n, d.m, grad=False)}),
        'isinf_old': lambda d: _op('isinf', {'X': d.x(d.n, d.m, grad=False)}),
        'fill_any': lambda d: _op('fill_any', {'X': d.x(d.n, d.m)}, value_float=1.0),
        'fsp': lambda d: _op('fsp', {'X': d.x(d.n, d.c, d.h, d.w), 'Y': d.x(d.n, d.k, d.h, d.w)}),
        'cvm': lambda d: _op('cvm', {'X': d.x(d.n, d.m), 'CVM': d.x(d.n, 2, grad=False)}, 'Y', use_cvm=True),
        'bilinear_old': lambda d: _op('bilinear_interp', {'X': d.x(d.n, d.c, d.h, d.w)}, out_h=20, out_w=21, interp_method='bilinear'),
        'nearest_old': lambda d: _op('nearest_interp', {'X': d.x(d.n, d.c, d.h, d.w)}, out_h=20, out_w=21, interp_method='nearest'),
        'unique_with_counts': lambda d: _op('unique_with_counts', {'X': d.ids(9, d.v)}, 'Out Index Count',
                                            {'Out': 'int64', 'Index': 'int64', 'Count': 'int64'}, dtype=_KINDS.INT64),
        'random_crop': lambda d: _op('seed', {}, types={'Out': 'int32'}, seed=3),
    }
