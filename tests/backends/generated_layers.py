"""Layers drawn at random, of what users write into `forward`."""
from __future__ import annotations

import random
from typing import Any, Callable, Dict, List, Sequence, Tuple

import paddle
import paddle.nn.functional as F
from paddle import nn

from tests.wild.layers import Layers
from tests.wild.recipes import CATALOGUE

WIDTH = 8
# From this seed on, layers are of all kinds of operators, too.
WIDE = 1000
# Of the catalogue of `tests.wild`, what makes layers in its forward: other ones each time.
_MAKE_LAYERS = ('rnn', 'transformer', 'group_norm', 'layer_norm_weights')
Values = List[Any]
Step = Callable[['Network', Values], Any]
Of = Callable[[Any], Any]

_ONE: Tuple[Of, ...] = (
    paddle.tanh,
    F.relu,
    F.gelu,
    F.silu,
    F.hardswish,
    F.elu,
    F.softplus,
    F.leaky_relu,
    paddle.sin,
    paddle.abs,
    lambda x: F.sigmoid(x) * 1.5,
    lambda x: paddle.exp(-x * x),
    lambda x: F.softmax(x, axis=-1),
    lambda x: F.log_softmax(x, axis=-1),
    lambda x: F.normalize(x, axis=-1),
    lambda x: paddle.clip(x, -0.5, 0.7),
    lambda x: paddle.sqrt(paddle.abs(x) + 0.1),
    lambda x: paddle.cumsum(x, axis=-1),
    lambda x: paddle.flip(x, axis=[1]),
    lambda x: paddle.roll(x, 3, axis=1),
    lambda x: paddle.sort(x, axis=1),
    lambda x: paddle.tril(x) + x,
    lambda x: paddle.scale(x, 0.5, 0.1),
    lambda x: x - paddle.mean(x, axis=-1, keepdim=True),
    lambda x: x / (1.0 + paddle.max(paddle.abs(x))),
    lambda x: paddle.reshape(paddle.reshape(x, [-1, 2, 4]), [-1, WIDTH]),
    lambda x: paddle.transpose(paddle.reshape(x, [-1, 2, 4]), [0, 2, 1]).reshape([-1, WIDTH]),
    lambda x: paddle.concat(paddle.split(x, 2, axis=1)[::-1], axis=1),
    lambda x: paddle.stack([x, x * 2.0], axis=0).sum(axis=0),
    lambda x: paddle.where(x > 0, x, x * 0.3),
    lambda x: paddle.cast(paddle.cast(x, 'float64') * 1.25, 'float32'),
    lambda x: paddle.matmul(x, x, transpose_y=True).matmul(x) * 0.05,
    lambda x: x + paddle.arange(WIDTH, dtype='float32') * 0.01,
    lambda x: paddle.topk(x, 4, axis=1)[0].sum(axis=1, keepdim=True) + x,
    lambda x: paddle.einsum('ij,kj->ik', x, x).mean(axis=1, keepdim=True) + x,
    lambda x: x[:, ::2].tile([1, 2]),
    lambda x: x.detach() * x,
    lambda x: F.one_hot(paddle.argmax(x, axis=1), WIDTH) + x,
    lambda x: paddle.logsumexp(x, axis=1, keepdim=True) + x,
    lambda x: F.mse_loss(x, x * 0.5) + x,
    lambda x: paddle.squeeze(paddle.unsqueeze(x, 0), 0),
    lambda x: (x * 1.0).tanh_(),
    lambda x: (x + 0.0).scale_(0.7),
    lambda x: F.relu_(x * 1.0),
    lambda x: (x * 1.0).clip_(-0.6, 0.6),
)
_TWO: Tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a - b,
    lambda a, b: paddle.maximum(a, b),
    lambda a, b: a / (1.0 + paddle.abs(b)),
    lambda a, b: paddle.where(a > b, a, b * 0.5),
    lambda a, b: paddle.matmul(a, b, transpose_y=True).matmul(b) * 0.05,
    lambda a, b: paddle.concat([a[:, :4], b[:, 4:]], axis=1),
    lambda a, b: paddle.add_n([a, b, a]),
    lambda a, b: paddle.lerp(a, b, 0.3),
    lambda a, b: paddle.stack([a, b]).mean(axis=0),
    lambda a, b: F.glu(paddle.concat([a, b], axis=1)),
)


