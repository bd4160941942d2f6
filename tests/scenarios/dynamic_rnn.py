"""Programs of LoD DynamicRNNs; benchmarks/programs/dynamic_rnn.py says what these are.

Untouched Paddle is wrong from the second run of one executor on: `while_grad` adds each step's gradient
of the input array to what the array holds, and nothing empties the array between runs. So these cases
ask for an executor of its own for each step. `with_emptied_arrays` is the cure, for comparison.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Sequence

import numpy as np
import paddle
from paddle.base import core

from benchmarks.programs.dynamic_rnn import DynamicRnn, two_hidden_layers as _rnn_layer
from tests.harness import Case, new_programs

LENGTHS = (7, 2, 5, 9)
DICTIONARY = 30
EMBEDDING = 12
CLASSES = 5

Variable = Any


def with_emptied_arrays(case: Case) -> Case:
    """The same program, all its arrays emptied at the start of each run: one executor will do."""
    block = case.main.global_block()
    arrays = [
        var for var in block.vars.values() if var.type == core.VarDesc.VarType.LOD_TENSOR_ARRAY
    ]
    empty = block.create_var(name="empty_array",
                             type=core.VarDesc.VarType.LOD_TENSOR_ARRAY,
                             dtype="float32")
    for array in arrays:
        block._insert_op(0, type="assign", inputs={"X": [empty]}, outputs={"Out": [array]})
    return replace(case, fresh_executor=False)


def feed_sentences(step: int, lengths: Sequence[int] = LENGTHS) -> Dict[str, Any]:
    rng = np.random.RandomState(100 + step)
    words = rng.randint(0, DICTIONARY, [sum(lengths)]).astype("int64")
    labels = rng.randint(0, CLASSES, [len(lengths), 1]).astype("int64")
    return {
        "words": paddle.base.create_lod_tensor(words, [list(lengths)], paddle.CPUPlace()),
        "label": labels,
    }


def two_hidden_layers(hidden: int = 16, clip: bool = False) -> Case:
    """Two hidden layers inside the block, an fc before it: the program of the 2018 pull request."""
    with new_programs() as (main, startup):
        embedded = _embedded_words()
        projected = paddle.static.nn.fc(embedded, hidden, activation="tanh")
        states = _rnn_layer(projected, hidden)
        loss = _classify(states)
        _sgd(clip).minimize(loss)
    return Case(main, startup, feed_sentences, [loss.name], fresh_executor=True)


def stacked(hidden: int = 8) -> Case:
    """The sequence that one DynamicRNN gives is the input of the next."""
    with new_programs() as (main, startup):
        lower = _rnn_layer(paddle.static.nn.fc(_embedded_words(), hidden), hidden)
        upper = _rnn_layer(paddle.static.nn.fc(lower, hidden), hidden)
        loss = _classify(upper)
        _sgd(False).minimize(loss)
    return Case(main, startup, feed_sentences, [loss.name], fresh_executor=True)


def initialised_memory(hidden: int = 8) -> Case:
    """The memory starts from a dense row a sentence, reordered by rank: dense next to LoD buffers."""
    with new_programs() as (main, startup):
        embedded = _embedded_words()
        projected = paddle.static.nn.fc(embedded, hidden)
        start = paddle.static.nn.fc(paddle.static.nn.sequence_last_step(embedded),
                                    hidden,
                                    activation="tanh")
        rnn = DynamicRnn(projected)
        with rnn.block() as word:
            memory = rnn.memory_of(start)
            state = paddle.tanh(paddle.static.nn.fc(memory, hidden) + word)
            rnn.update(memory, state)
            rnn.output(state)
        loss = _classify(rnn.results()[0])
        _sgd(False).minimize(loss)
    return Case(main, startup, feed_sentences, [loss.name], fresh_executor=True)


def static_input_beside_dense_values(hidden: int = 8) -> Case:
    """Each step pools a LoD input that is whole at every step, and dense values of its size follow: a stale LoD on one of
    them made the loop's kernels read past its end."""
    with new_programs() as (main, startup):
        words = paddle.static.nn.fc(_embedded_words(), hidden)
        context = paddle.exp(paddle.tanh(words))
        dense = paddle.tanh(paddle.scale(context, 0.5))
        rnn = DynamicRnn(words)
        with rnn.block() as word:
            memory = rnn.memory(hidden)
            pooled = paddle.static.nn.sequence_pool(rnn.static_input(context), "sum")
            state = paddle.tanh(paddle.static.nn.fc([memory, pooled], hidden) + word)
            rnn.update(memory, state)
            rnn.output(state)
        loss = _classify(rnn.results()[0]) + paddle.mean(dense)
        _sgd(False).minimize(loss)
    return Case(main, startup, feed_sentences, [loss.name], fresh_executor=True)


def inference(hidden: int = 16) -> Case:
    """The same loop without a gradient, on one executor."""
    with new_programs() as (main, startup):
        states = _rnn_layer(paddle.static.nn.fc(_embedded_words(), hidden), hidden)
        score = paddle.nn.functional.softmax(
            paddle.static.nn.fc(paddle.static.nn.sequence_last_step(states), CLASSES))
    words_only = lambda step: {"words": feed_sentences(step)["words"]}
    return Case(main, startup, words_only, [score.name, states.name])


def _embedded_words() -> Variable:
    words = paddle.static.data("words", [-1], "int64", lod_level=1)
    return paddle.static.nn.embedding(words, [DICTIONARY, EMBEDDING])


def _classify(states: Variable) -> Variable:
    label = paddle.static.data("label", [-1, 1], "int64")
    last = paddle.static.nn.sequence_last_step(states)
    logits = paddle.static.nn.fc(last, CLASSES)
    return paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(logits, label))


def _sgd(clip: bool) -> Any:
    bound = paddle.nn.ClipGradByGlobalNorm(1.0) if clip else None
    return paddle.optimizer.SGD(0.5, grad_clip=bound)


def with_fresh_executors(case: Case) -> Case:
    return replace(case, fresh_executor=True)
