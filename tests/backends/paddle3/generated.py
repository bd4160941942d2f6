"""Random straight-line programs of Paddle 3: ways that part and meet, lists, state, random numbers, ops that work in place."""
from __future__ import annotations

import random
from typing import Any, List

import paddle
import paddle.nn.functional as F
from paddle import _C_ops, static

from benchmarks.programs.case import Case, Options, drafting, make_optimizer

WIDTH = 16
_UNARY = (F.relu, paddle.tanh, F.sigmoid, F.gelu, F.softmax, paddle.square, F.silu, F.leaky_relu)
_BINARY = (paddle.add, paddle.multiply, paddle.subtract, paddle.maximum)
_IN_PLACE = ('relu_', 'tanh_', 'sigmoid_', 'exp_')


class Drawn:
    """Values of one shape, and what is made of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.values: List[Any] = []
        self.training = self.random.random() < 0.85

    def value(self) -> Any:
        """Mostly one of the last ones, so that programs get long."""
        recent = self.values[-4:] if self.random.random() < 0.7 else self.values
        return self.random.choice(recent)

    def step(self) -> None:
        kinds = (self.unary, self.binary, self.layer, self.parts, self.turned, self.normal,
                 self.dropped, self.summed, self.spread, self.overwritten)
        made = self.random.choices(kinds, (4, 4, 3, 2, 2, 1, 1, 2, 1, 1))[0]()
        self.values.append(made)

    def unary(self) -> Any:
        return self.random.choice(_UNARY)(self.value())

    def binary(self) -> Any:
        return self.random.choice(_BINARY)(self.value(), self.value())

    def layer(self) -> Any:
        return static.nn.fc(self.value(),
                            WIDTH,
                            activation=self.random.choice((None, 'relu', 'tanh')))

    def parts(self) -> Any:
        """A list that is taken apart, and one that several ops read."""
        axis = -1
        first, second = paddle.split(self.value(), 2, axis=axis)
        halves = [second, first] if self.random.random() < 0.5 else [first, F.relu(second)]
        return paddle.concat(halves, axis=axis)

    def turned(self) -> Any:
        square = paddle.reshape(self.value(), [-1, 4, 4])
        return paddle.reshape(paddle.transpose(square, [0, 2, 1]), [-1, WIDTH])

    def normal(self) -> Any:
        layer = paddle.nn.BatchNorm1D(WIDTH) if self.random.random() < 0.5 else paddle.nn.LayerNorm(
            WIDTH)
        return layer(self.value())

    def dropped(self) -> Any:
        return F.dropout(self.value(), 0.25, training=self.training)

    def summed(self) -> Any:
        return paddle.add_n([self.value() for _ in range(self.random.randint(2, 4))])

    def spread(self) -> Any:
        """A small value that meets a large one."""
        mean = paddle.mean(self.value(), axis=self.random.choice((0, 1)), keepdim=True)
        return self.value() * mean

    def overwritten(self) -> Any:
        """Gradients stop here: Paddle does not train through what is written over."""
        copy = paddle.assign(self.value())
        copy.stop_gradient = True
        scaled = copy * 0.5 if self.random.random() < 0.5 else None
        done = getattr(_C_ops, self.random.choice(_IN_PLACE))(copy)
        again = copy + done if self.random.random(
        ) < 0.3 else done  # by either name it is the new one
        return again if scaled is None else again - scaled


def generated(seed: int, rows: int = 12) -> Case:
    """The same program for the same seed; its values have `rows` rows of 16."""
    drawn = Drawn(seed)
    open_batch = drawn.random.random() < 0.3
    options = Options(static_batch=not open_batch,
                      seed=seed % 1000 + 1,
                      inference=not drawn.training)
    with drafting(options, batch_size=rows) as draft:
        drawn.values.append(draft.floats('x', [rows, WIDTH]))
        drawn.values.append(static.nn.fc(drawn.values[0], WIDTH))
        for _ in range(drawn.random.randint(6, 22)):
            drawn.step()
        out = F.tanh(paddle.add_n(drawn.values[-3:]))
        fetched = [
            paddle.mean(out), *drawn.random.sample(drawn.values[1:], drawn.random.randint(0, 2))
        ]
        if drawn.training:
            make_optimizer(drawn.random.choice(('sgd', 'momentum', 'adam'))).minimize(fetched[0])
        return draft.case(fetched, training=drawn.training)
