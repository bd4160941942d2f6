"""Layers that move, pick, repeat and arrange elements."""
from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F

from tests.wild.layers import Catalogue, Layers, raw


def _split(layers: Layers) -> Any:
    first, second = paddle.split(paddle.concat([layers.x(), layers.x()], axis=1), 2, axis=1)
    return [first, paddle.tanh(second)] if layers.rng.random() < 0.5 else first


def _unstack(layers: Layers) -> Any:
    return paddle.add_n(paddle.unstack(paddle.stack([layers.x(), layers.x()], axis=1), axis=1))


def _set_value(layers: Layers) -> Any:
    return paddle.static.setitem(layers.x() * 1.0, (slice(None), slice(1, 3)), 0.5)


def _shape(layers: Layers) -> Any:
    rows = paddle.cast(paddle.shape(layers.x()), 'float32')
    return layers.x() / paddle.sum(rows)


def _meshgrid(layers: Layers) -> Any:
    row = paddle.reshape(layers.x(), [-1])[:4]
    return paddle.meshgrid(row, row)


def _scatter(layers: Layers) -> Any:
    return paddle.scatter(paddle.zeros([6], 'float32'), paddle.to_tensor([0, 2, 1, 5]),
                          layers.weight(4))


def _put(layers: Layers) -> Any:
    ids = layers.ids(layers.width)[:, :4]
    return paddle.put_along_axis(layers.x(), ids, layers.x()[:, :4], axis=1, reduce='assign')


def _index_add(layers: Layers) -> Any:
    ids = paddle.to_tensor([0, 3, 3])
    return paddle.index_add(layers.x(), ids, 1, layers.x()[:, :3])


