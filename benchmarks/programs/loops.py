"""Programs trained through while_grad and conditional_block_grad.

A sequence is one tensor [trips, batch, width] that each trip reads by `gather`. Its first dimension
is concrete and so is the number of trips: the batch is the only symbolic dimension.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List

import paddle
import paddle.nn.functional as F
from paddle import static

from benchmarks.programs.case import Case, Draft, Options, drafting, pick

Cell = Callable[[Any, Any], Any]


def _weight(*shape: int) -> Any:
    return paddle.create_parameter(list(shape), "float32")


def _counter(value: int) -> Any:
    return paddle.full([], value, dtype="int64")


def _zero_state(like: Any) -> Any:
    """A state of zeros with a gradient: a constant would cut the loop off."""
    state = paddle.zeros_like(like)
    state.stop_gradient = False
    return state


def _repeat(trips: int, cell: Callable[[Any, Any], Any], state: Any) -> Any:
    """`state = cell(i, state)` for i in [0, trips), as a while_loop."""
    limit = _counter(trips)

    def body(index: Any, carried: Any) -> List[Any]:
        return [index + 1, cell(index, carried)]

    return static.nn.while_loop(lambda index, carried: index < limit, body, [_counter(0), state])[1]


def _dropped(value: Any, options: Options) -> Any:
    """Dropout inside the cell, where the options ask for it."""
    if not options.dropout:
        return value
    return F.dropout(value, options.dropout, training=not options.inference)


@dataclass(frozen=True)
class Dense:
    """The cell of the plain loop: h = tanh(a) * sigmoid(a) with a = xW + hU."""
    input_weight: Any
    state_weight: Any
    options: Options

    def __call__(self, x: Any, state: Any) -> Any:
        mixed = paddle.matmul(x, self.input_weight) + paddle.matmul(state, self.state_weight)
        return _dropped(paddle.tanh(mixed) * F.sigmoid(mixed), self.options)


def _dense(options: Options, width: int) -> Dense:
    return Dense(_weight(width, width), _weight(width, width), options)


def _end(draft: Draft, state: Any) -> Case:
    return draft.finish(paddle.mean(state * state), [state])


def loop(options: Options) -> Case:
    """80 trips over [80, 64, 256]: body of gather, 2 matmul, add, tanh, sigmoid, mul."""
    trips, width = pick(options.trip_count, 80), pick(options.width, 256)
    with drafting(options, batch_size=64, trip_count=trips) as draft:
        sequence = draft.floats("x", [trips, draft.batch_size, width], batch_axis=1)
        cell = _dense(options, width)
        start = _zero_state(paddle.gather(sequence, _counter(0)))
        return _end(
            draft,
            _repeat(trips, lambda index, state: cell(paddle.gather(sequence, index), state), start))


@dataclass(frozen=True)
class Gru:
    """A gated recurrent unit written out in elementary ops."""
    input_weight: Any
    state_weight: Any
    bias: Any
    options: Options

    def __call__(self, x: Any, state: Any) -> Any:
        from_x = paddle.matmul(x, self.input_weight) + self.bias
        x_reset, x_update, x_new = paddle.split(from_x, 3, axis=-1)
        s_reset, s_update, s_new = paddle.split(paddle.matmul(state, self.state_weight), 3, axis=-1)
        reset, update = F.sigmoid(x_reset + s_reset), F.sigmoid(x_update + s_update)
        new = _dropped(paddle.tanh(x_new + reset * s_new), self.options)
        return update * state + (1.0 - update) * new


def _gru(options: Options, input_width: int, width: int) -> Gru:
    return Gru(_weight(input_width, 3 * width), _weight(width, 3 * width), _weight(3 * width),
               options)


def gru_loop(options: Options) -> Case:
    """A GRU cell over 48 trips, batch 64, width 192, the sequence read by gather."""
    trips, width = pick(options.trip_count, 48), pick(options.width, 192)
    with drafting(options, batch_size=64, trip_count=trips) as draft:
        sequence = draft.floats("x", [trips, draft.batch_size, width], batch_axis=1)
        cell = _gru(options, width, width)
        start = _zero_state(paddle.gather(sequence, _counter(0)))
        return _end(
            draft,
            _repeat(trips, lambda index, state: cell(paddle.gather(sequence, index), state), start))


@dataclass(frozen=True)
class Attention:
    """Additive attention of a state over keys [batch, length, width]; gives a context vector."""
    query_weight: Any
    score_weight: Any
    keys: Any
    memory: Any

    def __call__(self, state: Any) -> Any:
        query = paddle.unsqueeze(paddle.matmul(state, self.query_weight), 1)
        scores = paddle.matmul(paddle.tanh(self.keys + query), self.score_weight)
        return paddle.sum(self.memory * F.softmax(scores, axis=1), axis=1)


def attention_loop(options: Options) -> Case:
    """24 trips of a GRU cell with attention over a sequence of 24, batch 16, width 128."""
    trips, width = pick(options.trip_count, 24), pick(options.width, 128)
    length = pick(options.length, trips)
    with drafting(options, batch_size=16, trip_count=trips) as draft:
        memory = draft.floats("memory", [draft.batch_size, length, width])
        targets = draft.floats("x", [trips, draft.batch_size, width], batch_axis=1)
        attend = Attention(_weight(width, width), _weight(width, 1),
                           paddle.matmul(memory, _weight(width, width)), memory)
        cell = _gru(options, 2 * width, width)

        def step(index: Any, state: Any) -> Any:
            word = paddle.gather(targets, index)
            return cell(paddle.concat([word, attend(state)], axis=-1), state)

        start = _zero_state(paddle.gather(targets, _counter(0)))
        return _end(draft, _repeat(trips, step, start))


def nested_loops(options: Options) -> Case:
    """12 trips, each of them 4 inner trips (`layers`) of the dense cell; batch 32, width 128."""
    trips, width = pick(options.trip_count, 12), pick(options.width, 128)
    inner_trips = pick(options.layers, 4)
    with drafting(options, batch_size=32, trip_count={1: trips, 2: inner_trips}) as draft:
        sequence = draft.floats("x", [trips, draft.batch_size, width], batch_axis=1)
        cell = _dense(options, width)

        def step(index: Any, state: Any) -> Any:
            word = paddle.gather(sequence, index)
            return _repeat(inner_trips, lambda _, inner: cell(word, inner), state)

        start = _zero_state(paddle.gather(sequence, _counter(0)))
        return _end(draft, _repeat(trips, step, start))


def loop_in_cond(options: Options) -> Case:
    """The dense loop, 24 trips, batch 32, width 128, taken or not as the fed data decides."""
    trips, width = pick(options.trip_count, 24), pick(options.width, 128)
    with drafting(options, batch_size=32, trip_count=trips) as draft:
        sequence = draft.floats("x", [trips, draft.batch_size, width], batch_axis=1)
        choice = draft.integers("choice", [1], below=4, batch_axis=None)
        cell = _dense(options, width)
        start = _zero_state(paddle.gather(sequence, _counter(0)))
        skip = _weight(width, width)

        def long_way() -> Any:
            return _repeat(trips, lambda index, state: cell(paddle.gather(sequence, index), state),
                           start)

        def short_way() -> Any:
            return paddle.tanh(paddle.matmul(paddle.gather(sequence, _counter(0)), skip))

        return _end(draft, static.nn.cond(paddle.sum(choice) < 3, long_way, short_way))


def cond_in_loop(options: Options) -> Case:
    """24 trips, batch 32, width 128: even trips gate the state, odd ones do not.

    The matmuls stand outside the branches because Paddle 2.6.2 loses gradients of parameters that
    a branch inside a loop reads (see `weights_in_cond_in_loop`).
    """
    trips, width = pick(options.trip_count, 24), pick(options.width, 128)
    with drafting(options, batch_size=32, trip_count=trips) as draft:
        sequence = draft.floats("x", [trips, draft.batch_size, width], batch_axis=1)
        input_weight, state_weight = _weight(width, width), _weight(width, width)

        def step(index: Any, state: Any) -> Any:
            word = paddle.gather(sequence, index)
            mixed = paddle.matmul(word, input_weight) + paddle.matmul(state, state_weight)
            return static.nn.cond(index % 2 == 0,
                                  lambda: _dropped(paddle.tanh(mixed) * F.sigmoid(mixed), options),
                                  lambda: paddle.tanh(mixed))

        start = _zero_state(paddle.gather(sequence, _counter(0)))
        return _end(draft, _repeat(trips, step, start))


def weights_in_cond_in_loop(options: Options) -> Case:
    """24 trips, batch 32, width 128: even trips take the dense cell, odd ones a plain tanh layer.

    Its gradients are wrong in untouched Paddle 2.6.2: a branch not taken in the first trip of the
    gradient loop gives its parameters no gradient at all. It is here for byte equality only.
    """
    trips, width = pick(options.trip_count, 24), pick(options.width, 128)
    with drafting(options, batch_size=32, trip_count=trips) as draft:
        sequence = draft.floats("x", [trips, draft.batch_size, width], batch_axis=1)
        cell, other = _dense(options, width), _weight(width, width)

        def step(index: Any, state: Any) -> Any:
            word = paddle.gather(sequence, index)
            return static.nn.cond(index % 2 == 0, lambda: cell(word, state),
                                  lambda: paddle.tanh(paddle.matmul(state, other)))

        start = _zero_state(paddle.gather(sequence, _counter(0)))
        return _end(draft, _repeat(trips, step, start))
