"""What most scenarios need: feeds, a loss, an optimizer, operators on names that the caller chooses."""
from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np
import paddle

Variable = Any
Spec = Tuple[Tuple[int, ...], Optional[int]]


def floats(*shape: int) -> Spec:
    """A float32 input of this shape."""
    return shape, None


def integers(below: int, *shape: int) -> Spec:
    """An int64 input of this shape."""
    return shape, below


def random_feed(**specs: Spec) -> Callable[[int], Dict[str, np.ndarray]]:
    """New values at each step, the same ones in each run."""

    def feed(step: int) -> Dict[str, np.ndarray]:
        rng = np.random.RandomState(1000 + step)
        return {name: _draw(rng, *spec) for name, spec in specs.items()}

    return feed


def _draw(rng: np.random.RandomState, shape: Tuple[int, ...], below: Optional[int]) -> np.ndarray:
    if below is None:
        return rng.uniform(-1, 1, shape).astype("float32")
    return rng.randint(0, below, shape).astype("int64")


def data(name: str, *shape: int, dtype: str = "float32") -> Variable:
    return paddle.static.data(name, list(shape), dtype)


def fc(x: Variable, size: int, activation: Optional[str] = None) -> Variable:
    return paddle.static.nn.fc(x, size, activation=activation)


def square_loss(prediction: Variable) -> Variable:
    return paddle.mean(paddle.square(prediction))


def train(loss: Variable, optimizer: Any = None) -> None:
    (optimizer or paddle.optimizer.SGD(0.1)).minimize(loss)


def named(name: str, like: Variable) -> Variable:
    """A variable of that name in the current block, declared as `like` is."""
    block = paddle.static.default_main_program().current_block()
    return block.create_var(name=name, shape=like.shape, dtype=like.dtype, stop_gradient=False)


def append(kind: str, inputs: Dict[str, Any], outputs: Dict[str, Any], **attributes: Any) -> None:
    """An operator with outputs of the caller's choice, which the layers do not give: in-place and so on."""
    block = paddle.static.default_main_program().current_block()
    block.append_op(type=kind, inputs=inputs, outputs=outputs, attrs=attributes)
