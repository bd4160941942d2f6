"""Convolutions, pooling, normalisation, resizing, detection."""

from __future__ import annotations

from typing import Any, Callable, Dict

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from benchmarks.kernels.draw import Draw

Recipe = Callable[[Draw], Any]
# Tables of programs, a program a line: the formatter would take minutes over them.
# yapf: disable


def recipes() -> Dict[str, Recipe]:
    """Programs by name."""
    return {**_convolutions(), **_pooling(), **_norms(), **_resizing(), **_detection()}


def _image(d: Draw, **options: Any) -> Any:
    return d.x(d.n, d.c, d.h, d.w, **options)


def _volume(d: Draw) -> Any:
    return d.x(d.n, d.c, d.t, d.h, d.w)


def _convolutions() -> Dict[str, Recipe]:
    found: Dict[str, Recipe] = {
        'conv1d':
            lambda d: F.conv1d(d.x(d.n, d.c, d.m), d.x(d.k, d.c, 3), padding=1),
        'conv2d_layer':
            lambda d: nn.Conv2D(d.c, d.k, 3, padding=1)(_image(d)),
        'conv2d_channels_last':
            lambda d: F.conv2d(d.x(d.n, d.h, d.w, d.c), d.x(d.k, d.c, 3, 3), data_format='NHWC'),
        'conv1d_transpose':
            lambda d: F.conv1d_transpose(d.x(d.n, d.c, d.m), d.x(d.c, d.k, 3), stride=2),
        'deform_conv':
            lambda d: paddle.vision.ops.deform_conv2d(
                _image(d), d.x(d.n, 18, d.h, d.w), d.x(d.k, d.c, 3, 3), padding=1),
        'deform_conv_v2':
            lambda d: paddle.vision.ops.deform_conv2d(_image(d),
                                                      d.x(d.n, 18, d.h, d.w),
                                                      d.x(d.k, d.c, 3, 3),
                                                      padding=1,
                                                      mask=d.x(d.n, 9, d.h, d.w)),
        'row_conv':
            lambda d: paddle.static.nn.row_conv(d.x(d.n, d.t, d.m), 2),
    }
    options = {
        '': {'padding': 1}, '_strided': {'stride': 2, 'padding': 1}, '_dilated': {'dilation': 2, 'padding': 1},
        '_valid': {},
    }  # yapf: disable
    for label, how in options.items():
        found[f'conv2d{label}'] = lambda d, how=how: F.conv2d(_image(d), d.x(d.k, d.c, 3, 3), **how)
        found[f'conv3d{label}'] = lambda d, how=how: F.conv3d(_volume(d), d.x(d.k, d.c, 3, 3, 3), **
                                                              how)
        found[f'conv2d_transpose{label}'] = lambda d, how=how: F.conv2d_transpose(
            _image(d), d.x(d.c, d.k, 3, 3), **how)
        found[f'conv3d_transpose{label}'] = lambda d, how=how: F.conv3d_transpose(
            _volume(d), d.x(d.c, d.k, 3, 3, 3), **how)
    found.update(_special_convolutions())
    return found


