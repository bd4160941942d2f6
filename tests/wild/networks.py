"""Layers of networks: convolutions, pools, norms, embeddings, losses, recurrence, random numbers."""
from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F

from tests.scenarios.common import fc
from tests.wild.layers import Catalogue, Layers, raw


def _conv2d(layers: Layers) -> Any:
    kernel = layers.rng.choice((1, 3))
    weight = layers.weight(4, 2, kernel, kernel)
    return F.conv2d(layers.image(),
                    weight,
                    padding=layers.rng.choice((0, 1)) if kernel > 1 else 0,
                    stride=layers.rng.choice((1, 2)))


def _block(layers: Layers) -> Any:
    """A residual block."""
    image = layers.image()
    hidden = F.relu(
        paddle.static.nn.batch_norm(F.conv2d(image, layers.weight(4, 2, 3, 3), padding=1)))
    return paddle.flatten(F.conv2d(hidden, layers.weight(2, 4, 3, 3), padding=1) + image, 1)


def _embedding(layers: Layers) -> Any:
    rows = layers.rng.choice((16, 200))
    table = layers.tables.get('dense')
    if table is None or layers.rng.random() < 0.5:
        table = layers.tables['dense'] = layers.weight(rows, layers.width)
    return F.embedding(layers.row_ids(16), table)


def _sparse_embedding(layers: Layers) -> Any:
    return F.embedding(layers.row_ids(16), layers.weight(64, layers.width), sparse=True)