def _as_strided(layers: Layers) -> Any:
    return paddle.reshape(paddle.reshape(layers.x(), [-1, 4, layers.width // 4]),
                          [-1, layers.width])


CATALOGUE: Catalogue = {
    'reshape':
        _as_strided,
    'transpose':
        lambda layers: paddle.transpose(layers.words(), [0, 2, 1]),
    't':
        lambda layers: paddle.matmul(paddle.t(layers.x()), layers.x()),
    'squeeze':
        lambda layers: paddle.squeeze(paddle.unsqueeze(layers.x(), 1), 1),
    'flatten':
        lambda layers: paddle.flatten(layers.image(), 1),
    'concat':
        lambda layers: paddle.concat([layers.x(), layers.x()[:, :3]], axis=1),
    'split':
        _split,
    'unstack':
        _unstack,
    'unbind':
        lambda layers: paddle.unbind(layers.words(), axis=1),
    'slice':
        lambda layers: layers.x()[:, 2:-2],
    'strided_slice':
        lambda layers: layers.x()[:, ::2],
    'rows':
        lambda layers: layers.x()[:1],
    'gather':
        lambda layers: paddle.gather(layers.x(), paddle.to_tensor([1, 0, 3]), axis=1),
    'gather_rows':
        lambda layers: paddle.gather(layers.x(), layers.row_ids(1)),
    'gather_nd':
        lambda layers: paddle.gather_nd(layers.x(), paddle.to_tensor([[0, 1], [0, 2]])),
    'scatter':
        _scatter,
    'scatter_nd_add':
        lambda layers: paddle.scatter_nd_add(paddle.reshape(layers.x(), [-1]),
                                             paddle.to_tensor([[1], [1]]), layers.weight(2)),
    'index_select':
        lambda layers: paddle.index_select(layers.x(), paddle.to_tensor([2, 0]), axis=1),
    'index_sample':
        lambda layers: paddle.index_sample(layers.x(), layers.ids(layers.width)),
    'index_add':
        _index_add,
    'index_put':
        lambda layers: paddle.index_put(layers.x(), (paddle.to_tensor([0]), paddle.to_tensor([1])),
                                        paddle.to_tensor([0.3])),
    'take_along_axis':
        lambda layers: paddle.take_along_axis(layers.x(), layers.ids(layers.width), axis=1),
    'put_along_axis':
        _put,
    'masked_select':
        lambda layers: paddle.masked_select(layers.x(), layers.mask()),
    'masked_fill':
        lambda layers: paddle.where(layers.mask(), paddle.full_like(layers.x(), 0.1), layers.x()),
    'nonzero':
        lambda layers: paddle.nonzero(layers.mask()),
    'tile':
        lambda layers: paddle.tile(layers.x(), [1, 2]),
    'expand':
        lambda layers: paddle.expand(paddle.unsqueeze(layers.x(), 1), [-1, 3, layers.width]),
    'expand_as':
        lambda layers: paddle.expand_as(layers.x()[:1], layers.x()),
    'broadcast_tensors':
        lambda layers: paddle.broadcast_tensors([layers.x(), layers.x()[:1]]),
    'roll':
        lambda layers: paddle.roll(layers.x(), 3, axis=1),
    'flip':
        lambda layers: paddle.flip(layers.x(), axis=[1]),
    'rot90':
        lambda layers: paddle.rot90(layers.x(), 1, [0, 1]),
    'pad':
        lambda layers: F.pad(layers.x(), [0, 0, 1, 2]),
    'pad3d':
        lambda layers: F.pad(layers.image(), [1, 1, 0, 1], mode='reflect'),
    'tril':
        lambda layers: paddle.tril(layers.x()),
    'triu':
        lambda layers: paddle.triu(layers.x(), 1),
    'diag':
        lambda layers: paddle.diag(layers.x()[0]),
    'diag_embed':
        lambda layers: paddle.nn.functional.diag_embed(layers.x()[:, :4]),
    'diagonal':
        lambda layers: paddle.diagonal(layers.x()),
    'fill_diagonal':
        lambda layers: paddle.matmul(layers.x(), paddle.eye(layers.width)),
    'meshgrid':
        _meshgrid,
    'repeat_interleave':
        lambda layers: paddle.repeat_interleave(layers.x(), 2, axis=1),
    'shard_index':
        lambda layers: paddle.shard_index(layers.ids(8)[:, :1], 8, 2, 0),
    'one_hot':
        lambda layers: F.one_hot(layers.row_ids(layers.width), layers.width),
    'shape':
        _shape,
    'numel':
        lambda layers: paddle.numel(layers.x()) * paddle.cast(layers.ids(2), 'int64'),
    'linspace':
        lambda layers: paddle.linspace(0, 1, layers.width) + layers.x(),
    'arange':
        lambda layers: paddle.arange(0, layers.width, dtype='float32') * 0.01 + layers.x(),
    'eye':
        lambda layers: paddle.eye(layers.width)[:1] + layers.x(),
    'tril_indices':
        lambda layers: paddle.tril_indices(4, 4, 0),
    'triu_indices':
        lambda layers: paddle.triu_indices(4, 4, 0),
    'crop':
        lambda layers: paddle.crop(layers.x(), shape=[1, 4], offsets=[0, 2]),
    'set_value':
        _set_value,
    'unfold':
        lambda layers: F.unfold(layers.image(), 2),
    'fold':
        lambda layers: F.fold(F.unfold(layers.image(), 2), [layers.width // 8, 4], 2),
    'pixel_shuffle':
        lambda layers: F.pixel_shuffle(layers.image(4), 2),
    'pixel_unshuffle':
        lambda layers: F.pixel_unshuffle(layers.image(4), 2) if layers.width >= 32 else layers.x(),
    'channel_shuffle':
        lambda layers: F.channel_shuffle(layers.image(4), 2),
    'temporal_shift':
        lambda layers: F.temporal_shift(layers.image(4), 1, 0.25),
    'sequence_mask':
        lambda layers: F.sequence_mask(layers.row_ids(5), maxlen=5),
    'moveaxis':
        lambda layers: paddle.moveaxis(layers.image(), 1, 3),
    'chunk':
        lambda layers: paddle.chunk(layers.x(), 2, axis=1),
    'assign_value':
        lambda layers: paddle.assign(paddle.to_tensor([0.5, 0.1])),
    'space_to_depth':
        lambda layers: raw(
            'shuffle_channel', {'X': [layers.image(4)]}, ('Out',), layers.image(4), group=2),
    'multiplex':
        lambda layers: paddle.multiplex([layers.x(), layers.x()],
                                        paddle.cast(layers.ids(2)[:, :1], 'int32')),
    'affine_channel':
        lambda layers: raw('affine_channel', {
            'X': [layers.image()],
            'Scale': [layers.weight(2)],
            'Bias': [layers.weight(2)]
        }, ('Out',),
                           layers.image(),
                           data_layout='NCHW'),
}
