"""What a layer of the catalogue may ask for: values to read, weights, indices, images."""
from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import paddle

from tests.scenarios.common import append, named

Variable = Any


@dataclass
class Layers:
    """The values, all float32 [rows, width], that a block has so far, and what choices are drawn from.

    `width` is a multiple of 16, so that rows can be seen as small images. `trips` are those of each loop, by its block.
    """

    rng: random.Random
    width: int
    training: bool
    values: List[Variable]
    tables: Dict[str, Variable] = field(default_factory=dict)
    nested: bool = False
    trips: Dict[int, int] = field(default_factory=dict)

    def x(self) -> Variable:
        """One of the values, a late one more often than an early one."""
        return self.values[max(self.rng.randrange(len(self.values)) for _ in range(2))]

    def small(self) -> Variable:
        """Within (-1, 1), for functions of a small domain."""
        return paddle.tanh(self.x()) * 0.7

    def positive(self) -> Variable:
        return paddle.nn.functional.sigmoid(self.x()) + 0.5

    def weight(self, *shape: int) -> Variable:
        bound = 1.0 / max(1.0, float(np.prod(shape[1:])))**0.5
        limits = paddle.nn.initializer.Uniform(-bound, bound)
        return paddle.create_parameter(list(shape), 'float32', default_initializer=limits)

    def image(self, channels: int = 2) -> Variable:
        """[rows, channels, height, 4]"""
        return paddle.reshape(self.x(), [-1, channels, self.width // channels // 4, 4])

    def volume(self) -> Variable:
        """[rows, 1, 2, height, 4]"""
        return paddle.reshape(self.x(), [-1, 1, 2, self.width // 8, 4])

    def words(self) -> Variable:
        """[rows, 2, width / 2]"""
        return paddle.reshape(self.x(), [-1, 2, self.width // 2])

    def square(self, size: int = 4) -> Variable:
        """[size, size], far from singular."""
        block = paddle.reshape(self.x(), [-1])[:1] * paddle.ones([size * size], 'float32') * 0.05
        return paddle.reshape(block, [size, size]) + paddle.eye(size) * 2.0

    def mask(self) -> Variable:
        return self.x() > self.rng.choice((-0.1, 0.0, 0.2))

    def ids(self, below: int) -> Variable:
        """int64 [rows, width], from 0 to below."""
        found = paddle.cast(paddle.abs(paddle.tanh(self.x())) * (below - 0.01), 'int64')
        found.stop_gradient = True
        return found

    def row_ids(self, below: int) -> Variable:
        """int64 [rows]"""
        return self.ids(below)[:, 0]

    def integers(self, dtype: str = 'int64') -> Variable:
        found = paddle.cast(paddle.tanh(self.x()) * 9.0, dtype)
        found.stop_gradient = True
        return found

    def inner(self, values: List[Variable]) -> Layers:
        return Layers(self.rng, self.width, self.training, values, self.tables, nested=True)

    def add(self, found: Any) -> None:
        """Takes what a layer gave, whatever its shape and type, as one more value."""
        several = found if isinstance(found, (list, tuple)) else [found]
        for result in several[:2]:
            self.values.append(self._fitted(result))

    def _fitted(self, found: Variable) -> Variable:
        if found.dtype != paddle.float32:
            found = paddle.cast(found, 'float32')
        if tuple(found.shape[1:]) == (self.width,) and found.shape[0] == self.values[0].shape[0]:
            return found
        return self.x() + 0.1 * paddle.tanh(paddle.mean(found))


Layer = Callable[[Layers], Any]
Catalogue = Dict[str, Layer]


def raw(kind: str, inputs: Dict[str, Any], outputs: Tuple[str, ...], like: Variable,
        **attributes: Any) -> Variable:
    """An operator that has no function in Paddle's API; the first of its outputs, declared as `like`."""
    made = {slot: paddle.utils.unique_name.generate(f'{kind}.{slot}') for slot in outputs}
    results = {slot: named(name, like) for slot, name in made.items()}
    append(kind, inputs, {slot: [result] for slot, result in results.items()}, **attributes)
    return results[outputs[0]]
