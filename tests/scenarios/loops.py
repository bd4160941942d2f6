"""`while`: trained through `while_grad`, and for inference (is_test)."""
from __future__ import annotations

from typing import Any, Callable, List

import numpy as np
import paddle
import paddle.nn.functional as F

from tests.harness import Case, new_programs
from tests.scenarios.common import (append, data, fc, floats, named, random_feed, square_loss,
                                    train)

Variable = Any
TRIPS, BATCH, WIDTH = 4, 3, 8


def _count_up(trips: Any,
              body: Callable[..., List[Variable]],
              state: List[Variable],
              is_test: bool = False) -> List[Variable]:
    """Runs `body(i, *state)` for i in range(trips); gives the last state."""
    index = paddle.full([1], 0, "int64")
    limit = trips if hasattr(trips, "name") else paddle.full([1], trips, "int64")

    def step(i: Variable, *values: Variable) -> List[Variable]:
        new = body(i, *values)
        return [paddle.increment(i)] + new

    return paddle.static.nn.while_loop(lambda i, *_: i < limit,
                                       step, [index] + state,
                                       is_test=is_test)[1:]


def _weights(*shape: int) -> Variable:
    return paddle.create_parameter(list(shape), "float32")


def _sequence() -> Variable:
    return data("sequence", TRIPS, -1, WIDTH)


def _start(value: float = 0.1) -> Variable:
    start = paddle.full([BATCH, WIDTH], value)
    # A loop writes its state onto this variable, and a constant would stop the gradient of it.
    start.stop_gradient = False
    return start


def _feed() -> Callable[[int], dict]:
    return random_feed(sequence=floats(TRIPS, BATCH, WIDTH))


def _trained(state: Variable, optimizer: Any = None) -> str:
    loss = square_loss(state)
    train(loss, optimizer)
    kinds = {op.type for block in loss.block.program.blocks for op in block.ops}
    assert "while_grad" in kinds, "the scenario is about training through a loop"
    return loss.name


def gathered_sequence() -> Case:
    """The loop of runtime-facts: gather a step, two matmuls, a few elementwise operators."""
    with new_programs() as (main, startup):
        sequence, inner, outer = _sequence(), _weights(WIDTH, WIDTH), _weights(WIDTH, WIDTH)

        def body(i: Variable, state: Variable) -> List[Variable]:
            now = paddle.squeeze(paddle.gather(sequence, i), [0])
            mixed = paddle.matmul(state, inner) + paddle.matmul(now, outer)
            return [paddle.tanh(mixed) * F.sigmoid(mixed)]

        loss = _trained(_count_up(TRIPS, body, [_start()])[0])
    return Case(main, startup, _feed(), [loss])


def dropout_in_the_body() -> Case:
    with new_programs() as (main, startup):
        sequence, inner = _sequence(), _weights(WIDTH, WIDTH)

        def body(i: Variable, state: Variable) -> List[Variable]:
            now = paddle.squeeze(paddle.gather(sequence, i), [0])
            return [F.dropout(paddle.tanh(paddle.matmul(state, inner) + now), 0.3)]

        loss = _trained(_count_up(TRIPS, body, [_start()])[0])
    return Case(main, startup, _feed(), [loss])


def captured_temporaries_of_the_main_block() -> Case:
    """The body reads values that the main block computed, made of ones of the same size that died."""
    with new_programs() as (main, startup):
        sequence = _sequence()
        outside = fc(paddle.mean(sequence, axis=0), WIDTH, "tanh")
        context = paddle.exp(paddle.scale(outside, 0.5))

        def body(i: Variable, state: Variable) -> List[Variable]:
            now = paddle.squeeze(paddle.gather(sequence, i), [0])
            return [paddle.tanh(fc(state, WIDTH) + now * context)]

        state = _count_up(TRIPS, body, [_start()])[0]
        after = paddle.exp(paddle.tanh(state))
        loss = _trained(after)
    return Case(main, startup, _feed(), [loss])


