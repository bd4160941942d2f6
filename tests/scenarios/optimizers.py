"""How parameters are updated: clipping, regularisation, schedules, state of one's own."""
from __future__ import annotations

from typing import Any, Callable

import paddle
from paddle.static.nn.control_flow import Switch

from tests.harness import Case, new_programs
from tests.scenarios.common import append, data, fc, floats, random_feed, square_loss, train


def _case(optimizer_of: Callable[[], Any]) -> Case:
    with new_programs() as (main, startup):
        hidden = fc(fc(data("x", -1, 8), 8, "tanh"), 8, "relu")
        loss = square_loss(fc(hidden, 4))
        train(loss, optimizer_of())
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])


def sgd() -> Case:
    return _case(lambda: paddle.optimizer.SGD(0.1))


def momentum() -> Case:
    return _case(lambda: paddle.optimizer.Momentum(0.1, 0.9, use_nesterov=True))


def adam() -> Case:
    return _case(lambda: paddle.optimizer.Adam(0.01))


def adamw() -> Case:
    return _case(lambda: paddle.optimizer.AdamW(0.01, weight_decay=0.1))


def lamb() -> Case:
    return _case(lambda: paddle.optimizer.Lamb(0.01))


def rmsprop() -> Case:
    return _case(lambda: paddle.optimizer.RMSProp(0.01, momentum=0.9, centered=True))


def global_norm_clip_and_l2() -> Case:
    """The decay's `sum` has one variable among its inputs and its outputs."""
    return _case(lambda: paddle.optimizer.Momentum(0.1,
                                                   0.9,
                                                   weight_decay=paddle.regularizer.L2Decay(0.01),
                                                   grad_clip=paddle.nn.ClipGradByGlobalNorm(0.05)))


def clip_by_value_and_l1() -> Case:
    return _case(lambda: paddle.optimizer.SGD(0.1,
                                              weight_decay=paddle.regularizer.L1Decay(0.01),
                                              grad_clip=paddle.nn.ClipGradByValue(0.01)))


def learning_rate_scheduler() -> Case:
    return _case(lambda: paddle.optimizer.SGD(paddle.optimizer.lr.ExponentialDecay(0.2, 0.5)))


def _step_counter() -> Any:
    counter = paddle.static.create_global_var([1],
                                              -1.0,
                                              "float32",
                                              persistable=True,
                                              force_cpu=True,
                                              name="step_counter")
    append("increment", {"X": [counter]}, {"Out": [counter]}, step=1.0)
    counter.stop_gradient = True
    return counter


def _host_constant(value: float) -> Any:
    return paddle.tensor.fill_constant([1], "float32", value, force_cpu=True)


def _descend(loss: Any, rate: Any) -> None:
    """SGD at a rate that the program computes, which paddle.optimizer no longer takes."""
    for parameter, gradient in paddle.static.append_backward(loss):
        append("sgd", {
            "Param": [parameter],
            "Grad": [gradient],
            "LearningRate": [rate]
        }, {"ParamOut": [parameter]})


def decay_computed_in_the_program() -> Case:
    """rate = 0.5 / (1 + 0.5 floor(step / 2)), from force_cpu constants and a persistable counter."""
    with new_programs() as (main, startup):
        rate = _host_constant(0.5) / (_host_constant(1.0) +
                                      _host_constant(0.5) * paddle.floor(_step_counter() / 2.0))
        loss = square_loss(fc(fc(data("x", -1, 8), 8, "tanh"), 4))
        _descend(loss, rate)
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name, rate.name])


def piecewise_decay_by_switch() -> Case:
    """Switch writes one of three constants into the rate, as piecewise_decay did."""
    with new_programs() as (main, startup):
        counter = _step_counter()
        rate = paddle.static.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
        with Switch() as switch:
            with switch.case(counter < _host_constant(2.0)):
                paddle.assign(_host_constant(0.5), rate)
            with switch.case(counter < _host_constant(4.0)):
                paddle.assign(_host_constant(0.1) * 2.0, rate)
            with switch.default():
                paddle.assign(_host_constant(0.01), rate)
        loss = square_loss(fc(fc(data("x", -1, 8), 8, "tanh"), 4))
        _descend(loss, rate)
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name, rate.name])


def gradient_merge() -> Case:
    """Gradients are summed over two steps in persistables, applied in a branch."""
    with new_programs() as (main, startup):
        loss = square_loss(fc(fc(data("x", -1, 8), 8, "tanh"), 4))
        inner = paddle.optimizer.Momentum(0.1, 0.9)
        paddle.incubate.optimizer.GradientMergeOptimizer(inner, k_steps=2, avg=True).minimize(loss)
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])


def moving_average_of_parameters() -> Case:
    with new_programs() as (main, startup):
        loss = square_loss(fc(fc(data("x", -1, 8), 8, "tanh"), 4))
        train(loss)
        paddle.static.ExponentialMovingAverage(0.9).update()
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])
