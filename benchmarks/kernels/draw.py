"""Inputs of the small programs whose kernels are measured."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import paddle

# Dims of each size, by name: no two the same in one size, so that each can be told from the others.
SIZES = 5
# One more: the dims of another, in double precision.
DOUBLE = 5
_DIMS = {
    'n': (2, 3, 5, 4, 7, 3),
    'c': (4, 8, 6, 10, 12, 8),
    'k': (6, 4, 10, 8, 14, 4),
    't': (5, 7, 9, 6, 8, 7),
    'h': (13, 9, 11, 17, 10, 9),
    'w': (11, 14, 8, 15, 19, 14),
    'm': (23, 31, 29, 37, 41, 31),
    'p': (47, 53, 43, 59, 61, 53),
    'v': (101, 67, 83, 71, 97, 67),
}


class Draw:
    """The dims of one size, and tensors that a program is fed with.

    Args:
        size: which of the SIZES, or DOUBLE.
    """

    n: int
    c: int
    k: int
    t: int
    h: int
    w: int
    m: int
    p: int
    v: int

    def __init__(self, size: int) -> None:
        self.__dict__.update({name: dims[size] for name, dims in _DIMS.items()})
        self._random = np.random.RandomState(size)
        self._floats = 'float64' if size == DOUBLE else 'float32'
        self.feed: Dict[str, Any] = {}
        self.trainable: list = []

    def x(self,
          *shape: int,
          dtype: str = '',
          low: float = 0.1,
          high: float = 0.9,
          grad: bool = True) -> Any:
        """Floats in [low, high), of which gradients are asked; single precision unless the size says otherwise."""
        values = self._random.uniform(low, high, shape).astype(dtype or self._floats)
        variable = self.given(values)
        variable.stop_gradient = not grad
        if grad:
            self.trainable.append(variable)
        return variable

    def ids(self, below: int, *shape: int, dtype: str = 'int64') -> Any:
        """Whole numbers from 0 to `below`."""
        return self.given(self._random.randint(0, below, shape).astype(dtype))

    def bools(self, *shape: int) -> Any:
        return self.given(self._random.rand(*shape) > 0.5)

    def given(self, values: np.ndarray, lengths: Optional[Sequence[int]] = None) -> Any:
        """Just these values; with `lengths`, sequences of rows."""
        name = f'in{len(self.feed)}'
        levels = 0 if lengths is None else 1
        variable = paddle.static.data(name,
                                      self.declared(values.shape),
                                      str(values.dtype),
                                      lod_level=levels)
        self.feed[name] = values if lengths is None else (values, list(lengths))
        return variable

    def declared(self, shape: Sequence[int]) -> List[int]:
        """The dims that an input of this shape is declared with."""
        return list(shape)

    def sentences(self, width: int, grad: bool = True) -> Any:
        """Sequences of 2, 3, 4, ... rows, one for each of `n`."""
        lengths = [2 + i for i in range(self.n)]
        variable = self.given(self._random.rand(sum(lengths), width).astype(self._floats), lengths)
        variable.stop_gradient = not grad
        if grad:
            self.trainable.append(variable)
        return variable
