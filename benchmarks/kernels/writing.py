"""The small programs that recipes are for, with their gradients."""

from __future__ import annotations

from typing import Any, List, Tuple

import paddle

from benchmarks.kernels.draw import Draw
from benchmarks.kernels.recipes import Recipe
from benchmarks.kernels.recipes.training import Trained

# Of what gradients are asked: names of element types, by 2.6 and by 3.
_FLOATS = frozenset({'FP32', 'FP64', 'FLOAT32', 'FLOAT64', 'COMPLEX64', 'COMPLEX128'})


def written(recipe: Recipe, draw: Draw) -> Tuple[paddle.static.Program, paddle.static.Program]:
    """The program of `recipe`, and the one that starts it."""
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        _add_gradients(recipe(draw), draw)
    return main, startup


def _add_gradients(outputs: Any, draw: Draw) -> None:
    if isinstance(outputs, Trained):
        return
    listed: List[Any] = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    differentiable = [v for v in listed if v.dtype.name in _FLOATS and not v.stop_gradient]
    block = paddle.static.default_main_program().global_block()
    parameters = [p for p in block.all_parameters() if p.trainable]
    if differentiable and draw.trainable + parameters:
        paddle.static.gradients(differentiable, draw.trainable + parameters)
