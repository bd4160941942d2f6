"""Layers of one element at a time: functions, comparisons, logic."""
from __future__ import annotations

from typing import Any, Callable

import paddle
import paddle.nn.functional as F

from tests.wild.layers import Catalogue, Layer, Layers

_SMOOTH = (paddle.tanh, paddle.sin, paddle.cos, paddle.sinh, paddle.cosh, paddle.asinh, paddle.atan,
           paddle.exp, paddle.expm1, paddle.square, paddle.abs, paddle.erf, paddle.stanh, paddle.i0,
           paddle.i0e, paddle.i1, paddle.i1e, paddle.deg2rad, paddle.rad2deg, F.sigmoid, F.relu,
           F.relu6, F.gelu, F.silu, F.swish, F.mish, F.softplus, F.softsign, F.softshrink,
           F.hardshrink, F.hardsigmoid, F.hardswish, F.hardtanh, F.leaky_relu, F.elu, F.celu,
           F.selu, F.log_sigmoid, F.tanhshrink, F.thresholded_relu, F.softmax, F.log_softmax,
           F.normalize)
_OF_SMALL = (paddle.tan, paddle.asin, paddle.acos, paddle.atanh, paddle.log1p, paddle.erfinv)
_OF_POSITIVE = (paddle.log, paddle.log2, paddle.log10, paddle.sqrt, paddle.rsqrt, paddle.reciprocal,
                paddle.lgamma, paddle.digamma)
_STEPS = (paddle.ceil, paddle.floor, paddle.round, paddle.sign, paddle.trunc, paddle.frac)
_TESTS = (paddle.isnan, paddle.isinf, paddle.isfinite)
_BINARY = (paddle.add, paddle.subtract, paddle.multiply, paddle.maximum, paddle.minimum,
           paddle.fmax, paddle.fmin, paddle.atan2,
           paddle.hypot if hasattr(paddle, 'hypot') else paddle.add)
_COMPARE = (paddle.equal, paddle.not_equal, paddle.less_than, paddle.less_equal,
            paddle.greater_than, paddle.greater_equal, paddle.isclose)
_LOGIC = (paddle.logical_and, paddle.logical_or, paddle.logical_xor)
_BITS = (paddle.bitwise_and, paddle.bitwise_or, paddle.bitwise_xor)


def _unary(function: Callable[..., Any], operand: Callable[[Layers], Any]) -> Layer:
    return lambda layers: function(operand(layers))


def _binary(function: Callable[..., Any], operand: Callable[[Layers], Any]) -> Layer:
    return lambda layers: function(operand(layers), operand(layers))


def _tame(layers: Layers) -> Any:
    """Not too large for an exponential, however many stand in a row."""
    return paddle.clip(layers.x(), -3.0, 3.0)


def _cast(layers: Layers) -> Any:
    kind = layers.rng.choice(('float64', 'int32', 'int64', 'float16', 'bfloat16', 'bool'))
    other = paddle.cast(layers.small() * 3.0, kind)
    return paddle.cast(other, 'float32') * 0.3


def _constant(layers: Layers) -> Any:
    """A host constant as schedules make them."""
    value = paddle.tensor.fill_constant([1], 'float32', 0.3, force_cpu=True)
    return layers.x() * value


CATALOGUE: Catalogue = {
    **{
        f'{f.__name__}': _unary(f, _tame) for f in _SMOOTH
    },
    **{
        f'{f.__name__}': _unary(f, Layers.small) for f in _OF_SMALL
    },
    **{
        f'{f.__name__}': _unary(f, Layers.positive) for f in _OF_POSITIVE
    },
    **{
        f'{f.__name__}': _unary(f, Layers.x) for f in (*_STEPS, *_TESTS)
    },
    **{
        f'{f.__name__}': _binary(f, Layers.x) for f in (*_BINARY, *_COMPARE)
    },
    **{
        f'{f.__name__}': _binary(f, Layers.mask) for f in _LOGIC
    },
    **{
        f'{f.__name__}': _binary(f, Layers.integers) for f in _BITS
    },
    'acosh':
        lambda layers: paddle.acosh(layers.positive() + 1.0),
    'divide':
        lambda layers: layers.x() / layers.positive(),
    'power':
        lambda layers: layers.positive()**layers.small(),
    'pow':
        lambda layers: paddle.pow(layers.positive(), 1.5),
    'mod':
        lambda layers: paddle.mod(layers.x(), layers.positive()),
    'floor_divide':
        lambda layers: paddle.floor_divide(layers.integers(),
                                           layers.integers() * 0 + 3),
    'logical_not':
        lambda layers: paddle.logical_not(layers.mask()),
    'bitwise_not':
        lambda layers: paddle.bitwise_not(layers.integers('int32')),
    'heaviside':
        lambda layers: paddle.heaviside(layers.x(), layers.small()),
    'lerp':
        lambda layers: paddle.lerp(layers.x(), layers.x(), layers.small()),
    'logit':
        lambda layers: paddle.logit(F.sigmoid(layers.x()), 1e-4),
    'nan_to_num':
        lambda layers: paddle.nan_to_num(layers.x()),
    'scale':
        lambda layers: paddle.scale(layers.x(), 0.5, 0.1),
    'clip':
        lambda layers: paddle.clip(layers.x(), -0.4, 0.6),
    'increment':
        lambda layers: layers.x() + paddle.increment(paddle.full([1], 0.5)),
    'assign':
        lambda layers: paddle.assign(layers.x()),
    'cast':
        _cast,
    'complex':
        lambda layers: paddle.abs(paddle.complex(layers.x(),
                                                 layers.x() + 1.0)),
    'real':
        lambda layers: paddle.real(paddle.complex(layers.x(), layers.x())),
    'angle':
        lambda layers: paddle.angle(layers.x()),
    'prelu':
        lambda layers: F.prelu(layers.x(), layers.weight(1)),
    'maxout':
        lambda layers: F.maxout(layers.image(), 2),
    'dropout':
        lambda layers: F.dropout(layers.x(), 0.3),
    'alpha_dropout':
        lambda layers: F.alpha_dropout(layers.weight(4, layers.width), 0.2),
    'glu':
        lambda layers: paddle.concat([F.glu(layers.x()), F.glu(layers.x())], axis=1),
    'where':
        lambda layers: paddle.where(layers.mask(), layers.x(), layers.x()),
    'full_like':
        lambda layers: paddle.full_like(layers.x(), 0.25) * layers.x(),
    'zeros_like':
        lambda layers: paddle.zeros_like(layers.x()) + layers.x(),
    'add_n':
        lambda layers: paddle.add_n([layers.x(), layers.x(), layers.x()]) * 0.4,
    'constant':
        _constant,
    'unused':
        lambda layers: (paddle.exp(layers.small()), layers.x() * 0.9)[1],
    'equal_all':
        lambda layers: paddle.equal_all(layers.x(), layers.x()),
    'allclose':
        lambda layers: paddle.allclose(layers.x(), layers.x()),
}