def _rnn(layers: Layers) -> Any:
    kind = layers.rng.choice((paddle.nn.LSTM, paddle.nn.GRU, paddle.nn.SimpleRNN))
    return kind(layers.width // 2, 8)(layers.words())[0]


def _spectral(layers: Layers) -> Any:
    weight = layers.weight(8, layers.width)
    normed = paddle.static.nn.spectral_norm(weight, dim=0, power_iters=1)
    return paddle.matmul(layers.x(), normed, transpose_y=True)


def _cross_entropy(layers: Layers) -> Any:
    return F.cross_entropy(layers.x(), layers.row_ids(layers.width), reduction='none')


def _smooth(layers: Layers) -> Any:
    return F.label_smooth(F.one_hot(layers.row_ids(8), 8))


def _transformer(layers: Layers) -> Any:
    heads = paddle.nn.TransformerEncoderLayer(layers.width // 2, 2, 16, dropout=0.1)
    return heads(layers.words())


def _grid(layers: Layers) -> Any:
    theta = paddle.reshape(paddle.tanh(layers.x()[:, :6]), [-1, 2, 3])
    grid = F.affine_grid(theta, [2, 2, 3, 3]) if theta.shape[0] == 2 else None
    if grid is None:
        grid = paddle.reshape(paddle.tanh(layers.x()[:, :8]), [-1, 2, 2, 2])
    return F.grid_sample(layers.image(), grid)


def _pool_and_back(layers: Layers) -> Any:
    pooled, ids = F.max_pool2d(layers.image(), 2, return_mask=True)
    return F.max_unpool2d(pooled, ids, 2)


def _random(make: Any) -> Any:
    return lambda layers: layers.x() + 0.1 * make(layers)


def _interpolated(mode: str) -> Any:
    return lambda layers: F.interpolate(layers.image(), scale_factor=2, mode=mode)


CATALOGUE: Catalogue = {
    'fc':
        lambda layers: fc(layers.x(), layers.width, layers.rng.choice(('relu', 'tanh', None))),
    'wide_fc':
        lambda layers: fc(fc(layers.x(), layers.width * 4, 'relu'), layers.width),
    'conv2d':
        _conv2d,
    'block':
        _block,
    'depthwise_conv2d':
        lambda layers: F.conv2d(layers.image(4), layers.weight(4, 1, 3, 3), padding=1, groups=4),
    'group_conv2d':
        lambda layers: F.conv2d(layers.image(4), layers.weight(4, 2, 3, 3), padding=1, groups=2),
    'conv2d_transpose':
        lambda layers: F.conv2d_transpose(layers.image(), layers.weight(2, 3, 2, 2), stride=2),
    'conv3d':
        lambda layers: F.conv3d(layers.volume(), layers.weight(3, 1, 2, 2, 2), padding=1),
    'conv3d_transpose':
        lambda layers: F.conv3d_transpose(layers.volume(), layers.weight(1, 2, 2, 2, 2)),
    'conv1d':
        lambda layers: F.conv1d(layers.words(), layers.weight(3, 2, 3), padding=1),
    'deform_conv2d':
        lambda layers: paddle.vision.ops.deform_conv2d(
            layers.image(), paddle.tile(layers.image()[:, :1] * 0.1, [1, 2, 1, 1]),
            layers.weight(2, 2, 1, 1)),
    'max_pool2d':
        lambda layers: F.max_pool2d(layers.image(), 2),
    'avg_pool2d':
        lambda layers: F.avg_pool2d(layers.image(), 2),
    'adaptive_pool':
        lambda layers: F.adaptive_avg_pool2d(layers.image(), 1),
    'adaptive_max':
        lambda layers: F.adaptive_max_pool2d(layers.image(), 2),
    'max_pool3d':
        lambda layers: F.max_pool3d(layers.volume(), 2),
    'avg_pool3d':
        lambda layers: F.avg_pool3d(layers.volume(), 2),
    'pool_and_back':
        _pool_and_back,
    'batch_norm':
        lambda layers: paddle.static.nn.batch_norm(layers.image()),
    'instance_norm':
        lambda layers: F.instance_norm(layers.image()),
    'layer_norm':
        lambda layers: F.layer_norm(layers.x(), [layers.width]),
    'layer_norm_weights':
        lambda layers: paddle.nn.LayerNorm(layers.width)(layers.x()),
    'group_norm':
        lambda layers: paddle.nn.GroupNorm(2, 4)(layers.image(4)),
    'spectral_norm':
        _spectral,
    'data_norm':
        lambda layers: paddle.static.nn.data_norm(layers.x()),
    'local_response_norm':
        lambda layers: F.local_response_norm(layers.image(4), 3),
    'embedding':
        _embedding,
    'sparse_embedding':
        _sparse_embedding,
    'rnn':
        _rnn,
    'transformer':
        _transformer,
    'cross_entropy':
        _cross_entropy,
    'bce':
        lambda layers: F.binary_cross_entropy(F.sigmoid(layers.x()),
                                              F.sigmoid(layers.x()).detach()),
    'bce_logits':
        lambda layers: F.binary_cross_entropy_with_logits(layers.x(),
                                                          F.sigmoid(layers.x()).detach()),
    'kl_div':
        lambda layers: F.kl_div(F.log_softmax(layers.x()), F.softmax(layers.x())),
    'smooth_l1':
        lambda layers: F.smooth_l1_loss(layers.x(),
                                        layers.x().detach()),
    'mse':
        lambda layers: F.mse_loss(layers.x(), layers.x()),
    'l1':
        lambda layers: F.l1_loss(layers.x(), layers.x()),
    'nll':
        lambda layers: F.nll_loss(F.log_softmax(layers.x()), layers.row_ids(layers.width)),
    'log_loss':
        lambda layers: F.log_loss(F.sigmoid(layers.x()[:, :1]),
                                  F.sigmoid(layers.x()[:, :1]).detach()),
    'margin_ranking':
        lambda layers: F.margin_ranking_loss(layers.x(), layers.x(),
                                             paddle.sign(layers.x()).detach()),
    'hinge_embedding':
        lambda layers: F.hinge_embedding_loss(layers.x(),
                                              paddle.sign(layers.x()).detach()),
    'cosine_similarity':
        lambda layers: F.cosine_similarity(layers.x(), layers.x()),
    'pairwise_distance':
        lambda layers: F.pairwise_distance(layers.x(), layers.positive()),
    'label_smooth':
        _smooth,
    'square_error':
        lambda layers: F.square_error_cost(layers.x(), layers.x()),
    'sigmoid_focal':
        lambda layers: F.sigmoid_focal_loss(layers.x(),
                                            F.sigmoid(layers.x()).detach()),
    'bilinear':
        lambda layers: F.bilinear(layers.x(),
                                  layers.x()[:, :4], layers.weight(3, layers.width, 4)),
    'nearest':
        _interpolated('nearest'),
    'bilinear_interp':
        _interpolated('bilinear'),
    'bicubic_interp':
        _interpolated('bicubic'),
    'trilinear_interp':
        lambda layers: F.interpolate(
            layers.volume(), scale_factor=2, mode='trilinear', data_format='NCDHW'),
    'linear_interp':
        lambda layers: F.interpolate(
            layers.words(), scale_factor=2, mode='linear', data_format='NCW'),
    'grid_sample':
        _grid,
    'uniform':
        _random(lambda layers: paddle.uniform([layers.width])),
    'normal':
        _random(lambda layers: paddle.normal(shape=[layers.width])),
    'randint':
        _random(lambda layers: paddle.cast(paddle.randint(0, 9, [layers.width]), 'float32')),
    'randperm':
        _random(lambda layers: paddle.cast(paddle.randperm(layers.width), 'float32')),
    'bernoulli':
        _random(lambda layers: paddle.bernoulli(F.sigmoid(layers.x()))),
    'gumbel_softmax':
        lambda layers: F.gumbel_softmax(layers.x()),
    'uniform_like':
        _random(lambda layers: paddle.static.default_main_program() and raw(
            'uniform_random_batch_size_like', {'Input': [layers.x()]}, ('Out',),
            layers.x(),
            shape=[-1, layers.width],
            min=-1.0,
            max=1.0,
            seed=7,
            dtype=5)),
    'print_free_accuracy':
        lambda layers: paddle.static.accuracy(F.softmax(layers.x()),
                                              layers.ids(layers.width)[:, :1]),
    'row_conv':
        lambda layers: paddle.static.nn.row_conv(layers.words(), 1),
    'lrn_mean':
        lambda layers: F.avg_pool1d(layers.words(), 2),
    'cvm':
        lambda layers: F.pad(layers.words(), [1, 1], mode='replicate', data_format='NCL'),
}
