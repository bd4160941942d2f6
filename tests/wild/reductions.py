"""Layers that reduce, order, count and search; linear algebra."""
from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F

from tests.wild.layers import Catalogue, Layers

_WHOLE = (paddle.sum, paddle.mean, paddle.max, paddle.min, paddle.amax, paddle.amin,
          paddle.logsumexp, paddle.std, paddle.var, paddle.nansum, paddle.nanmean)
_ALONG = (paddle.cumsum, paddle.logcumsumexp)
_OF_MATRIX = (paddle.inverse, paddle.linalg.det, paddle.linalg.slogdet, paddle.linalg.matrix_rank,
              paddle.trace, paddle.linalg.cond)


def _topk(layers: Layers) -> Any:
    values, ids = paddle.topk(layers.x(), k=4, axis=1)
    return values if layers.rng.random() < 0.5 else paddle.take_along_axis(layers.x(), ids, axis=1)


def _sorted(layers: Layers) -> Any:
    return paddle.sort(layers.x(), axis=1)


def _argsort(layers: Layers) -> Any:
    return paddle.take_along_axis(layers.x(), paddle.argsort(layers.x(), axis=1), axis=1)


def _symmetric(layers: Layers) -> Any:
    square = layers.square()
    return square + paddle.t(square)


def _detached(found: Any) -> Any:
    several = found if isinstance(found, (list, tuple)) else [found]
    for each in several:
        each.stop_gradient = True
    return found


def _flat(layers: Layers) -> Any:
    return paddle.reshape(layers.ids(6), [-1])


CATALOGUE: Catalogue = {
    **{
        f.__name__: (lambda layers, f=f: f(layers.x(), layers.rng.choice((0, 1)), keepdim=True)) for f in _WHOLE
    },
    **{
        f.__name__: (lambda layers, f=f: f(layers.x(), 1)) for f in _ALONG
    },
    **{
        f.__name__: (lambda layers, f=f: _detached(f(layers.square()))) for f in _OF_MATRIX
    },
    'prod':
        lambda layers: paddle.prod(layers.positive(), 1, keepdim=True),
    'all':
        lambda layers: paddle.all(layers.mask(), 1),
    'any':
        lambda layers: paddle.any(layers.mask(), 1),
    'cumprod':
        lambda layers: paddle.cumprod(layers.positive(), 1),
    'cummax':
        lambda layers: paddle.cummax(layers.x(), 1)[0],
    'cummin':
        lambda layers: paddle.cummin(layers.x(), 1)[0],
    'norm1':
        lambda layers: paddle.norm(layers.x(), 1, 1),
    'norm2':
        lambda layers: paddle.norm(layers.positive(), 2, 1),
    'norm_fro':
        lambda layers: paddle.norm(layers.positive(), 'fro'),
    'median':
        lambda layers: _detached(paddle.median(layers.x(), 1)),
    'nanmedian':
        lambda layers: _detached(paddle.nanmedian(layers.x(), 1)),
    'mode':
        lambda layers: paddle.mode(layers.x(), 1)[0],
    'kthvalue':
        lambda layers: paddle.kthvalue(layers.x(), 2, 1)[0],
    'quantile':
        lambda layers: _detached(paddle.quantile(layers.x(), 0.3, 1)),
    'argmax':
        lambda layers: paddle.argmax(layers.x(), 1),
    'argmin':
        lambda layers: paddle.argmin(layers.x(), 1),
    'topk':
        _topk,
    'sort':
        _sorted,
    'argsort':
        _argsort,
    'unique':
        lambda layers: paddle.unique(_flat(layers)),
    'unique_consecutive':
        lambda layers: paddle.unique_consecutive(_flat(layers)),
    'bincount':
        lambda layers: paddle.bincount(_flat(layers), minlength=8),
    'histogram':
        lambda layers: paddle.histogram(layers.x(), 5, -1, 1),
    'searchsorted':
        lambda layers: paddle.searchsorted(paddle.linspace(-1, 1, 9), layers.x()),
    'count_nonzero':
        lambda layers: paddle.count_nonzero(layers.x(), 1),
    'dist':
        lambda layers: paddle.dist(layers.x(), layers.positive(), 2),
    'dot':
        lambda layers: paddle.dot(layers.x(), layers.x()),
    'cross':
        lambda layers: paddle.cross(layers.x()[:, :3], layers.x()[:, :3], axis=1),
    'kron':
        lambda layers: paddle.kron(layers.x()[:, :2],
                                   layers.x()[:1, :3]),
    'matmul':
        lambda layers: paddle.matmul(layers.x(), layers.weight(layers.width, layers.width)),
    'attention':
        lambda layers: paddle.matmul(
            F.softmax(paddle.matmul(layers.x(), layers.x(), transpose_y=True)), layers.x()),
    'bmm':
        lambda layers: paddle.bmm(layers.words(), paddle.transpose(layers.words(), [0, 2, 1])),
    'mv':
        lambda layers: paddle.mv(layers.x(), layers.weight(layers.width)),
    'addmm':
        lambda layers: paddle.addmm(layers.x(), layers.x(), layers.weight(
            layers.width, layers.width)),
    'inner':
        lambda layers: paddle.inner(layers.x()[0],
                                    layers.x()[0]),
    'outer':
        lambda layers: paddle.outer(layers.x()[0],
                                    layers.x()[0]),
    'multi_dot':
        lambda layers: paddle.linalg.multi_dot(
            [layers.x(), layers.weight(layers.width, 4),
             layers.weight(4, layers.width)]),
    'einsum':
        lambda layers: paddle.einsum('bsd,btd->bst', layers.words(), layers.words()),
    'tensordot':
        lambda layers: paddle.tensordot(layers.x(), layers.weight(layers.width, 5), 1),
    'cholesky':
        lambda layers: _detached(paddle.linalg.cholesky(_symmetric(layers))),
    'matrix_power':
        lambda layers: paddle.linalg.matrix_power(layers.square(), 2),
    'qr':
        lambda layers: _detached(paddle.linalg.qr(layers.square())),
    'svd':
        lambda layers: _detached(paddle.linalg.svd(layers.square())),
    'eigh':
        lambda layers: _detached(paddle.linalg.eigvalsh(_symmetric(layers))),
    'solve':
        lambda layers: paddle.linalg.solve(layers.square(), layers.square()),
    'triangular_solve':
        lambda layers: paddle.linalg.triangular_solve(layers.square(), layers.square()),
    'cholesky_solve':
        lambda layers: _detached(paddle.linalg.cholesky_solve(layers.square(), layers.square())),
    'lu':
        lambda layers: _detached(paddle.linalg.lu(layers.square())[0]),
    'pinv':
        lambda layers: _detached(paddle.linalg.pinv(layers.square())),
    'renorm':
        lambda layers: paddle.renorm(layers.words(), 2.0, 1, 1.0),
    'diff':
        lambda layers: paddle.diff(layers.x()),
    'scatter_mean':
        lambda layers: paddle.mean(layers.words(), axis=[1, 2], keepdim=True),
}
