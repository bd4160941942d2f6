"""Layers that hold layers: branches and loops, with weights of their own in them."""
from __future__ import annotations

from typing import Any, List

import paddle

from tests.scenarios.common import fc
from tests.wild.layers import Catalogue, Layers, Variable

# What may stand in a block. Paddle 2.6 has no gradient for some operators there.
INNER = ('tanh', 'sigmoid', 'relu', 'sin', 'softmax', 'gelu', 'multiply', 'add', 'matmul', 'fc',
         'layer_norm', 'slice', 'concat', 'scale', 'dropout', 'conv2d', 'clip', 'add_n', 'square',
         'exp', 'log_softmax', 'transpose', 'max_pool2d', 'embedding', 'leaky_relu')


def _inside(layers: Layers, values: List[Variable], inner: Catalogue, most: int) -> Variable:
    own = layers.inner(values)
    own.values.append(paddle.tanh(values[-1]))
    for _ in range(layers.rng.randint(1, most)):
        own.add(inner[layers.rng.choice(INNER)](own))
    return own.values[-1] * 0.9


def _chosen(layers: Layers) -> Variable:
    return paddle.mean(layers.x()) > layers.rng.choice((-0.05, 0.0, 0.05))


def branches(layers: Layers, inner: Catalogue) -> Variable:
    value = layers.x()
    return paddle.static.nn.cond(_chosen(layers), lambda: _inside(layers, [value], inner, 4),
                                 lambda: _inside(layers, [value], inner, 3))


def branches_with_weights(layers: Layers, inner: Catalogue) -> Variable:
    value, weight = layers.x(), layers.weight(layers.width, layers.width)

    def chain() -> Variable:
        hidden = fc(paddle.matmul(value, weight), layers.width, 'relu')
        return fc(hidden, layers.width)

    return paddle.static.nn.cond(_chosen(layers), chain,
                                 lambda: paddle.matmul(paddle.tanh(value), weight))


def switch(layers: Layers, inner: Catalogue) -> Variable:
    value = layers.x()
    index = paddle.cast(paddle.abs(paddle.mean(value)) * 20.0, 'int32')
    cases = [lambda: paddle.tanh(value), lambda: _inside(layers, [value], inner, 2)]
    return paddle.static.nn.switch_case(index, cases, default=lambda: paddle.sin(value))


def loop(layers: Layers, inner: Catalogue) -> Variable:
    """A loop writes its state onto the variable that it starts from.

    while_grad fails in a block when a variable that the loop reads gets no gradient from its body: in training the
    body reads its state, and a weight that it uses.
    """
    trips = layers.rng.randint(1, 4)
    index, limit = paddle.full([1], 0, 'int64'), paddle.full([1], trips, 'int64')
    state = paddle.scale(layers.x(), 0.5)
    state.stop_gradient = not layers.training
    weight = layers.weight(layers.width, layers.width)
    length = layers.rng.randint(1, 4)
    names = [layers.rng.choice(INNER[:9]) for _ in range(length)]

    def body(i: Variable, value: Variable) -> List[Any]:
        own = layers.inner([paddle.matmul(value, weight) * 0.5])
        for name in names:
            own.add(inner[name](own))
        return [paddle.increment(i), own.values[-1] + value * 0.5]

    found = paddle.static.nn.while_loop(lambda i, _: i < limit,
                                        body, [index, state],
                                        is_test=not layers.training)[1]
    made = next(op for op in reversed(found.block.ops) if op.type == 'while')
    layers.trips[made.attr('sub_block').id] = trips
    return found


BLOCKS = (branches, branches_with_weights, switch, loop)