def gradient_reads_undeclared_inputs() -> Case:
    """The body's gradient needs `context` and step-scope temporaries that while_grad does not declare."""
    with new_programs() as (main, startup):
        sequence = _sequence()
        context = paddle.exp(fc(paddle.mean(sequence, axis=0), WIDTH))
        scratch = paddle.tanh(paddle.scale(context, 0.5))

        def body(i: Variable, state: Variable) -> List[Variable]:
            first = paddle.multiply(state, context)
            second = paddle.exp(paddle.scale(first, -0.1))
            third = paddle.multiply(second, paddle.tanh(first))
            return [paddle.divide(third, context + 2.0)]

        state = _count_up(TRIPS, body, [_start()])[0]
        loss = _trained(state + paddle.mean(scratch))
    return Case(main, startup, _feed(), [loss])


def number_of_trips_is_fed() -> Case:
    with new_programs() as (main, startup):
        trips = data("trips", 1, dtype="int64")
        scale = _weights(WIDTH, WIDTH)
        start = fc(data("x", -1, WIDTH), WIDTH)
        body = lambda i, state: [paddle.tanh(paddle.matmul(state, scale)) + 0.1]
        loss = _trained(_count_up(trips, body, [start])[0])

    def feed(step: int) -> dict:
        trips = np.array([(3, 1, 5, 2, 4)[step % 5]], "int64")
        return dict(random_feed(x=floats(BATCH, WIDTH))(step), trips=trips)

    return Case(main, startup, feed, [loss])


def zero_trips_without_gradient() -> Case:
    with new_programs() as (main, startup):
        trips = data("trips", 1, dtype="int64")
        start = paddle.exp(data("x", -1, WIDTH))
        body = lambda i, state: [paddle.tanh(paddle.exp(paddle.scale(state, 0.1)))]
        state = _count_up(trips, body, [start], is_test=True)[0]
        total = paddle.mean(paddle.exp(state))

    def feed(step: int) -> dict:
        return dict(random_feed(x=floats(BATCH, WIDTH))(step),
                    trips=np.array([step % 2 * 3], "int64"))

    return Case(main, startup, feed, [total.name])


def two_states_swapped() -> Case:
    """Each trip hands one loop-carried value over to the other."""
    with new_programs() as (main, startup):
        sequence, weight = _sequence(), _weights(WIDTH, WIDTH)

        def body(i: Variable, left: Variable, right: Variable) -> List[Variable]:
            now = paddle.squeeze(paddle.gather(sequence, i), [0])
            return [right + now, paddle.tanh(paddle.matmul(left, weight))]

        left, right = _count_up(TRIPS, body, [_start(), _start(0.2)])
        loss = _trained(left + right * 2.0)
    return Case(main, startup, _feed(), [loss])


def nested() -> Case:
    with new_programs() as (main, startup):
        sequence, weight = _sequence(), _weights(WIDTH, WIDTH)

        def outer(i: Variable, state: Variable) -> List[Variable]:
            inner = lambda j, value: [paddle.tanh(paddle.matmul(value, weight))]
            now = paddle.squeeze(paddle.gather(sequence, i), [0])
            return [_count_up(2, inner, [state + now])[0]]

        loss = _trained(_count_up(TRIPS, outer, [_start()])[0])
    return Case(main, startup, _feed(), [loss])


def nested_captures_temporary_of_the_outer_body() -> Case:
    """`gate` is a temporary of the outer body and is read by the inner one on each of its trips."""
    with new_programs() as (main, startup):
        sequence, weight = _sequence(), _weights(WIDTH, WIDTH)

        def outer(i: Variable, state: Variable) -> List[Variable]:
            now = paddle.squeeze(paddle.gather(sequence, i), [0])
            gate = F.sigmoid(paddle.exp(paddle.scale(now, 0.5)))
            side = paddle.tanh(paddle.scale(gate, 2.0))
            inner = lambda j, value: [paddle.tanh(paddle.matmul(value, weight)) * gate]
            return [_count_up(2, inner, [state + side])[0]]

        loss = _trained(_count_up(TRIPS, outer, [_start()])[0])
    return Case(main, startup, _feed(), [loss])


