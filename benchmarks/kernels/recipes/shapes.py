"""Kernels that move, pick, join and make elements."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np
import paddle
import paddle.nn.functional as F

from benchmarks.kernels.draw import Draw

Recipe = Callable[[Draw], Any]
# Tables of programs, a program a line: the formatter would take minutes over them.
# yapf: disable


def recipes() -> Dict[str, Recipe]:
    """Programs by name."""
    return {**_moving(), **_picking(), **_making(), **_linear()}


def _moving() -> Dict[str, Recipe]:
    return {
        'reshape':
            lambda d: paddle.reshape(d.x(d.n, d.c, d.m), [d.n, -1]),
        'flatten':
            lambda d: paddle.flatten(d.x(d.n, d.c, d.m), 1),
        'squeeze':
            lambda d: paddle.squeeze(d.x(d.n, 1, d.m), 1),
        'unsqueeze':
            lambda d: paddle.unsqueeze(d.x(d.n, d.m), 1),
        'transpose':
            lambda d: paddle.transpose(d.x(d.n, d.c, d.m), [0, 2, 1]),
        'transpose_4':
            lambda d: paddle.transpose(d.x(d.n, d.c, d.h, d.w), [0, 2, 3, 1]),
        'concat':
            lambda d: paddle.concat([d.x(d.n, d.m), d.x(d.n, d.p)], 1),
        'concat_0':
            lambda d: paddle.concat([d.x(d.n, d.m), d.x(d.c, d.m)], 0),
        'split':
            lambda d: paddle.split(d.x(d.n, 3 * d.m), 3, 1),
        'split_0':
            lambda d: paddle.split(d.x(3 * d.n, d.m), 3, 0),
        'split_sections':
            lambda d: paddle.split(d.x(d.n, d.m), [5, -1], 1),
        'stack':
            lambda d: paddle.stack([d.x(d.n, d.m), d.x(d.n, d.m)], 1),
        'tile':
            lambda d: paddle.tile(d.x(d.n, d.m), [2, 3]),
        'expand':
            lambda d: paddle.expand(d.x(d.n, 1, d.m), [d.n, d.c, d.m]),
        'expand_last':
            lambda d: paddle.expand(d.x(d.n, d.m, 1), [d.n, d.m, d.c]),
        'expand_front':
            lambda d: paddle.expand(d.x(d.m), [d.n, d.m]),
        'expand_as':
            lambda d: paddle.expand_as(d.x(1, d.m), d.x(d.n, d.m)),
        'broadcast_tensors':
            lambda d: paddle.broadcast_tensors([d.x(1, d.m), d.x(d.n, 1)]),
        'repeat':
            lambda d: paddle.repeat_interleave(d.x(d.n, d.m), d.k, 1),
        'repeat_0':
            lambda d: paddle.repeat_interleave(d.x(d.n, d.m), d.k, 0),
        'repeat_tensor':
            lambda d: paddle.repeat_interleave(d.x(d.n, d.m), d.given(np.arange(1, d.m + 1)), 1),
        'repeat_interleave_middle':
            lambda d: paddle.repeat_interleave(d.x(d.n, d.m, d.h), d.k, 1),
        'repeat_interleave_given_first':
            lambda d: paddle.repeat_interleave(d.x(d.m, d.n), d.given(np.arange(1, d.m + 1)), 0),
        'trace_first':
            lambda d: paddle.trace(d.x(d.h, d.h, d.m), axis1=0, axis2=1),
        'roll':
            lambda d: paddle.roll(d.x(d.n, d.m), 3, 1),
        'pad':
            lambda d: F.pad(d.x(d.n, d.m), [0, 0, 3, 4]),
        'pad_2d':
            lambda d: F.pad(d.x(d.n, d.c, d.h, d.w), [1, 2, 3, 4]),
        'pad_reflect':
            lambda d: F.pad(d.x(d.n, d.c, d.h, d.w), [1, 2, 3, 4], mode='reflect'),
        'pad_replicate':
            lambda d: F.pad(d.x(d.n, d.c, d.h, d.w), [1, 2, 3, 4], mode='replicate'),
        'pad_circular':
            lambda d: F.pad(d.x(d.n, d.c, d.h, d.w), [1, 2, 3, 4], mode='circular'),
        'pad_3d':
            lambda d: F.pad(d.x(d.n, d.c, d.t, d.h, d.w), [1] * 6, data_format='NCDHW'),
        'rot90':
            lambda d: paddle.rot90(d.x(d.n, d.m)),
        'moveaxis':
            lambda d: paddle.moveaxis(d.x(d.n, d.c, d.m), 0, 2),
        'tril':
            lambda d: paddle.tril(d.x(d.m, d.p)),
        'triu':
            lambda d: paddle.triu(d.x(d.m, d.p)),
        'diag':
            lambda d: paddle.diag(d.x(d.m)),
        'diag_2':
            lambda d: paddle.diag(d.x(d.m, d.p)),
        'diag_embed':
            lambda d: F.diag_embed(d.x(d.n, d.m)),
        'diagonal':
            lambda d: paddle.diagonal(d.x(d.n, d.c, d.m), axis1=1, axis2=2),
        'fill_diagonal_tensor':
            lambda d: paddle.tensor.manipulation.fill_diagonal_tensor(d.x(d.m, d.m), d.x(d.m)),
        'meshgrid':
            lambda d: paddle.meshgrid(d.x(d.m), d.x(d.p)),
        'pixel_shuffle':
            lambda d: F.pixel_shuffle(d.x(d.n, 4 * d.c, d.h, d.w), 2),
        'pixel_unshuffle':
            lambda d: F.pixel_unshuffle(d.x(d.n, d.c, 2 * d.h, 2 * d.w), 2),
        'channel_shuffle':
            lambda d: F.channel_shuffle(d.x(d.n, d.c, d.h, d.w), 2),
        'unfold':
            lambda d: F.unfold(d.x(d.n, d.c, d.h, d.w), 3, paddings=1),
        'fold':
            lambda d: F.fold(d.x(d.n, 9 * d.c, d.h * d.w), [d.h, d.w], 3, paddings=1),
        'temporal_shift':
            lambda d: F.temporal_shift(d.x(2 * d.n, d.c, d.h, d.w), 2, 0.25),
        'crop':
            lambda d: paddle.crop(d.x(d.n, d.m, d.p), [-1, 7, 9], [0, 1, 2]),
    }


def _picking() -> Dict[str, Recipe]:
    return {
        'slice':
            lambda d: d.x(d.n, d.m, d.p)[:, 2:9],
        'slice_one':
            lambda d: d.x(d.n, d.m, d.p)[:, 2],
        'strided_slice':
            lambda d: d.x(d.n, d.m, d.p)[:, 2:20:3],
        'strided_slice_back':
            lambda d: paddle.strided_slice(d.x(d.n, d.m), [1], [20], [2], [-3]),
        'set_value':
            lambda d: _set(d, lambda x: x[:, 2:9], 1.0),
        'set_value_tensor':
            lambda d: paddle.static.setitem(
                d.x(d.n, d.m) * 1.0, (slice(None), slice(0, 7)), d.x(d.n, 7)),
        'gather':
            lambda d: paddle.gather(d.x(d.v, d.m), d.ids(d.v, d.p)),
        'gather_1':
            lambda d: paddle.gather(d.x(d.n, d.v), d.ids(d.v, d.p), 1),
        'gather_nd':
            lambda d: paddle.gather_nd(d.x(d.v, d.m), d.ids(d.v, d.p, 1)),
        'index_select':
            lambda d: paddle.index_select(d.x(d.n, d.v), d.ids(d.v, d.p), 1),
        'index_select_0':
            lambda d: paddle.index_select(d.x(d.v, d.m), d.ids(d.v, d.p), 0),
        'index_sample':
            lambda d: paddle.index_sample(d.x(d.n, d.v), d.ids(d.v, d.n, d.p)),
        'index_add':
            lambda d: paddle.index_add(d.x(d.v, d.m), d.ids(d.v, d.p), 0, d.x(d.p, d.m)),
        'index_add_1':
            lambda d: paddle.index_add(d.x(d.n, d.v), d.ids(d.v, d.p), 1, d.x(d.n, d.p)),
        'index_put':
            lambda d: paddle.index_put(d.x(d.v, d.m), (d.ids(d.v, d.p), d.ids(d.m, d.p)), d.x(d.p)),
        'index_put_add':
            lambda d: paddle.index_put(d.x(d.v, d.m), (d.ids(d.v, d.p),), d.x(d.p, d.m), True),
        'index_put_rows':
            lambda d: paddle.index_put(d.x(d.v, d.m), (d.ids(d.v, d.p),), d.x(d.p, d.m)),
        'index_put_one':
            lambda d: paddle.index_put(d.x(d.v, d.m), (d.ids(d.v, d.p),), d.x(1)),
        'index_put_all':
            lambda d: paddle.index_put(d.x(d.v, d.m), (d.ids(d.v, d.p), d.ids(d.m, d.p)), d.x(1)),
        'index_put_deep':
            lambda d: paddle.index_put(d.x(d.v, d.n, d.m), (d.ids(d.v, d.p),), d.x(d.n, d.m)),
        'take_along_axis':
            lambda d: paddle.take_along_axis(d.x(d.n, d.v), d.ids(d.v, d.n, d.p), 1),
        'put_along_axis':
            lambda d: paddle.put_along_axis(d.x(d.n, d.v), d.ids(d.v, d.n, d.p), d.x(d.n, d.p), 1),
        'put_along_axis_add':
            lambda d: paddle.put_along_axis(d.x(d.n, d.v), d.ids(d.v, d.n, d.p), d.x(d.n, d.p), 1,
                                            'add'),
        'scatter':
            lambda d: paddle.scatter(d.x(d.v, d.m), d.ids(d.v, d.p), d.x(d.p, d.m)),
        'scatter_add':
            lambda d: paddle.scatter(d.x(d.v, d.m), d.ids(d.v, d.p), d.x(d.p, d.m), overwrite=False
                                    ),
        'scatter_nd_add':
            lambda d: paddle.scatter_nd_add(d.x(d.v, d.m), d.ids(d.v, d.p, 1), d.x(d.p, d.m)),
        'scatter_nd':
            lambda d: paddle.scatter_nd(d.ids(d.v, d.p, 1), d.x(d.p, d.m), [d.v, d.m]),
        'masked_select':
            lambda d: paddle.masked_select(d.x(d.n, d.m), d.bools(d.n, d.m)),
        'masked_fill':
            lambda d: paddle.masked_fill(d.x(d.n, d.m), d.bools(d.n, d.m), paddle.full([1], 1.0)),
        'nonzero':
            lambda d: paddle.nonzero(d.bools(d.n, d.m)),
        'embedding':
            lambda d: F.embedding(d.ids(d.v, d.n, d.t), d.x(d.v, d.m)),
        'embedding_padding':
            lambda d: F.embedding(d.ids(d.v, d.n, d.t), d.x(d.v, d.m), 0),
        'one_hot':
            lambda d: F.one_hot(d.ids(d.m, d.n, d.t), d.m),
        'sequence_mask':
            lambda d: F.sequence_mask(d.ids(d.m, d.n), d.m),
        'shard_index':
            lambda d: paddle.shard_index(d.ids(d.m, d.n, 1), d.m, 2, 0),
        'gather_tree':
            lambda d: F.gather_tree(d.ids(4, d.h, d.n, 3), d.ids(3, d.h, d.n, 3)),
        'segment_sum':
            lambda d: paddle.geometric.segment_sum(
                d.x(d.p, d.m), d.given(np.sort(np.random.RandomState(0).randint(0, d.t, d.p)))),
        'segment_mean':
            lambda d: paddle.geometric.segment_mean(
                d.x(d.p, d.m), d.given(np.sort(np.random.RandomState(0).randint(0, d.t, d.p)))),
        'segment_max':
            lambda d: paddle.geometric.segment_max(
                d.x(d.p, d.m), d.given(np.sort(np.random.RandomState(0).randint(0, d.t, d.p)))),
        'send_u_recv':
            lambda d: paddle.geometric.send_u_recv(d.x(d.v, d.m), d.ids(d.v, d.p), d.ids(d.v, d.p)),
        'send_u_recv_mean':
            lambda d: paddle.geometric.send_u_recv(d.x(d.v, d.m), d.ids(d.v, d.p), d.ids(d.v, d.p),
                                                   'mean'),
        'send_u_recv_max':
            lambda d: paddle.geometric.send_u_recv(d.x(d.v, d.m), d.ids(d.v, d.p), d.ids(d.v, d.p),
                                                   'max'),
        'send_ue_recv':
            lambda d: paddle.geometric.send_ue_recv(d.x(d.v, d.m), d.x(d.p, d.m), d.ids(d.v, d.p),
                                                    d.ids(d.v, d.p)),
        'send_uv':
            lambda d: paddle.geometric.send_uv(d.x(d.v, d.m), d.x(d.v, d.m), d.ids(d.v, d.p),
                                               d.ids(d.v, d.p)),
        'is_empty':
            lambda d: paddle.is_empty(d.x(d.n, d.m)),
        'shape':
            lambda d: paddle.shape(d.x(d.n, d.m)),
        'size':
            lambda d: paddle.numel(d.x(d.n, d.m)),
        'bmm_slice':
            lambda d: paddle.slice(d.x(d.n, d.m), [0], [1], [2]),
    }


def _set(d: Draw, part: Callable[[Any], Any], value: Any) -> Any:
    x = d.x(d.n, d.m, d.p) * 1.0
    return paddle.static.setitem(x, (slice(None), slice(2, 9)), value)


def _making() -> Dict[str, Recipe]:
    return {
        'full': lambda d: paddle.full([d.n, d.m], 2.0),
        'full_like': lambda d: paddle.full_like(d.x(d.n, d.m), 2.0),
        'zeros_like': lambda d: paddle.zeros_like(d.x(d.n, d.m)),
        'empty': lambda d: paddle.empty([d.n, d.m]),
        'arange': lambda d: paddle.arange(0, d.m),
        'arange_float': lambda d: paddle.arange(0.0, 10.0, 0.1),
        'linspace': lambda d: paddle.linspace(0, 1, d.m),
        'logspace': lambda d: paddle.logspace(0, 1, d.m),
        'eye': lambda d: paddle.eye(d.m, d.p),
        'uniform': lambda d: paddle.uniform([d.n, d.m]),
        'normal': lambda d: paddle.randn([d.n, d.m]),
        'randint': lambda d: paddle.randint(0, 9, [d.n, d.m]),
        'randperm': lambda d: paddle.randperm(d.m),
        'bernoulli': lambda d: paddle.bernoulli(d.x(d.n, d.m, grad=False)),
        'multinomial': lambda d: paddle.multinomial(d.x(d.n, d.m, grad=False), 3),
        'poisson': lambda d: paddle.poisson(d.x(d.n, d.m)),
        'exponential': lambda d: d.x(d.n, d.m, grad=False).exponential_(),
        'tril_indices': lambda d: paddle.tril_indices(d.m, d.p, 0),
        'triu_indices': lambda d: paddle.triu_indices(d.m, d.p, 0),
        'assign_value': lambda d: paddle.assign(np.ones([d.n, d.m], 'float32')),
        'fill_batch_like': lambda d: paddle.tensor.fill_constant([d.n, d.m], 'int64', 3),
        'truncated': lambda d: _initialized(d, paddle.nn.initializer.TruncatedNormal()),
        'add_position': lambda d: _position(d),
    }


def _initialized(d: Draw, how: Any) -> Any:
    block = paddle.static.default_main_program().global_block()
    made = block.create_var(name='made', shape=[d.n, d.m], dtype='float32')
    how(made, block)
    return made


def _position(d: Draw) -> Any:
    block = paddle.static.default_main_program().global_block()
    out = block.create_var(name='out', dtype='float32', stop_gradient=False)
    block.append_op(type='add_position_encoding',
                    inputs={'X': [d.x(d.n, d.t, 2 * d.c)]},
                    outputs={'Out': [out]},
                    attrs={'alpha': 1.0, 'beta': 1.0})  # yapf: disable
    return out


def _linear() -> Dict[str, Recipe]:
    return {
        'matmul':
            lambda d: paddle.matmul(d.x(d.n, d.m), d.x(d.m, d.p)),
        'matmul_tx':
            lambda d: paddle.matmul(d.x(d.m, d.n), d.x(d.m, d.p), True),
        'matmul_ty':
            lambda d: paddle.matmul(d.x(d.n, d.m), d.x(d.p, d.m), False, True),
        'matmul_txy':
            lambda d: paddle.matmul(d.x(d.m, d.n), d.x(d.p, d.m), True, True),
        'matmul_batch':
            lambda d: paddle.matmul(d.x(d.n, d.c, d.m), d.x(d.n, d.m, d.p)),
        'matmul_batch_ty':
            lambda d: paddle.matmul(d.x(d.n, d.c, d.m), d.x(d.n, d.p, d.m), False, True),
        'matmul_weight':
            lambda d: paddle.matmul(d.x(d.n, d.c, d.m), d.x(d.m, d.p)),
        'matmul_weight_ty':
            lambda d: paddle.matmul(d.x(d.n, d.c, d.m), d.x(d.p, d.m), False, True),
        'matmul_broadcast':
            lambda d: paddle.matmul(d.x(d.n, d.c, d.t, d.m), d.x(1, d.c, d.m, d.p)),
        'matmul_broadcast_both':
            lambda d: paddle.matmul(d.x(d.n, 1, d.t, d.m), d.x(1, d.c, d.m, d.p)),
        'matmul_left':
            lambda d: paddle.matmul(d.x(d.t, d.m), d.x(d.n, d.c, d.m, d.p)),
        'matmul_vector':
            lambda d: paddle.matmul(d.x(d.n, d.c, d.m), d.x(d.m)),
        'matmul_vector_left':
            lambda d: paddle.matmul(d.x(d.m), d.x(d.n, d.m, d.p)),
        'matmul_dot':
            lambda d: paddle.matmul(d.x(d.m), d.x(d.m)),
        'fc':
            lambda d: paddle.static.nn.fc(d.x(d.n, d.m), d.p),
        'fc_3':
            lambda d: paddle.static.nn.fc(d.x(d.n, d.c, d.m), d.p, num_flatten_dims=2),
        'bmm':
            lambda d: paddle.bmm(d.x(d.n, d.c, d.m), d.x(d.n, d.m, d.p)),
        'mv':
            lambda d: paddle.mv(d.x(d.n, d.m), d.x(d.m)),
        'dot':
            lambda d: paddle.dot(d.x(d.n, d.m), d.x(d.n, d.m)),
        'addmm':
            lambda d: paddle.addmm(d.x(d.n, d.p), d.x(d.n, d.m), d.x(d.m, d.p)),
        'addmm_broadcast':
            lambda d: paddle.addmm(d.x(1, d.p), d.x(d.n, d.m), d.x(d.m, d.p)),
        'einsum':
            lambda d: paddle.einsum('bij,bjk->bik', d.x(d.n, d.c, d.m), d.x(d.n, d.m, d.p)),
        'einsum_heads':
            lambda d: paddle.einsum('bqhd,bkhd->bhqk', d.x(d.n, d.t, d.c, d.m),
                                    d.x(d.n, d.h, d.c, d.m)),
        'einsum_sum':
            lambda d: paddle.einsum('ij,j->', d.x(d.n, d.m), d.x(d.m)),
        'einsum_one':
            lambda d: paddle.einsum('ij->ji', d.x(d.n, d.m)),
        'einsum_outer':
            lambda d: paddle.einsum('i,j->ij', d.x(d.n), d.x(d.m)),
        'einsum_three':
            lambda d: paddle.einsum('ij,jk,kl->il', d.x(d.n, d.m), d.x(d.m, d.p), d.x(d.p, d.t)),
        'outer':
            lambda d: paddle.outer(d.x(d.n), d.x(d.m)),
        'kron':
            lambda d: paddle.kron(d.x(d.n, d.c), d.x(d.t, d.h)),
        'cross':
            lambda d: paddle.cross(d.x(d.n, 3), d.x(d.n, 3)),
        'multi_dot':
            lambda d: paddle.linalg.multi_dot([d.x(
                d.n, d.m), d.x(d.m, d.p), d.x(d.p, d.t)]),
        'bilinear':
            lambda d: paddle.nn.Bilinear(d.m, d.p, d.c)(d.x(d.n, d.m), d.x(d.n, d.p)),
        'tensordot':
            lambda d: paddle.tensordot(d.x(d.n, d.c, d.m), d.x(d.c, d.m, d.p), 2),
        'cholesky':
            lambda d: paddle.linalg.cholesky(_positive(d)),
        'cholesky_solve':
            lambda d: paddle.linalg.cholesky_solve(d.x(d.m, d.n), _positive(d)),
        'inverse':
            lambda d: paddle.linalg.inv(_positive(d)),
        'det':
            lambda d: paddle.linalg.det(_positive(d)),
        'slogdet':
            lambda d: paddle.linalg.slogdet(_positive(d)),
        'solve':
            lambda d: paddle.linalg.solve(_positive(d), d.x(d.m, d.n)),
        'triangular_solve':
            lambda d: paddle.linalg.triangular_solve(_positive(d), d.x(d.m, d.n)),
        'svd':
            lambda d: paddle.linalg.svd(d.x(d.m, d.t)),
        'qr':
            lambda d: paddle.linalg.qr(d.x(d.m, d.t)),
        'lu':
            lambda d: paddle.linalg.lu(_positive(d)),
        'eigh':
            lambda d: paddle.linalg.eigh(_positive(d)),
        'eigvalsh':
            lambda d: paddle.linalg.eigvalsh(_positive(d)),
        'eig':
            lambda d: paddle.linalg.eig(_positive(d)),
        'eigvals':
            lambda d: paddle.linalg.eigvals(_positive(d)),
        'matrix_power':
            lambda d: paddle.linalg.matrix_power(_positive(d), 3),
        'matrix_rank':
            lambda d: paddle.linalg.matrix_rank(_positive(d)),
        'lstsq':
            lambda d: paddle.linalg.lstsq(d.x(d.m, d.t, grad=False), d.x(d.m, d.n, grad=False))[0],
        'cdist':
            lambda d: paddle.cdist(d.x(d.n, d.m), d.x(d.c, d.m)),
        'fft':
            lambda d: paddle.fft.rfft(d.x(d.n, d.m)),
        'fft_both':
            lambda d: paddle.fft.fft(d.x(d.n, d.m)),
        'fft_both_middle':
            lambda d: paddle.fft.fft(d.x(d.n, d.m, d.h), axis=1),
        'irfft':
            lambda d: paddle.fft.irfft(paddle.complex(d.x(d.n, d.m), d.x(d.n, d.m))),
        'fft2':
            lambda d: paddle.fft.fft2(paddle.complex(d.x(d.n, d.h, d.w), d.x(d.n, d.h, d.w))),
        'stft':
            lambda d: paddle.signal.stft(d.x(d.n, 512), 64),
        'frame':
            lambda d: paddle.signal.frame(d.x(d.n, 64), 16, 4),
        'overlap_add':
            lambda d: paddle.signal.overlap_add(d.x(d.n, 16, d.t), 4),
        'self_attention':
            lambda d: paddle.nn.MultiHeadAttention(12 * d.n, 3)(d.x(d.n, d.t, 12 * d.n)),
    }


def _positive(d: Draw) -> Any:
    x = d.x(d.m, d.m)
    return paddle.matmul(x, x, transpose_y=True) + paddle.eye(d.m) * 3.0
