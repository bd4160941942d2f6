"""Optimizers, clipping, sparse gradients, sequences and recurrent layers."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from benchmarks.kernels.draw import Draw

Recipe = Callable[[Draw], Any]
# Tables of programs, a program a line: the formatter would take minutes over them.
# yapf: disable

_OPTIMIZERS: Dict[str, Callable[..., Any]] = {
    'sgd': paddle.optimizer.SGD,
    'momentum': paddle.optimizer.Momentum,
    'adam': paddle.optimizer.Adam,
    'adamw': paddle.optimizer.AdamW,
    'adamax': paddle.optimizer.Adamax,
    'adagrad': paddle.optimizer.Adagrad,
    'adadelta': paddle.optimizer.Adadelta,
    'rmsprop': paddle.optimizer.RMSProp,
    'lamb': paddle.optimizer.Lamb,
}
_SPARSE = ('sgd', 'momentum', 'adam', 'adagrad', 'rmsprop', 'lamb')
_CLIPS = {
    'value': lambda: nn.ClipGradByValue(0.1),
    'norm': lambda: nn.ClipGradByNorm(0.1),
    'global': lambda: nn.ClipGradByGlobalNorm(0.1),
}


class Trained:
    """Marks a recipe whose program has its gradients already."""


def _train(optimizer: Callable[..., Any],
           sparse: bool = False,
           twice: bool = False,
           clip: Optional[Callable[[], Any]] = None,
           decay: Any = None) -> Recipe:

    def build(d: Draw) -> Any:
        table = paddle.create_parameter([3 * d.v, d.m], 'float32')
        # No id twice: merged gradients are as large as they can be.
        one, other = np.random.RandomState(0).permutation(3 * d.v)[:2 * d.n * d.t].reshape(
            2, d.n, d.t)
        found = F.embedding(d.given(one), table, sparse=sparse)
        if twice:
            found = paddle.concat([found, F.embedding(d.given(other), table, sparse=sparse)], 1)
        loss = paddle.mean(paddle.square(found))
        options: Dict[str, Any] = {'grad_clip': clip()} if clip else {}
        if decay is not None:
            options['weight_decay'] = decay
        made = optimizer(learning_rate=0.1, **options)
        made.minimize(loss)
        return Trained()

    return build


def recipes() -> Dict[str, Recipe]:
    """Programs by name."""
    found: Dict[str, Recipe] = {}
    for name, optimizer in _OPTIMIZERS.items():
        found[name] = _train(optimizer)
    for name in _SPARSE:
        found[f'{name}_sparse'] = _train(_OPTIMIZERS[name], sparse=True)
        found[f'{name}_sparse_twice'] = _train(_OPTIMIZERS[name], sparse=True, twice=True)
    found['lars'] = _train(lambda **k: paddle.incubate.optimizer.LarsMomentumOptimizer(momentum=0.9, **k))
    found['adam_lazy'] = _train(lambda **k: paddle.optimizer.Adam(lazy_mode=True, **k), sparse=True)
    found['momentum_decay'] = _train(lambda **k: paddle.optimizer.Momentum(weight_decay=0.1, **k))
    found['momentum_nesterov'] = _train(
        lambda **k: paddle.optimizer.Momentum(use_nesterov=True, **k))
    found['rmsprop_centered'] = _train(
        lambda **k: paddle.optimizer.RMSProp(centered=True, momentum=0.9, **k))
    found['l1'] = _train(paddle.optimizer.SGD, decay=paddle.regularizer.L1Decay(0.1))
    found['l2'] = _train(paddle.optimizer.SGD, decay=paddle.regularizer.L2Decay(0.1))
    for name, clip in _CLIPS.items():
        found[f'clip_{name}'] = _train(paddle.optimizer.SGD, clip=clip)
        if name != 'value':  # it takes dense gradients alone
            found[f'clip_{name}_sparse'] = _train(paddle.optimizer.SGD, True, clip=clip)
            found[f'clip_{name}_sparse_twice'] = _train(paddle.optimizer.SGD, True, True, clip=clip)
    found.update(_recurrent())
    found.update(_sequences())
    return found


def _layer(layer: Callable[[Draw], Any]) -> Recipe:
    return lambda d: layer(d)(d.x(d.n, d.t, d.m))[0]


def _from_states(d: Draw, layer: Any, states: int) -> Any:
    """What it gives, beginning with states of which gradients are asked."""
    given = [d.x(layer.num_layers * layer.num_directions, d.n, d.k) for _ in range(states)]
    return layer(d.x(d.n, d.t, d.m), tuple(given) if states > 1 else given[0])[0]


def _testing(layer: str, layers: int, direction: str) -> Recipe:
    """One that is not trained: nobody can ask for gradients."""

    def build(d: Draw) -> Trained:
        made = getattr(nn, layer)(d.m, d.k, layers, direction)
        made.eval()
        made(d.x(d.n, d.t, d.m, grad=False))
        return Trained()

    return build


def tested_layers() -> Dict[str, Recipe]:
    """Recurrent layers in test mode."""
    return {
        f'{layer.lower()}_test{suffix}_{layers}': _testing(layer, layers, direction)
        for layer in ('LSTM', 'GRU', 'SimpleRNN')
        for suffix, direction in (('', 'forward'), ('_both', 'bidirect')) for layers in (1, 2, 3)
    }


def _recurrent() -> Dict[str, Recipe]:
    return {
        'lstm':
            _layer(lambda d: nn.LSTM(d.m, d.k)),
        'lstm_2':
            _layer(lambda d: nn.LSTM(d.m, d.k, 2)),
        'lstm_3':
            _layer(lambda d: nn.LSTM(d.m, d.k, 3)),
        'lstm_both':
            _layer(lambda d: nn.LSTM(d.m, d.k, 1, 'bidirect')),
        'lstm_both_2':
            _layer(lambda d: nn.LSTM(d.m, d.k, 2, 'bidirect')),
        'gru':
            _layer(lambda d: nn.GRU(d.m, d.k)),
        'gru_2':
            _layer(lambda d: nn.GRU(d.m, d.k, 2)),
        'gru_both':
            _layer(lambda d: nn.GRU(d.m, d.k, 1, 'bidirect')),
        'rnn':
            _layer(lambda d: nn.SimpleRNN(d.m, d.k)),
        'rnn_2':
            _layer(lambda d: nn.SimpleRNN(d.m, d.k, 2)),
        'rnn_both':
            _layer(lambda d: nn.SimpleRNN(d.m, d.k, 1, 'bidirect')),
        'lstm_dropout':
            _layer(lambda d: nn.LSTM(d.m, d.k, 2, dropout=0.3)),
        'lstm_long': lambda d: nn.LSTM(d.k, 4 * d.m)(d.x(d.n, d.t, d.k))[0],
        'lstm_wide': lambda d: nn.LSTM(8 * d.m, d.k, 2, 'bidirect')(d.x(d.n, d.t, 8 * d.m))[0],
        'lstm_lengths': lambda d: nn.LSTM(d.m, d.k)(d.x(d.n, d.t, d.m), None, d.ids(d.t - 1, d.n) + 1)[0],
        'lstm_states': lambda d: _from_states(d, nn.LSTM(d.m, d.k, 2), 2),
        'gru_states': lambda d: _from_states(d, nn.GRU(d.m, d.k, 1, 'bidirect'), 1),
        'rnn_states': lambda d: _from_states(d, nn.SimpleRNN(d.m, d.k), 1),
        'lstm_given': lambda d: nn.LSTM(d.m, d.k)(d.x(d.n, d.t, d.m, grad=False))[0],
        'gru_given_3': lambda d: nn.GRU(d.m, d.k, 3)(d.x(d.n, d.t, d.m, grad=False))[0],
        **tested_layers(),
        'lstm_cell':
            lambda d: nn.LSTMCell(d.m, d.k)(d.x(d.n, d.m))[0],
        'gru_cell':
            lambda d: nn.GRUCell(d.m, d.k)(d.x(d.n, d.m))[0],
        'transformer':
            lambda d: nn.TransformerEncoderLayer(4 * d.k, 2, d.m)(d.x(d.n, d.t, 4 * d.k)),
    }


def _sequences() -> Dict[str, Recipe]:
    s = paddle.static.nn
    return {
        'sequence_pool_sum':
            lambda d: s.sequence_pool(d.sentences(d.m), 'sum'),
        'sequence_pool_max':
            lambda d: s.sequence_pool(d.sentences(d.m), 'max'),
        'sequence_pool_average':
            lambda d: s.sequence_pool(d.sentences(d.m), 'average'),
        'sequence_pool_sqrt':
            lambda d: s.sequence_pool(d.sentences(d.m), 'sqrt'),
        'sequence_pool_last':
            lambda d: s.sequence_pool(d.sentences(d.m), 'last'),
        'sequence_pool_first':
            lambda d: s.sequence_pool(d.sentences(d.m), 'first'),
        'sequence_softmax':
            lambda d: s.sequence_softmax(d.sentences(1)),
        'sequence_conv':
            lambda d: s.sequence_conv(d.sentences(d.m), d.p),
        'sequence_expand':
            lambda d: s.sequence_expand(d.x(d.n, d.m), d.sentences(d.k)),
        'sequence_expand_as':
            lambda d: s.sequence_expand_as(d.x(d.n, d.m), d.sentences(d.k)),
        'sequence_concat':
            lambda d: s.sequence_concat([d.sentences(d.m), d.sentences(d.m)]),
        'sequence_reverse':
            lambda d: s.sequence_reverse(d.sentences(d.m)),
        'sequence_pad':
            lambda d: s.sequence_pad(d.sentences(d.m), paddle.zeros([1]))[0],
        'sequence_unpad':
            lambda d: s.sequence_unpad(d.x(d.n, d.t, d.m),
                                       d.ids(d.t - 1, d.n) + 1),
        'sequence_reshape':
            lambda d: s.sequence_reshape(d.sentences(2 * d.m), d.m),
        'sequence_enumerate':
            lambda d: s.sequence_enumerate(paddle.cast(d.sentences(1, grad=False), 'int64'), 2),
        'sequence_scatter':
            lambda d: s.sequence_scatter(d.x(
                d.n, d.m), paddle.cast(d.sentences(1, grad=False), 'int64'), d.sentences(1)),
        'sequence_slice':
            lambda d: s.sequence_slice(d.sentences(d.m), paddle.zeros([d.n, 1], 'int64'),
                                       paddle.ones([d.n, 1], 'int64')),
    }