def _special_convolutions() -> Dict[str, Recipe]:
    return {
        'conv2d_point':
            lambda d: F.conv2d(_image(d), d.x(d.k, d.c, 1, 1)),
        'conv2d_point_strided':
            lambda d: F.conv2d(_image(d), d.x(d.k, d.c, 1, 1), stride=2),
        'conv3d_point':
            lambda d: F.conv3d(_volume(d), d.x(d.k, d.c, 1, 1, 1)),
        'conv2d_groups':
            lambda d: F.conv2d(_image(d), d.x(d.k, d.c // 2, 3, 3), groups=2),
        'conv3d_groups':
            lambda d: F.conv3d(_volume(d), d.x(d.k, d.c // 2, 3, 3, 3), groups=2),
        'conv2d_depthwise':
            lambda d: F.conv2d(_image(d), d.x(d.c, 1, 3, 3), groups=d.c),
        'conv2d_depthwise_more':
            lambda d: F.conv2d(_image(d), d.x(2 * d.c, 1, 3, 3), groups=d.c),
        'conv2d_same':
            lambda d: F.conv2d(_image(d), d.x(d.k, d.c, 3, 3), padding='SAME'),
        'conv2d_uneven':
            lambda d: F.conv2d(_image(d), d.x(d.k, d.c, 3, 3), padding=[1, 2, 0, 1]),
        'conv2d_uneven_point':
            lambda d: F.conv2d(_image(d), d.x(d.k, d.c, 1, 1), padding=[1, 2, 0, 1]),
        'conv3d_uneven':
            lambda d: F.conv3d(_volume(d), d.x(d.k, d.c, 3, 3, 3), padding=[1, 2, 0, 1, 1, 0]),
        'conv2d_transpose_groups':
            lambda d: F.conv2d_transpose(_image(d), d.x(d.c, d.k // 2, 3, 3), groups=2),
        'conv2d_transpose_depthwise':
            lambda d: F.conv2d_transpose(_image(d), d.x(d.c, 1, 3, 3), groups=d.c),
        'conv2d_transpose_layer':
            lambda d: nn.Conv2DTranspose(d.c, d.k, 4, stride=2, padding=1)(_image(d)),
        'conv2d_weight_only':
            lambda d: F.conv2d(_image(d, grad=False), d.x(d.k, d.c, 3, 3)),
        'conv3d_weight_only':
            lambda d: F.conv3d(d.x(d.n, d.c, d.t, d.h, d.w, grad=False), d.x(d.k, d.c, 3, 3, 3)),
        'conv2d_image_only':
            lambda d: F.conv2d(_image(d), d.x(d.k, d.c, 3, 3, grad=False)),
        'conv3d_channels_last':
            lambda d: F.
            conv3d(d.x(d.n, d.t, d.h, d.w, d.c), d.x(d.k, d.c, 3, 3, 3), data_format='NDHWC'),
        'conv2d_transpose_channels_last':
            lambda d: F.
            conv2d_transpose(d.x(d.n, d.h, d.w, d.c), d.x(d.c, d.k, 3, 3), data_format='NHWC'),
        'conv2d_64':
            lambda d: F.conv2d(_image(d, dtype='float64'), d.x(d.k, d.c, 3, 3, dtype='float64')),
    }


def _pooling() -> Dict[str, Recipe]:
    return {
        'max_pool1d':
            lambda d: F.max_pool1d(d.x(d.n, d.c, d.m), 2),
        'max_pool2d':
            lambda d: F.max_pool2d(_image(d), 2),
        'max_pool2d_index':
            lambda d: F.max_pool2d(_image(d), 2, return_mask=True),
        'max_pool3d':
            lambda d: F.max_pool3d(_volume(d), 2),
        'max_pool3d_index':
            lambda d: F.max_pool3d(_volume(d), 2, return_mask=True),
        'avg_pool1d':
            lambda d: F.avg_pool1d(d.x(d.n, d.c, d.m), 2),
        'avg_pool2d':
            lambda d: F.avg_pool2d(_image(d), 3, 2, 1),
        'avg_pool3d':
            lambda d: F.avg_pool3d(_volume(d), 2),
        'avg_pool2d_last':
            lambda d: F.avg_pool2d(d.x(d.n, d.h, d.w, d.c), 2, data_format='NHWC'),
        'max_pool2d_last':
            lambda d: F.max_pool2d(d.x(d.n, d.h, d.w, d.c), 2, data_format='NHWC'),
        'adaptive_avg_pool1d':
            lambda d: F.adaptive_avg_pool1d(d.x(d.n, d.c, d.m), 3),
        'adaptive_avg_pool2d':
            lambda d: F.adaptive_avg_pool2d(_image(d), 3),
        'adaptive_avg_pool3d':
            lambda d: F.adaptive_avg_pool3d(_volume(d), 2),
        'adaptive_max_pool2d':
            lambda d: F.adaptive_max_pool2d(_image(d), 3),
        'adaptive_max_pool3d':
            lambda d: F.adaptive_max_pool3d(_volume(d), 2),
        'unpool':
            lambda d: F.max_unpool2d(
                *F.max_pool2d(d.x(d.n, d.c, 2 * d.h, 2 * d.w), 2, return_mask=True), 2),
        'unpool3d':
            lambda d: F.max_unpool3d(*F.max_pool3d(d.x(d.n, d.c, 8, 8, 8), 2, return_mask=True), 2),
        'spp':
            lambda d: _spp(d),
    }


def _spp(d: Draw) -> Any:
    block = paddle.static.default_main_program().global_block()
    out = block.create_var(name='spp', dtype='float32', stop_gradient=False)
    block.append_op(type='spp',
                    inputs={'X': [_image(d)]},
                    outputs={'Out': [out]},
                    attrs={'pyramid_height': 2, 'pooling_type': 'max'})  # yapf: disable
    return out


def _norms() -> Dict[str, Recipe]:
    return {
        'batch_norm':
            lambda d: paddle.static.nn.batch_norm(_image(d)),
        'batch_norm_2':
            lambda d: paddle.static.nn.batch_norm(d.x(d.n, d.m)),
        'batch_norm_test':
            lambda d: paddle.static.nn.batch_norm(_image(d), is_test=True),
        'batch_norm_global':
            lambda d: paddle.static.nn.batch_norm(_image(d), use_global_stats=True),
        'batch_norm_last':
            lambda d: paddle.static.nn.batch_norm(d.x(d.n, d.h, d.w, d.c), data_layout='NHWC'),
        'batch_norm_layer':
            lambda d: nn.BatchNorm2D(d.c)(_image(d)),
        'batch_norm_layer_1':
            lambda d: nn.BatchNorm1D(d.m)(d.x(d.n, d.m)),
        'batch_norm_layer_last':
            lambda d: nn.BatchNorm2D(d.c, data_format='NHWC')(d.x(d.n, d.h, d.w, d.c)),
        'batch_norm_layer_global':
            lambda d: nn.BatchNorm2D(d.c, use_global_stats=True)(_image(d)),
        'layer_norm_layer':
            lambda d: nn.LayerNorm(d.m)(d.x(d.n, d.c, d.m)),
        'layer_norm_layer_2':
            lambda d: nn.LayerNorm([d.c, d.m])(d.x(d.n, d.c, d.m)),
        'layer_norm_layer_plain':
            lambda d: nn.LayerNorm(d.m, weight_attr=False, bias_attr=False)(d.x(d.n, d.c, d.m)),
        'layer_norm_layer_scale':
            lambda d: nn.LayerNorm(d.m, bias_attr=False)(d.x(d.n, d.c, d.m)),
        'layer_norm_layer_shift':
            lambda d: nn.LayerNorm(d.m, weight_attr=False)(d.x(d.n, d.c, d.m)),
        'group_norm_layer':
            lambda d: nn.GroupNorm(2, d.c)(_image(d)),
        'instance_norm_layer':
            lambda d: nn.InstanceNorm2D(d.c)(_image(d)),
        'batch_norm_3d':
            lambda d: nn.BatchNorm3D(d.c)(_volume(d)),
        'layer_norm':
            lambda d: paddle.static.nn.layer_norm(d.x(d.n, d.c, d.m), begin_norm_axis=2),
        'layer_norm_1':
            lambda d: paddle.static.nn.layer_norm(d.x(d.n, d.c, d.m)),
        'layer_norm_plain':
            lambda d: paddle.static.nn.layer_norm(
                d.x(d.n, d.c, d.m), False, False, begin_norm_axis=2),
        'layer_norm_scale':
            lambda d: paddle.static.nn.layer_norm(
                d.x(d.n, d.c, d.m), True, False, begin_norm_axis=2),
        'layer_norm_shift':
            lambda d: paddle.static.nn.layer_norm(
                d.x(d.n, d.c, d.m), False, True, begin_norm_axis=2),
        'group_norm':
            lambda d: paddle.static.nn.group_norm(_image(d), 2),
        'group_norm_plain':
            lambda d: nn.GroupNorm(2, d.c, weight_attr=False, bias_attr=False)(_image(d)),
        'instance_norm':
            lambda d: paddle.static.nn.instance_norm(_image(d)),
        'instance_norm_plain':
            lambda d: F.instance_norm(_image(d)),
        'instance_norm_3d':
            lambda d: nn.InstanceNorm3D(d.c)(_volume(d)),
        'local_response':
            lambda d: F.local_response_norm(_image(d), 3),
        'lrn':
            lambda d: _lrn(d),
        'spectral_norm':
            lambda d: paddle.static.nn.spectral_norm(d.x(d.m, d.p)),
        'spectral_norm_1':
            lambda d: paddle.static.nn.spectral_norm(d.x(d.m, d.p), 1, 2),
        'spectral_norm_4':
            lambda d: paddle.static.nn.spectral_norm(d.x(d.c, d.k, 3, 3), 0, 3),
        'spectral_norm_41':
            lambda d: paddle.static.nn.spectral_norm(d.x(d.c, d.k, 3, 3), 1, 1),
        'data_norm':
            lambda d: paddle.static.nn.data_norm(d.x(d.n, d.m)),
        'norm_op':
            lambda d: _norm(d, 1),
        'norm_op_last':
            lambda d: _norm(d, -1),
        'affine_channel':
            lambda d: _affine_channel(d),
    }


def _lrn(d: Draw) -> Any:
    block = paddle.static.default_main_program().global_block()
    out, mid = (block.create_var(name=n, dtype='float32', stop_gradient=False) for n in 'om')
    block.append_op(type='lrn',
                    inputs={'X': [_image(d)]},
                    outputs={'Out': [out], 'MidOut': [mid]},
                    attrs={'n': 3, 'k': 1.0, 'alpha': 1e-4, 'beta': 0.75})  # yapf: disable
    return out


def _norm(d: Draw, axis: int) -> Any:
    """By its square root, as `weight_norm` divides a weight."""
    block = paddle.static.default_main_program().global_block()
    if not hasattr(block, 'append_op'):  # Paddle 3
        return paddle._C_ops.norm(_image(d), axis, 1e-6, False)[0]
    out, norm = (block.create_var(name=n, dtype='float32', stop_gradient=False) for n in 'on')
    block.append_op(type='norm',
                    inputs={'X': [_image(d)]},
                    outputs={'Out': [out], 'Norm': [norm]},
                    attrs={'axis': axis, 'epsilon': 1e-6, 'is_test': False})  # yapf: disable
    return out


def _affine_channel(d: Draw) -> Any:
    block = paddle.static.default_main_program().global_block()
    out = block.create_var(name='out', dtype='float32', stop_gradient=False)
    block.append_op(type='affine_channel',
                    inputs={'X': [_image(d)], 'Scale': [d.x(d.c)], 'Bias': [d.x(d.c)]},
                    outputs={'Out': [out]},
                    attrs={'data_layout': 'NCHW'})  # yapf: disable
    return out


def _resizing() -> Dict[str, Recipe]:
    found: Dict[str, Recipe] = {
        'linear_interp':
            lambda d: F.interpolate(d.x(d.n, d.c, d.m), [2 * d.m], mode='linear', data_format='NCW'
                                   ),
        'trilinear_interp':
            lambda d: F.interpolate(_volume(d), [2 * d.t, 2 * d.h, 2 * d.w],
                                    mode='trilinear',
                                    data_format='NCDHW'),
        'area':
            lambda d: F.interpolate(_image(d), [4, 4], mode='area'),
        'affine_grid':
            lambda d: F.affine_grid(d.x(d.n, 2, 3), [d.n, d.c, d.h, d.w]),
        'affine_grid_3d':
            lambda d: F.affine_grid(d.x(d.n, 3, 4), [d.n, d.c, d.t, d.h, d.w]),
        'grid_sample_3d':
            lambda d: F.grid_sample(_volume(d), d.x(d.n, d.t, 4, 5, 3)),
    }
    for mode in ('nearest', 'bilinear', 'bicubic'):
        found[f'{mode}_interp'] = lambda d, m=mode: F.interpolate(_image(d), [2 * d.h, 2 * d.w],
                                                                  mode=m)
        found[f'{mode}_interp_down'] = lambda d, m=mode: F.interpolate(_image(d), [4, 5], mode=m)
        found[f'{mode}_interp_scale'] = lambda d, m=mode: F.interpolate(
            _image(d), scale_factor=2, mode=m)
        found[f'{mode}_interp_last'] = lambda d, m=mode: F.interpolate(
            d.x(d.n, d.h, d.w, d.c), [2 * d.h, 2 * d.w], mode=m, data_format='NHWC')
    for mode in ('bilinear', 'nearest'):
        for pads in ('zeros', 'border', 'reflection'):
            found[f'grid_sample_{mode}_{pads}'] = lambda d, m=mode, p=pads: F.grid_sample(
                _image(d), d.x(d.n, d.k, d.t, 2), mode=m, padding_mode=p)
    return found


def _boxes(d: Draw) -> Any:
    corner = d.x(d.m, 2, grad=False) * 3.0
    return paddle.concat([corner, corner + 4.0], 1)


def _per_image(d: Draw) -> Any:
    import numpy as np
    counts = np.zeros(d.n, 'int32')
    counts[:] = d.m // d.n
    counts[0] += d.m - counts.sum()
    return d.given(counts)


def _detection() -> Dict[str, Recipe]:
    ops = paddle.vision.ops
    return {
        'roi_align':
            lambda d: ops.roi_align(_image(d), _boxes(d), _per_image(d), 3),
        'roi_pool':
            lambda d: ops.roi_pool(_image(d), _boxes(d), _per_image(d), 3),
        'nms':
            lambda d: ops.nms(_boxes(d), 0.3),
        'yolo_box':
            lambda d: ops.yolo_box(d.x(d.n, 2 * 8, d.h, d.w),
                                   d.ids(9, d.n, 2, dtype='int32') + 30, [10, 13, 16, 30], 3, 0.1, 8
                                  ),
        'yolo_loss':
            lambda d: ops.yolo_loss(d.x(d.n, 2 * 8, d.h, d.h), d.x(d.n, 4, 4, grad=False),
                                    d.ids(3, d.n, 4, dtype='int32'), [10, 13, 16, 30], [0, 1], 3,
                                    0.5, 32),
        'prior_box':
            lambda d: ops.prior_box(_image(d), d.x(d.n, 3, 64, 64), [4.0]),
        'box_coder':
            lambda d: ops.box_coder(_boxes(d), [0.1, 0.1, 0.2, 0.2], _boxes(d), 'encode_center_size'
                                   ),
        'distribute_fpn':
            lambda d: ops.distribute_fpn_proposals(
                _boxes(d) * 20.0, 2, 5, 4, 224, rois_num=_per_image(d))[0],
        'generate_proposals':
            lambda d: _proposals(d),
        'matrix_nms':
            lambda d: ops.matrix_nms(d.x(d.n, d.m, 4, grad=False), d.x(d.n, 3, d.m, grad=False),
                                     0.1, 0.1, 20, 10)[0],
    }


def _proposals(d: Draw) -> Any:
    return paddle.vision.ops.generate_proposals(d.x(d.n, 3, d.h, d.w, grad=False),
                                                d.x(d.n, 12, d.h, d.w, grad=False),
                                                d.x(d.n, 2, grad=False) * 100.0,
                                                d.x(d.h, d.w, 3, 4, grad=False),
                                                d.x(d.h, d.w, 3, 4, grad=False), 100, 50)[0]
