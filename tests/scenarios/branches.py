"""`cond`, `case`, `switch_case`, Switch: trained through conditional_block_grad, and without gradient."""
from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.static.nn.control_flow import Switch

from tests.harness import Case, new_programs
from tests.scenarios.common import data, fc, floats, random_feed, square_loss, train

Variable = Any


def _feed() -> Callable[[int], Dict[str, Any]]:
    """The mean of x is below zero at every second step, so that both branches get their turn."""
    drawn = random_feed(x=floats(6, 8))
    return lambda step: {"x": drawn(step)["x"] + np.float32(0.4 * (-1)**step)}


def _case(prediction_of: Any, gradient: bool = True) -> Case:
    with new_programs() as (main, startup):
        inputs = data("x", -1, 8)
        loss = square_loss(prediction_of(inputs))
        if gradient:
            train(loss)
    return Case(main, startup, _feed(), [loss.name])


def captured_temporaries_of_the_main_block() -> Case:

    def prediction(inputs: Variable) -> Variable:
        hidden = fc(inputs, 8, "tanh")
        other = paddle.exp(paddle.scale(hidden, 0.5))
        chosen = paddle.static.nn.cond(
            paddle.mean(inputs) > 0, lambda: paddle.tanh(hidden * other),
            lambda: F.sigmoid(hidden) + other)
        return fc(paddle.exp(paddle.scale(chosen, 0.1)), 8)

    return _case(prediction)


def without_gradient() -> Case:

    def prediction(inputs: Variable) -> Variable:
        hidden = paddle.tanh(paddle.exp(inputs))
        other = paddle.exp(paddle.scale(hidden, 0.5))
        return paddle.static.nn.cond(
            paddle.mean(inputs) > 0, lambda: paddle.tanh(paddle.exp(paddle.tanh(hidden * other))),
            lambda: F.sigmoid(paddle.exp(hidden)) + other)

    return _case(prediction, gradient=False)


def nested() -> Case:

    def prediction(inputs: Variable) -> Variable:
        hidden = fc(inputs, 8, "tanh")

        def upper() -> Variable:
            side = paddle.exp(hidden)
            return paddle.static.nn.cond(
                paddle.mean(hidden) > 0, lambda: side * 2.0, lambda: paddle.tanh(side))

        return paddle.static.nn.cond(
            paddle.mean(inputs) > 0, upper, lambda: F.sigmoid(fc(hidden, 8)))

    return _case(prediction)


def gradient_of_unused_branch_is_zero() -> Case:
    """Each branch has parameters of its own; the branch not taken gives them zero gradients."""

    def prediction(inputs: Variable) -> Variable:
        hidden = fc(inputs, 8, "tanh")
        return paddle.static.nn.cond(
            paddle.mean(inputs) > 0, lambda: fc(hidden, 8, "tanh"),
            lambda: fc(hidden, 8, "sigmoid"))

    return _case(prediction)


def several_results() -> Case:

    def prediction(inputs: Variable) -> Variable:
        hidden = fc(inputs, 8, "tanh")
        first, second = paddle.static.nn.cond(
            paddle.mean(inputs) > 0, lambda: (hidden * 2.0, paddle.exp(hidden)), lambda:
            (paddle.tanh(hidden), hidden))
        return first + paddle.scale(second, 0.1)

    return _case(prediction)


def switch_case() -> Case:
    with new_programs() as (main, startup):
        inputs, index = data("x", -1, 8), data("index", 1, dtype="int32")
        hidden = fc(inputs, 8, "tanh")
        chosen = paddle.static.nn.switch_case(index, {
            1: lambda: paddle.exp(hidden),
            2: lambda: paddle.tanh(hidden) * 2.0
        }, lambda: F.sigmoid(hidden))
        loss = square_loss(fc(chosen, 4))
        train(loss)
    feed = lambda step: dict(_feed()(step), index=np.array([step % 4], "int32"))
    return Case(main, startup, feed, [loss.name])


def case() -> Case:

    def prediction(inputs: Variable) -> Variable:
        hidden = fc(inputs, 8, "tanh")
        mean = paddle.mean(inputs)
        return paddle.static.nn.case([(mean > 0.05, lambda: paddle.exp(hidden)),
                                      (mean > -0.05, lambda: paddle.tanh(hidden))],
                                     lambda: F.sigmoid(hidden))

    return _case(prediction)


def switch_with_assignments() -> Case:
    """Switch writes a variable of the main block from inside its blocks."""
    with new_programs() as (main, startup):
        inputs = data("x", -1, 8)
        hidden = paddle.tanh(paddle.exp(inputs))
        result = paddle.scale(hidden, 1.0)
        later = paddle.exp(paddle.tanh(hidden))
        with Switch() as switch:
            with switch.case(paddle.mean(inputs) > 0):
                paddle.assign(paddle.exp(later), result)
            with switch.default():
                paddle.assign(paddle.tanh(later) * 3.0, result)
        total = paddle.mean(paddle.exp(paddle.scale(result, 0.1)))
    return Case(main, startup, _feed(), [total.name])


def memory_freed_before_is_used_inside() -> Case:
    """Values of the main block that died before the branch are there for its temporaries to use."""

    def prediction(inputs: Variable) -> Variable:
        hidden = inputs
        for _ in range(3):
            hidden = fc(hidden, 8, "tanh")
        chosen = paddle.static.nn.cond(
            paddle.mean(inputs) > 0, lambda: fc(fc(paddle.exp(hidden), 8, "tanh"), 8),
            lambda: paddle.tanh(paddle.exp(paddle.tanh(hidden))))
        return fc(fc(chosen, 8, "tanh"), 8)

    return _case(prediction)
