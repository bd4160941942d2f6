"""Recurrent layers: cuDNN-style `rnn`, cells unrolled by while_loop, and the old `recurrent` operator."""
from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle.base import core

from tests.harness import Case, new_programs
from tests.scenarios.common import (append, data, fc, floats, random_feed, square_loss, train)

Variable = Any
TRIPS, BATCH, WIDTH = 4, 3, 8


def _feed() -> Any:
    return random_feed(x=floats(BATCH, TRIPS, WIDTH))


def _layer_case(layer_of: Any) -> Case:
    with new_programs() as (main, startup):
        outputs, _ = layer_of()(data("x", -1, TRIPS, WIDTH))
        loss = square_loss(fc(outputs, 4))
        train(loss, paddle.optimizer.Adam(0.05))
    return Case(main, startup, _feed(), [loss.name])


def lstm() -> Case:
    return _layer_case(lambda: paddle.nn.LSTM(WIDTH, WIDTH, num_layers=2))


def gru_in_both_directions() -> Case:
    return _layer_case(lambda: paddle.nn.GRU(WIDTH, WIDTH, direction="bidirect"))


def gru_cell_unrolled_by_rnn() -> Case:
    with new_programs() as (main, startup):
        cell = paddle.nn.RNN(paddle.nn.GRUCell(WIDTH, WIDTH))
        # From a batch of -1 the layer cannot make the first state itself.
        start = paddle.full([BATCH, WIDTH], 0.1)
        outputs, _ = cell(data("x", BATCH, TRIPS, WIDTH), start)
        loss = square_loss(outputs)
        train(loss)
    return Case(main, startup, _feed(), [loss.name])


def lstm_with_sequence_lengths() -> Case:
    with new_programs() as (main, startup):
        lengths = data("lengths", -1, dtype="int64")
        layer = paddle.nn.LSTM(WIDTH, WIDTH)
        outputs, _ = layer(data("x", -1, TRIPS, WIDTH), sequence_length=lengths)
        loss = square_loss(fc(outputs, 4))
        train(loss)
    feed = lambda step: dict(_feed()(step), lengths=np.array([4, 2, 3], "int64"))
    return Case(main, startup, feed, [loss.name])


def recurrent_operator() -> Case:
    """`recurrent` links names of its block to slices, states and outputs by attribute strings."""
    with new_programs() as (main, startup):
        sequence = fc_over_steps(data("sequence", TRIPS, BATCH, WIDTH))
        start = paddle.tanh(paddle.mean(sequence, axis=0))
        weight = paddle.create_parameter([WIDTH, WIDTH], "float32")
        outputs = _recurrent(main, sequence, start, weight)
        loss = square_loss(fc(outputs, 4))
        train(loss)
    return Case(main, startup, random_feed(sequence=floats(TRIPS, BATCH, WIDTH)), [loss.name])


def fc_over_steps(sequence: Variable) -> Variable:
    return paddle.static.nn.fc(sequence, WIDTH, num_flatten_dims=2, activation="tanh")


def _recurrent(main: Any, sequence: Variable, start: Variable, weight: Variable) -> Variable:
    body = main._create_block()
    now = body.create_var(name=sequence.name, shape=sequence.shape[1:], dtype="float32")
    before = body.create_var(name="state_before", shape=start.shape, dtype="float32")
    mixed = paddle.matmul(before, weight)
    side = paddle.exp(paddle.scale(mixed, 0.1))
    state = body.create_var(name="state", shape=start.shape, dtype="float32")
    append("tanh", {"X": [mixed + now * side]}, {"Out": [state]})
    main._rollback()
    block = main.current_block()
    outputs = block.create_var(name="state", shape=sequence.shape, dtype="float32")
    scopes = block.create_var(name="recurrent_scopes", type=core.VarDesc.VarType.STEP_SCOPES)
    block.append_op(type="recurrent",
                    inputs={
                        "inputs": [sequence],
                        "initial_states": [start],
                        "parameters": [weight]
                    },
                    outputs={
                        "outputs": [outputs],
                        "step_scopes": [scopes]
                    },
                    attrs={
                        "has_states": True,
                        "ex_states": [before.name],
                        "states": [state.name],
                        "sub_block": body,
                        "is_train": True,
                        "reverse": False
                    })
    return outputs