def nested_without_gradient() -> Case:
    with new_programs() as (main, startup):
        sequence = _sequence()

        def outer(i: Variable, state: Variable) -> List[Variable]:
            now = paddle.squeeze(paddle.gather(sequence, i), [0])
            gate = F.sigmoid(paddle.exp(paddle.scale(now, 0.5)))
            inner = lambda j, value: [paddle.tanh(paddle.exp(value)) * gate]
            return [_count_up(2, inner, [paddle.exp(paddle.tanh(state)) + now], True)[0]]

        total = paddle.mean(_count_up(TRIPS, outer, [_start()], True)[0])
    return Case(main, startup, _feed(), [total.name])


def inside_a_branch() -> Case:
    with new_programs() as (main, startup):
        sequence, weight = _sequence(), _weights(WIDTH, WIDTH)
        base = fc(paddle.mean(sequence, axis=0), WIDTH)
        body = lambda i, state: [paddle.tanh(paddle.matmul(state, weight) + base)]
        state = paddle.static.nn.cond(
            paddle.mean(sequence) > 0, lambda: _count_up(TRIPS, body, [paddle.exp(base)])[0],
            lambda: paddle.tanh(base))
        loss = _trained(state)
    return Case(main, startup, _feed(), [loss])


def branch_inside() -> Case:
    with new_programs() as (main, startup):
        sequence, weight = _sequence(), _weights(WIDTH, WIDTH)

        def body(i: Variable, state: Variable) -> List[Variable]:
            now = paddle.squeeze(paddle.gather(sequence, i), [0])
            mixed = paddle.matmul(state, weight) + now
            return [
                paddle.static.nn.cond(
                    paddle.mean(now) > 0, lambda: paddle.tanh(mixed) * 2.0,
                    lambda: F.sigmoid(mixed) + now)
            ]

        loss = _trained(_count_up(TRIPS, body, [_start()])[0])
    return Case(main, startup, _feed(), [loss])


def attention_at_each_step() -> Case:
    """Additive attention over the whole sequence: each trip makes a value as large as the sequence."""
    with new_programs() as (main, startup):
        sequence, weight = _sequence(), _weights(WIDTH, WIDTH)
        keys = paddle.static.nn.fc(sequence, WIDTH, num_flatten_dims=2)
        head = _weights(WIDTH, 1)

        def body(i: Variable, state: Variable) -> List[Variable]:
            query = paddle.unsqueeze(paddle.matmul(state, weight), [0])
            scores = F.softmax(paddle.matmul(paddle.tanh(keys + query), head), axis=0)
            context = paddle.sum(scores * sequence, axis=0)
            return [paddle.tanh(paddle.matmul(context, weight) + state)]

        loss = _trained(_count_up(3, body, [_start()])[0], paddle.optimizer.Adam(0.05))
    return Case(main, startup, _feed(), [loss])


def array_of_outputs() -> Case:
    """Every trip writes its state to an array, which is stacked behind the loop."""
    return _written_to_an_array(_stacked)


def array_read_one_by_one() -> Case:
    return _written_to_an_array(_read_one_by_one)


def _written_to_an_array(used: Callable[[Variable], Variable]) -> Case:
    """Every trip writes its state to an array, of which `used` makes something behind the loop.

    No operator writes the last state's gradient, which while_grad reads: it must be absent. On one
    executor that holds, untouched Paddle finds the previous run's there, so each step has its own.
    """
    with new_programs() as (main, startup):
        sequence, weight = _sequence(), _weights(WIDTH, WIDTH)
        outputs = paddle.tensor.create_array("float32")
        first = paddle.full([1], 0, "int64")
        outputs = paddle.tensor.array_write(_start(), first, outputs)

        def body(i: Variable, state: Variable, array: Variable) -> List[Variable]:
            now = paddle.squeeze(paddle.gather(sequence, i), [0])
            new = paddle.tanh(paddle.matmul(state, weight) + now)
            return [new, paddle.tensor.array_write(new, i + 1, array)]

        _, outputs = _count_up(TRIPS, body, [_start(), outputs])
        loss = _trained(used(outputs))
    return Case(main, startup, _feed(), [loss], fresh_executor=True)


