"""Kernels that work element by element."""

from __future__ import annotations

from typing import Any, Callable, Dict

import paddle
import paddle.nn.functional as F

from benchmarks.kernels.draw import Draw

Recipe = Callable[[Draw], Any]
# Tables of programs, a program a line: the formatter would take minutes over them.
# yapf: disable

_UNARY = (
    'abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfinv exp expm1 floor lgamma log log10 '
    'log1p log2 logit reciprocal round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc i0 i0e i1 i1e '
    'isnan isinf isfinite neg angle').split()
_ACTIVATIONS = (
    'celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_sigmoid mish relu relu6 selu '
    'silu softplus softshrink softsign swish tanhshrink thresholded_relu').split()
_BINARY = 'add subtract multiply divide maximum minimum pow fmax fmin remainder floor_divide atan2 heaviside'.split(
)
_COMPARE = 'equal not_equal less_than less_equal greater_than greater_equal'.split()


def _unary(function: Callable[..., Any]) -> Recipe:
    return lambda d: function(
        d.x(d.n,
            d.c,
            d.m,
            low=1.1 if function is paddle.acosh else 0.1,
            high=1.9 if function is paddle.acosh else 0.9))


def _same(function: Callable[..., Any], grad: bool = True) -> Recipe:
    return lambda d: function(d.x(d.n, d.c, d.m, grad=grad), d.x(d.n, d.c, d.m, grad=grad))


def _tail(function: Callable[..., Any]) -> Recipe:
    return lambda d: function(d.x(d.n, d.c, d.m), d.x(d.m))


def _middle(function: Callable[..., Any]) -> Recipe:
    return lambda d: function(d.x(d.n, d.c, d.m), d.x(d.n, 1, d.m))


def _middle_first(function: Callable[..., Any]) -> Recipe:
    """Nobody asks for the other gradient."""
    return lambda d: function(d.x(d.n, d.c, d.m), d.x(d.n, 1, d.m, grad=False))


def _middle_second(function: Callable[..., Any]) -> Recipe:
    return lambda d: function(d.x(d.n, d.c, d.m, grad=False), d.x(d.n, 1, d.m))


def _both_first(function: Callable[..., Any]) -> Recipe:
    return lambda d: function(d.x(d.n, 1, d.m), d.x(d.n, d.c, 1, grad=False))


def _ones(function: Callable[..., Any]) -> Recipe:
    """A dim of 1 in front of those that are alike."""
    return lambda d: function(d.x(d.n, d.c, d.m), d.x(1, d.c, d.m))


def _head(function: Callable[..., Any]) -> Recipe:
    return lambda d: function(d.x(d.n, d.c, d.m), d.x(d.n, 1, 1))


def _both(function: Callable[..., Any]) -> Recipe:
    return lambda d: function(d.x(d.n, 1, d.m), d.x(d.n, d.c, 1))


def _swapped(function: Callable[..., Any]) -> Recipe:
    return lambda d: function(d.x(d.m), d.x(d.n, d.c, d.m))


_BROADCASTS = (_tail, _middle, _middle_first, _middle_second, _head, _both, _both_first, _ones, _swapped)


def recipes() -> Dict[str, Recipe]:
    """Programs by name."""
    found: Dict[str, Recipe] = {}
    for name in _UNARY:
        found[name] = _unary(getattr(paddle, name, None) or getattr(F, name))
    for name in _ACTIVATIONS:
        found[name] = _unary(getattr(F, name))
    for name in _BINARY:
        function = getattr(paddle, name)
        found[name] = _same(function)
        for how in () if name == 'atan2' else _BROADCASTS:
            found[name + how.__name__] = how(function)
    for name in _COMPARE:
        found[name] = _same(getattr(paddle, name), grad=False)
        found[name + '_tail'] = _tail(getattr(paddle, name))
    found.update(_others())
    return found


