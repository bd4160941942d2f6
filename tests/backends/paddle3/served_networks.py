"""Generated networks as they are served: of images, and of vectors."""
from __future__ import annotations

import random
from typing import Any, Callable, List

import paddle
import paddle.nn.functional as F
from paddle import nn, static

Value = Any
Layer = Callable[[random.Random, Value], Value]
_OUT = 8


def _normed(rng: random.Random, x: Value) -> Value:
    norm = nn.BatchNorm2D(x.shape[1])
    norm.training = False
    return norm(x)


def _halves(x: Value, axis: int) -> List[Value]:
    return paddle.split(x, 2, axis=axis) if x.shape[axis] % 2 == 0 else [x, x]


_IMAGES: List[Layer] = [
    lambda rng, x: nn.Conv2D(x.shape[1], rng.choice((4, 8, 16)), rng.choice((1, 3)), padding=1)(x),
    lambda rng, x: F.relu(x),
    lambda rng, x: F.sigmoid(x) * x,
    lambda rng, x: F.max_pool2d(x, 2) if x.shape[2] > 3 else F.hardswish(x),
    lambda rng, x: paddle.concat([x, x], axis=1),
    lambda rng, x: paddle.add(*_halves(x, 1)),
    _normed,
    lambda rng, x: F.gelu(x),
    lambda rng, x: x * rng.choice((0.5, 1.0)) + rng.choice((0.0, 1.0)),
    lambda rng, x: x - paddle.mean(x, axis=[2, 3], keepdim=True),
    lambda rng, x: F.avg_pool2d(x, 3, stride=1, padding=1),
]
_VECTORS: List[Layer] = [
    lambda rng, x: static.nn.fc(x, rng.choice((16, 64, 256))),
    lambda rng, x: F.relu(x),
    lambda rng, x: F.softmax(x),
    lambda rng, x: paddle.concat([x] * rng.randint(2, 4), axis=-1)
    if x.shape[-1] < 500 else F.tanh(x),
    lambda rng, x: F.layer_norm(x, [x.shape[-1]]),
    lambda rng, x: x * x,
    lambda rng, x: rng.choice(_halves(x, -1)),
    lambda rng, x: x + rng.choice((0.0, 1.0)),
    lambda rng, x: paddle.mean(x, axis=-1, keepdim=True) + x,
    lambda rng, x: paddle.sin(x),
    lambda rng, x: paddle.floor(x),
    lambda rng, x: paddle.cumsum(x, axis=-1),
]


def shape(seed: int) -> List[Any]:
    return [None, 3, 8, 16] if seed % 2 else [None, 64]


def network(seed: int) -> Callable[[Value], Value]:
    """Of an input of `shape(seed)`: values are read more than once, by kernels of oneDNN and by others."""

    def build(x: Value) -> Value:
        rng, values = random.Random(seed), [x]
        for _ in range(rng.randint(4, 14)):
            read = rng.choice(values[-6:])
            made = rng.choice(_IMAGES if len(x.shape) == 4 else _VECTORS)(rng, read)
            alike = [v for v in values if list(v.shape[1:]) == list(made.shape[1:])]
            values.append(made + rng.choice(alike) if alike and rng.random() < 0.5 else made)
        ends = [static.nn.fc(paddle.flatten(value, 1), _OUT) for value in values[-4:]]
        return paddle.concat(ends, axis=-1)

    return build