def _stacked(array: Variable) -> Variable:
    return paddle.tensor.manipulation.tensor_array_to_tensor(array, axis=0, use_stack=True)[0]


def _read_one_by_one(array: Variable) -> Variable:
    read = lambda at: paddle.tensor.array_read(array, paddle.full([1], at, "int64"))
    return paddle.add_n([paddle.tanh(read(at)) for at in range(TRIPS + 1)])


def beam_search() -> Case:
    """An inference loop as translators have it: scores, top-k, parents, and arrays of ids."""
    beams, words = 3, 7
    with new_programs() as (main, startup):
        table, weight = _weights(words, WIDTH), _weights(WIDTH, words)
        start = paddle.tanh(fc(data("x", beams, WIDTH), WIDTH))
        zero = paddle.full([1], 0, "int64")
        scores = paddle.full([beams, 1], 0.0)
        ids = paddle.tensor.array_write(paddle.full([beams], 0, "int64"), zero)
        parents = paddle.tensor.array_write(paddle.full([beams], 0, "int64"), zero)

        def body(i: Variable, state: Variable, total: Variable, chosen: Variable,
                 came_from: Variable) -> List[Variable]:
            word = paddle.gather(table, paddle.tensor.array_read(chosen, i))
            hidden = paddle.tanh(state + word)
            logs = paddle.log(F.softmax(paddle.matmul(hidden, weight))) + total
            best, where = paddle.topk(paddle.reshape(logs, [1, beams * words]), k=beams)
            parent = paddle.reshape(where // words, [beams])
            chosen = paddle.tensor.array_write(paddle.reshape(where % words, [beams]), i + 1,
                                               chosen)
            came_from = paddle.tensor.array_write(parent, i + 1, came_from)
            return [
                paddle.gather(hidden, parent),
                paddle.reshape(best, [beams, 1]), chosen, came_from
            ]

        _, scores, ids, parents = _count_up(4, body, [start, scores, ids, parents], is_test=True)
        sentence, _ = paddle.tensor.manipulation.tensor_array_to_tensor(ids, axis=0, use_stack=True)
        tree, _ = paddle.tensor.manipulation.tensor_array_to_tensor(parents, axis=0, use_stack=True)
    feed = random_feed(x=floats(beams, WIDTH))
    return Case(main, startup, feed, [scores.name, sentence.name, tree.name])


def in_place_writes_in_the_body() -> Case:
    """A temporary of the body is overwritten in place between two of its readers."""
    with new_programs() as (main, startup):
        sequence = _sequence()

        def body(i: Variable, state: Variable) -> List[Variable]:
            now = paddle.squeeze(paddle.gather(sequence, i), [0])
            mixed = paddle.scale(state + now, 0.5)
            before = paddle.tanh(mixed)
            append("relu", {"X": [mixed]}, {"Out": [mixed]})
            scratch = named("scratch", mixed)
            append("exp", {"X": [mixed]}, {"Out": [scratch]})
            append("scale", {"X": [scratch]}, {"Out": [scratch]}, scale=0.1)
            return [before + mixed + scratch]

        total = paddle.mean(_count_up(TRIPS, body, [_start()], is_test=True)[0])
    return Case(main, startup, _feed(), [total.name])


def two_loops_in_a_row() -> Case:
    """The second loop may use what the first one left free, but not what its gradient still needs."""
    with new_programs() as (main, startup):
        sequence, first, second = _sequence(), _weights(WIDTH, WIDTH), _weights(WIDTH, WIDTH)

        def layer(weight: Variable) -> Callable[..., List[Variable]]:
            return lambda i, state: [
                paddle.tanh(
                    paddle.matmul(state, weight) + paddle.squeeze(paddle.gather(sequence, i), [0]))
            ]

        middle = _count_up(TRIPS, layer(first), [_start()])[0]
        between = paddle.exp(paddle.scale(paddle.tanh(middle), 0.5))
        loss = _trained(_count_up(TRIPS, layer(second), [between])[0])
    return Case(main, startup, _feed(), [loss])