def _others() -> Dict[str, Recipe]:
    return {
        'scale':
            lambda d: d.x(d.n, d.m) * 2.0 + 1.0,
        'clip':
            lambda d: paddle.clip(d.x(d.n, d.m), 0.2, 0.7),
        'pow_number':
            lambda d: paddle.pow(d.x(d.n, d.m), 3.0),
        'stanh':
            lambda d: paddle.stanh(d.x(d.n, d.m)),
        'prelu':
            lambda d: F.prelu(d.x(d.n, d.c, d.h, d.w), d.x(d.c)),
        'prelu_all':
            lambda d: F.prelu(d.x(d.n, d.c, d.h, d.w), d.x(1)),
        'rrelu':
            lambda d: F.rrelu(d.x(d.n, d.c, d.h, d.w)),
        'maxout':
            lambda d: F.maxout(d.x(d.n, d.c, d.h, d.w), 2),
        'glu':
            lambda d: F.glu(d.x(d.n, d.c, 2 * d.m)),
        'lerp':
            lambda d: paddle.lerp(d.x(d.n, d.m), d.x(d.n, d.m), d.x(1)),
        'lerp_same':
            lambda d: paddle.lerp(d.x(d.n, d.m), d.x(d.n, d.m), d.x(d.n, d.m)),
        'where':
            lambda d: paddle.where(d.bools(d.n, d.m), d.x(d.n, d.m), d.x(d.n, d.m)),
        'cast':
            lambda d: paddle.cast(d.x(d.n, d.m), 'float64'),
        'cast_int':
            lambda d: paddle.cast(d.x(d.n, d.m, grad=False), 'int64'),
        'assign':
            lambda d: paddle.assign(d.x(d.n, d.m)),
        'dropout':
            lambda d: F.dropout(d.x(d.n, d.m), 0.3),
        'dropout_downscale':
            lambda d: F.dropout(d.x(d.n, d.m), 0.3, mode='downscale_in_infer'),
        'dropout_axis':
            lambda d: F.dropout(d.x(d.n, d.m), 0.3, axis=0),
        'dropout2d':
            lambda d: F.dropout2d(d.x(d.n, d.c, d.h, d.w), 0.3),
        'alpha_dropout':
            lambda d: F.alpha_dropout(d.x(d.n, d.m), 0.3),
        'logical_and':
            lambda d: paddle.logical_and(d.bools(d.n, d.m), d.bools(d.n, d.m)),
        'logical_or':
            lambda d: paddle.logical_or(d.bools(d.n, d.m), d.bools(d.n, d.m)),
        'logical_xor':
            lambda d: paddle.logical_xor(d.bools(d.n, d.m), d.bools(d.n, d.m)),
        'logical_not':
            lambda d: paddle.logical_not(d.bools(d.n, d.m)),
        'bitwise_and':
            lambda d: paddle.bitwise_and(d.ids(9, d.n, d.m), d.ids(9, d.n, d.m)),
        'bitwise_or':
            lambda d: paddle.bitwise_or(d.ids(9, d.n, d.m), d.ids(9, d.n, d.m)),
        'bitwise_xor':
            lambda d: paddle.bitwise_xor(d.ids(9, d.n, d.m), d.ids(9, d.n, d.m)),
        'bitwise_not':
            lambda d: paddle.bitwise_not(d.ids(9, d.n, d.m)),
        'isclose':
            lambda d: paddle.isclose(d.x(d.n, d.m), d.x(d.n, d.m)),
        'allclose':
            lambda d: paddle.allclose(d.x(d.n, d.m), d.x(d.n, d.m)),
        'equal_all':
            lambda d: paddle.equal_all(d.x(d.n, d.m), d.x(d.n, d.m)),
        'complex':
            lambda d: paddle.complex(d.x(d.n, d.m), d.x(d.n, d.m)),
        'real':
            lambda d: paddle.real(paddle.complex(d.x(d.n, d.m), d.x(d.n, d.m))),
        'imag':
            lambda d: paddle.imag(paddle.complex(d.x(d.n, d.m), d.x(d.n, d.m))),
        'conj':
            lambda d: paddle.conj(paddle.complex(d.x(d.n, d.m), d.x(d.n, d.m))),
        'as_real':
            lambda d: paddle.as_real(paddle.complex(d.x(d.n, d.m), d.x(d.n, d.m))),
        'as_complex':
            lambda d: paddle.as_complex(d.x(d.n, d.m, 2)),
        'add_n':
            lambda d: paddle.add_n([d.x(d.n, d.m) for _ in range(4)]),
        'add_64':
            lambda d: d.x(d.n, d.m, dtype='float64') + d.x(d.n, d.m, dtype='float64'),
        'add_tail_64':
            lambda d: d.x(d.n, d.m, dtype='float64') + d.x(d.m, dtype='float64'),
        'add_int':
            lambda d: d.ids(9, d.n, d.m) + d.ids(9, d.n, d.m),
        'cast_bool':
            lambda d: paddle.cast(d.bools(d.n, d.m), 'float32'),
        'multiplex':
            lambda d: paddle.multiplex([d.x(d.n, d.m), d.x(d.n, d.m)],
                                       d.ids(2, d.n, 1, dtype='int32')),
        'label_smooth':
            lambda d: F.label_smooth(d.x(d.n, d.m)),
        'polygamma':
            lambda d: paddle.polygamma(d.x(d.n, d.m), 2),
        'nextafter':
            lambda d: paddle.nextafter(d.x(d.n, d.m), d.x(d.n, d.m)),
        'increment':
            lambda d: paddle.increment(d.x(1, grad=False)),
    }