class Convolved(nn.Layer):

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2D(1, 2, 3, padding=1), nn.Conv2D(2, 1, 1)
        self.norm = nn.BatchNorm2D(2)
        self.pooled = rng.random() < 0.5

    def forward(self, x: Any) -> Any:
        image = F.relu(self.norm(self.conv(x.reshape([-1, 1, 2, WIDTH // 2]))))
        if self.pooled:
            image = F.avg_pool2d(image, 3, 1, 1)
        return x + self.out(image).reshape([-1, WIDTH])


class Attending(nn.Layer):

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.project, self.drop = nn.Linear(WIDTH, 3 * WIDTH), nn.Dropout(rng.choice([0.0, 0.2]))

    def forward(self, x: Any) -> Any:
        query, key, value = paddle.split(self.project(x), 3, axis=-1)
        weights = F.softmax(paddle.matmul(query, key, transpose_y=True) * 0.3)
        return x + paddle.matmul(self.drop(weights), value)


class Counting(nn.Layer):
    """Its forward changes a buffer."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.register_buffer('seen', paddle.zeros([WIDTH]))
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        found = self.linear(x)
        if self.training:
            paddle.assign(self.seen * 0.9 + paddle.mean(found.detach(), axis=0) * 0.1, self.seen)
        return found - self.seen


class Recurrent(nn.Layer):

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.cells = rng.choice([nn.GRU, nn.LSTM, nn.SimpleRNN])(WIDTH // 2, WIDTH // 2)

    def forward(self, x: Any) -> Any:
        return self.cells(x.reshape([-1, 2, WIDTH // 2]))[0].reshape([-1, WIDTH]) + x


class Embedded(nn.Layer):

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.table = nn.Embedding(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.table(paddle.argmax(x, axis=1))


class Mixed(nn.Layer):
    """As in a transformer."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        inner = rng.choice([2, 4]) * WIDTH
        self.up, self.down = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)
        self.act = rng.choice([F.gelu, F.relu, paddle.tanh, F.silu])
        mode = rng.choice(['upscale_in_train', 'downscale_in_infer'])
        self.drop = nn.Dropout(rng.choice([0.0, 0.1, 0.5]), mode=mode)

    def forward(self, x: Any) -> Any:
        return x + self.drop(self.down(self.act(self.up(x))))


class _Called(Layers):
    """What a layer of the catalogue of `tests.wild` asks for where a `Drawn` calls it: weights are those of that, in turn."""

    def __init__(self, owner: Drawn) -> None:
        super().__init__(random.Random(), 2 * WIDTH, True, [])
        self._owner, self._asked = owner, 0

    def start(self, x: Any) -> None:
        self.rng.seed(self._owner.seed)
        self.values, self._asked = [paddle.concat([x, x * 0.7], axis=1)], 0

    def weight(self, *shape: int) -> Any:
        if self._asked == len(self._owner.weights):
            self._owner.weights.append(super().weight(*shape))
        self._asked += 1
        return self._owner.weights[self._asked - 1]


class Drawn(nn.Layer):
    """One of the catalogue's that dynamic mode has, and which makes no layer of its own."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.weights, self.name, self.seed = nn.ParameterList(), '', rng.random()
        self.called = _Called(self)
        while not self.name:
            self.name = rng.choice([name for name in sorted(CATALOGUE) if name not in _MAKE_LAYERS])
            try:
                self.forward(paddle.rand([4, WIDTH]))
            except Exception:  # pylint: disable=broad-except
                self.weights, self.name = nn.ParameterList(), ''

    def forward(self, x: Any) -> Any:
        self.called.start(x)
        self.called.add(CATALOGUE[self.name](self.called))
        return self.called.values[-1][:, :WIDTH] + x * 0.5


_LAYERS: Tuple[Callable[[random.Random], Any], ...] = (
    Mixed,
    Mixed,
    Mixed,
    Convolved,
    Attending,
    Counting,
    Recurrent,
    Embedded,
    lambda _: nn.Linear(WIDTH, WIDTH),
    lambda _: nn.LayerNorm(WIDTH),
    lambda _: nn.BatchNorm1D(WIDTH),
    lambda _: nn.Dropout(0.3),
    lambda _: nn.AlphaDropout(0.2),
    lambda _: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)),
)


class Network(nn.Layer):
    """Takes [rows, WIDTH], and `more`, as `extra` says. Some values are read often, some by nobody, some given out."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = random.Random(seed)
        kinds = _LAYERS if seed < WIDE else (*_LAYERS, *(Drawn,) * (2 * len(_LAYERS)))
        self.inner = nn.LayerList([rng.choice(kinds)(rng) for _ in range(rng.randint(1, 5))])
        self.steps = [self._step(rng, values) for values in range(1, rng.randint(5, 25))]
        given = range(len(self.steps) + 1)
        self.outs = [len(self.steps), *rng.sample(given, min(len(given), rng.choice([0, 0, 1, 2])))]
        self.form = rng.choice(['loss', 'loss', 'tensor', 'list', 'dict'])
        self.extra = rng.choice(['', '', 'list', 'dict', 'keyword'])

    def _step(self, rng: random.Random, values: int) -> Step:
        """One that reads values of which there are so many, late ones above all."""
        kind = rng.random()
        a, b = (max(rng.randrange(values), rng.randrange(values)) for _ in 'ab')
        layer, one, two = rng.randrange(len(self.inner)), rng.choice(_ONE), rng.choice(_TWO)
        if kind < 0.35:
            return lambda net, found: net.inner[layer](found[a])
        if kind < 0.75:
            return lambda net, found: one(found[a])
        if kind < 0.95:
            return lambda net, found: two(found[a], found[b])
        if kind < 0.975:
            return lambda net, found: net.chosen(found[a], net.inner[layer])
        return lambda net, found: found[a] + net.without_gradient(one, found[a])

    def without_gradient(self, one: Of, x: Any) -> Any:
        with paddle.no_grad():
            return one(x)

    def chosen(self, x: Any, layer: Any) -> Any:
        if paddle.mean(x) > 0.05:
            found = layer(x)
        else:
            found = x * 0.5
        return found

    def forward(self, x: Any, more: Any = None) -> Any:
        if more is not None:
            x = x + (more[0]
                     if self.extra == 'list' else more['a'] if self.extra == 'dict' else more)
        found = [x]
        for step in self.steps:
            found.append(step(self, found))
        first, *others = (found[i] for i in self.outs)
        if self.form == 'loss':
            first = paddle.mean(first * first)
        if self.form == 'dict':
            return {'first': first, 'others': others}
        return [first, *others] if self.form == 'list' else (first, *others) if others else first


def inputs(network: Network, x: Any, more: Any) -> Tuple[Sequence[Any], Dict[str, Any]]:
    """Arguments by position and by keyword."""
    if network.extra == 'keyword':
        return [x], {'more': more}
    extra = {'list': [[more]], 'dict': [{'a': more}]}
    return [x, *extra.get(network.extra, [])], {}
