"""Reductions, scans, sorts, norms of vectors, softmaxes and losses."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict

import paddle
import paddle.nn.functional as F

from benchmarks.kernels.draw import Draw

Recipe = Callable[[Draw], Any]
# Tables of programs, a program a line: the formatter would take minutes over them.
# yapf: disable

_REDUCE = 'sum mean max min prod amax amin logsumexp'.split()
_AXES = {'all': None, 'last': -1, 'first': 0, 'middle': 1, 'two': [1, 2], 'ends': [0, 2]}


def _reduce(function: Callable[..., Any], axis: Any, keepdim: bool = False) -> Recipe:
    return lambda d: function(d.x(d.n, d.c, d.m, d.t), axis=axis, keepdim=keepdim)


def _along(function: Callable[..., Any], axis: int, **options: Any) -> Recipe:
    return lambda d: function(d.x(d.n + 3, d.c, d.m), axis=axis, **options)


def recipes() -> Dict[str, Recipe]:
    """Programs by name."""
    found: Dict[str, Recipe] = {}
    for name in _REDUCE:
        for label, axis in _AXES.items():
            found[f'{name}_{label}'] = _reduce(getattr(paddle, name), axis)
        found[f'{name}_keep'] = _reduce(getattr(paddle, name), 1, True)
    along = {
        'cumsum': paddle.cumsum, 'argsort': paddle.argsort, 'sort': paddle.sort, 'softmax': F.softmax,
        'log_softmax': F.log_softmax, 'argmax': paddle.argmax, 'argmin': paddle.argmin,
        'logcumsumexp': paddle.logcumsumexp, 'cummax': paddle.cummax, 'cummin': paddle.cummin,
        'topk': partial(paddle.topk, k=3), 'kthvalue': partial(paddle.kthvalue, k=2), 'mode': paddle.mode,
        'flip': paddle.flip, 'gumbel_softmax': F.gumbel_softmax, 'nanmedian': paddle.nanmedian,
        'median': paddle.median, 'std': paddle.std, 'var': paddle.var, 'normalize': F.normalize,
        'unbind': paddle.unbind, 'unstack': paddle.unstack,
        'gumbel_hard': partial(F.gumbel_softmax, hard=True),
        'nansum': paddle.nansum, 'count_nonzero': paddle.count_nonzero,
    }  # yapf: disable
    for name, function in along.items():
        for label, axis in (('last', -1), ('first', 0), ('middle', 1)):
            found[f'{name}_{label}'] = _along(function, axis)
    for label, axis in (('all', None), ('last', -1), ('first', 0)):
        for order in (0, 1, 2, 3, float('inf'), float('-inf')):
            found[f'norm_{order}_{label}'] = _along(paddle.linalg.norm, axis, p=order)
    found.update(_others())
    found.update(_losses())
    return found


def _others() -> Dict[str, Recipe]:
    return {
        'cumsum_flat':
            lambda d: paddle.cumsum(d.x(d.n, d.m)),
        'cumprod':
            lambda d: paddle.cumprod(d.x(d.n, d.c, d.m), dim=1),
        'cumprod_last':
            lambda d: paddle.cumprod(d.x(d.n, d.c, d.m), dim=-1),
        'argsort_down':
            lambda d: paddle.argsort(d.x(d.n, d.m), descending=True),
        'argmax_flat':
            lambda d: paddle.argmax(d.x(d.n, d.m)),
        'topk_small':
            lambda d: paddle.topk(d.x(d.n, d.m), 2, largest=False),
        'any':
            lambda d: paddle.any(d.bools(d.n, d.m), 1),
        'all':
            lambda d: paddle.all(d.bools(d.n, d.m), 0),
        'sum_bool':
            lambda d: paddle.sum(d.bools(d.n, d.m)),
        'sum_int':
            lambda d: paddle.sum(d.ids(9, d.n, d.m), 1),
        'sum_int32':
            lambda d: paddle.sum(d.ids(9, d.n, d.m, dtype='int32'), 1),
        'sum_64':
            lambda d: paddle.sum(d.x(d.n, d.c, d.m, dtype='float64'), 1),
        'sum_bool_widened':
            lambda d: paddle.sum(d.bools(d.n, d.m), 1, dtype='float64'),
        'sum_widened':
            lambda d: paddle.sum(d.x(d.n, d.c, d.m), 1, dtype='float64'),
        'sum_narrowed':
            lambda d: paddle.sum(d.x(d.n, d.c, d.m, dtype='float64'), 1, dtype='float32'),
        'sum_of_another_type':
            lambda d: paddle.sum(d.ids(9, d.n, d.m, dtype='int32'), 1, dtype='float32'),
        'prod_int_widened':
            lambda d: paddle.prod(d.ids(9, d.n, d.m), 1, dtype='float64'),
        'nansum_widened':
            lambda d: paddle.nansum(d.x(d.n, d.m), 1, dtype='float64'),
        'mean_int':
            lambda d: paddle.mean(paddle.cast(d.ids(9, d.n, d.m), 'float64'), 1),
        'squared_l2_norm':
            lambda d: paddle.nn.clip._squared_l2_norm(d.x(d.n, d.m)),
        'clip_by_norm':
            lambda d: paddle.nn.clip.clip_by_norm(d.x(d.n, d.m), 1.0),
        'frobenius':
            lambda d: paddle.linalg.norm(d.x(d.n, d.m)),
        'dist':
            lambda d: paddle.dist(d.x(d.n, d.m), d.x(d.n, d.m)),
        'dist_3':
            lambda d: paddle.dist(d.x(d.n, d.m), d.x(d.n, d.m), 3),
        'l1_norm':
            lambda d: paddle.abs(d.x(d.n, d.m)).sum(),
        'renorm':
            lambda d: paddle.renorm(d.x(d.n, d.c, d.m), 2.0, 1, 0.5),
        'trace':
            lambda d: paddle.trace(d.x(d.n, d.c, d.m), axis1=1, axis2=2),
        'histogram':
            lambda d: paddle.histogram(d.x(d.n, d.m, grad=False), 20),
        'bincount':
            lambda d: paddle.bincount(d.ids(30, d.v)),
        'unique':
            lambda d: paddle.unique(d.ids(30, d.v)),
        'unique_all':
            lambda d: paddle.unique(d.ids(30, d.v), True, True, True),
        'unique_axis':
            lambda d: paddle.unique(d.ids(3, d.v, d.t), axis=0),
        'unique_middle':
            lambda d: paddle.unique(d.ids(3, d.v, d.t, d.p), axis=1),
        'unique_consecutive':
            lambda d: paddle.unique_consecutive(d.ids(3, d.v)),
        'unique_consecutive_axis':
            lambda d: paddle.unique_consecutive(d.ids(3, d.v, d.t), axis=0),
        'unique_consecutive_last':
            lambda d: paddle.unique_consecutive(d.ids(3, d.v, d.t), axis=1),
        'searchsorted':
            lambda d: paddle.searchsorted(paddle.sort(d.x(d.v, grad=False)),
                                          d.x(d.n, d.m, grad=False)),
        'softmax_mask':
            lambda d: F.softmax(d.x(d.n, d.c, d.m) + d.x(d.n, 1, d.m, grad=False)),
    }


def _logits(loss: Callable[..., Any], **options: Any) -> Recipe:
    return lambda d: loss(d.x(d.n, d.m), d.ids(4, d.n, 1), **options)


def _pair(loss: Callable[..., Any], **options: Any) -> Recipe:
    return lambda d: loss(d.x(d.n, d.m), d.x(d.n, d.m, grad=False), **options)


def _losses() -> Dict[str, Recipe]:
    return {
        'cross_entropy':
            _logits(F.cross_entropy),
        'cross_entropy_soft':
            lambda d: F.cross_entropy(d.x(d.n, d.m), d.x(d.n, d.m, grad=False), soft_label=True),
        'cross_entropy_weight':
            lambda d: F.cross_entropy(d.x(d.n, d.m), d.ids(4, d.n), weight=d.x(d.m, grad=False)),
        'cross_entropy_middle':
            lambda d: F.cross_entropy(d.x(d.n, d.c, d.h, d.w), d.ids(3, d.n, 1, d.h, d.w), axis=1),
        'cross_entropy_prob':
            _logits(lambda x, y: F.cross_entropy(F.softmax(x), y, use_softmax=False)),
        'softmax_with_cross_entropy':
            lambda d: F.softmax_with_cross_entropy(d.x(d.n, d.c, d.m), d.ids(4, d.n, d.c, 1)),
        'softmax_with_cross_entropy_return':
            lambda d: F.softmax_with_cross_entropy(
                d.x(d.n, d.m), d.ids(4, d.n, 1), return_softmax=True),
        'nll_loss':
            lambda d: F.nll_loss(d.x(d.n, d.m), d.ids(4, d.n)),
        'nll_loss_2d':
            lambda d: F.nll_loss(d.x(d.n, d.c, d.h, d.w), d.ids(3, d.n, d.h, d.w)),
        'bce':
            _pair(F.binary_cross_entropy),
        'bce_logits':
            _pair(F.binary_cross_entropy_with_logits),
        'mse':
            _pair(F.mse_loss),
        'l1':
            _pair(F.l1_loss),
        'smooth_l1':
            _pair(F.smooth_l1_loss),
        'kl_div':
            _pair(F.kl_div),
        'kl_div_none':
            _pair(F.kl_div, reduction='none'),
        'log_loss':
            lambda d: F.log_loss(d.x(d.m, 1), d.x(d.m, 1, grad=False)),
        'square_error':
            _pair(F.square_error_cost),
        'sigmoid_focal':
            _pair(F.sigmoid_focal_loss),
        'dice':
            lambda d: F.dice_loss(F.softmax(d.x(d.n, d.m)), d.ids(4, d.n, 1)),
        'cosine':
            lambda d: F.cosine_similarity(d.x(d.n, d.m), d.x(d.n, d.m)),
        'margin_ranking':
            lambda d: F.margin_ranking_loss(d.x(d.n, d.m), d.x(d.n, d.m), d.x(d.n, d.m, grad=False)
                                           ),
        'hinge_embedding':
            _pair(F.hinge_embedding_loss),
        'triplet':
            lambda d: F.triplet_margin_loss(d.x(d.n, d.m), d.x(d.n, d.m), d.x(d.n, d.m)),
        'ctc':
            lambda d: F.ctc_loss(d.x(d.h, d.n, d.m),
                                 d.ids(4, d.n, d.t, dtype='int32') + 1,
                                 paddle.full([d.n], d.h, 'int64'), paddle.full([d.n], d.t, 'int64')
                                ),
        'rnnt':
            lambda d: F.rnnt_loss(d.x(d.n, d.h, d.t + 1, d.m),
                                  d.ids(4, d.n, d.t, dtype='int32'),
                                  paddle.full([d.n], d.h, 'int32'),
                                  paddle.full([d.n], d.t, 'int32'),
                                  fastemit_lambda=0.0),
        'hsigmoid':
            lambda d: F.hsigmoid_loss(d.x(d.n, d.m), d.ids(d.t, d.n, 1), d.t, d.x(d.t - 1, d.m),
                                      d.x(d.t - 1, 1)),
        'margin_cross_entropy':
            lambda d: F.margin_cross_entropy(d.x(d.n, d.m), d.ids(4, d.n)),
        'huber':
            lambda d: _huber(d),
        'accuracy':
            lambda d: paddle.static.accuracy(d.x(d.n, d.m), d.ids(4, d.n, 1)),
        'auc':
            lambda d: paddle.static.auc(F.softmax(d.x(d.n, 2, grad=False)), d.ids(2, d.n, 1))[0],
    }


def _huber(d: Draw) -> Any:
    block = paddle.static.default_main_program().global_block()
    out, residual = (block.create_var(name=n, dtype='float32', stop_gradient=False) for n in 'or')
    block.append_op(type='huber_loss',
                    inputs={'X': [d.x(d.m, 1)], 'Y': [d.x(d.m, 1)]},
                    outputs={'Out': [out], 'Residual': [residual]},
                    attrs={'delta': 0.5})  # yapf: disable
    return out
