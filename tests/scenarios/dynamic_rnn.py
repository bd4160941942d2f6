"""A true LoD DynamicRNN, as programs saved before Paddle 2.0 have it, built from its operators.

The layer is gone from Paddle 2.6.2, its operators are not: sentences are sorted by length
(lod_rank_table), turned into an array with one tensor a time step (lod_tensor_to_array), and a `while`
reads a step, shrinks the memories to the sentences still running, and writes the step's outputs.

Untouched Paddle is wrong from the second run of one executor on: `while_grad` adds each step's gradient
of the input array to what the array holds, and nothing empties the array between runs. So these cases
ask for an executor of its own for each step. `with_emptied_arrays` is the cure, for comparison.
"""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Sequence

import numpy as np
import paddle
from paddle.base import core
from paddle.base.layer_helper import LayerHelper
from paddle.static.nn.control_flow import While

from tests.harness import Case, new_programs

LENGTHS = (7, 2, 5, 9)
DICTIONARY = 30
EMBEDDING = 12
CLASSES = 5

Variable = Any


class DynamicRnn:
    """The loop over the time steps of a LoD tensor; `memory`, `update` and `output` inside `block`."""

    def __init__(self, sequence: Variable):
        self._helper = LayerHelper("dynamic_rnn")
        self._outer = self._helper.main_program.current_block()
        self._rank_table = self._make("rank_table", core.VarDesc.VarType.LOD_RANK_TABLE)
        self._append("lod_rank_table", {"X": [sequence]}, {"Out": [self._rank_table]}, level=0)
        self._length = self._tensor("int64")
        self._append("max_sequence_len", {"RankTable": [self._rank_table]}, {"Out": [self._length]})
        self._zero = paddle.full([1], 0, "int64")
        self._step = paddle.full([1], 0, "int64")
        # Loops count on the host, as the layer did, also where the tensors are on a device.
        self._step.stop_gradient = self._zero.stop_gradient = self._length.stop_gradient = True
        self._running = paddle.less_than(self._step, self._length)
        self._input = self._to_array(sequence)
        self._outputs: List[Variable] = []
        self._updates: Dict[str, Variable] = {}
        self._arrays: Dict[str, Variable] = {}

    @contextmanager
    def block(self) -> Iterator[Variable]:
        """The body of the loop; gives the input of the time step."""
        loop = While(self._running)
        with loop.block():
            step_input = self._read(self._input, self._step)
            step_input.desc.set_shape([-1] + list(self._sequence_shape))
            yield step_input
            paddle.increment(self._step)
            for name, new in self._updates.items():
                self._write(self._arrays[name], new, self._step)
            self._append("less_than", {
                "X": [self._step],
                "Y": [self._length]
            }, {"Out": [self._running]})

    def memory(self, width: int, value: float = 0.0) -> Variable:
        """What the previous step left for the sentences still running; `value` at the first step."""
        like = self._tensor("float32", self._outer)
        self._outer.append_op(type="read_from_array",
                              inputs={
                                  "X": [self._input],
                                  "I": [self._zero]
                              },
                              outputs={"Out": [like]})
        initial = self._tensor("float32", self._outer)
        self._outer.append_op(type="fill_constant_batch_size_like",
                              inputs={"Input": [like]},
                              outputs={"Out": [initial]},
                              attrs={
                                  "shape": [-1, width],
                                  "value": value,
                                  "dtype": initial.dtype,
                                  "input_dim_idx": 0,
                                  "output_dim_idx": 0
                              })
        return self._memory_from(initial, width)

    def memory_of(self, initial: Variable) -> Variable:
        """A memory that starts from one row a sentence."""
        return self._memory_from(self._by_rank(initial), initial.shape[-1])

    def static_input(self, whole: Variable) -> Variable:
        """All of `whole` at each step, for the sentences still running; its LoD shrinks with them."""
        return self._still_running(self._by_rank(whole), whole.shape[-1])

    def _by_rank(self, values: Variable) -> Variable:
        ordered = self._tensor("float32", self._outer)
        self._outer.append_op(type="reorder_lod_tensor_by_rank",
                              inputs={
                                  "X": [values],
                                  "RankTable": [self._rank_table]
                              },
                              outputs={"Out": [ordered]})
        return ordered

    def update(self, memory: Variable, new: Variable) -> None:
        self._updates[memory.name] = new

    def output(self, value: Variable) -> None:
        array = self._array(self._outer)
        self._write(array, value, self._step)
        self._outputs.append(array)

    def results(self) -> List[Variable]:
        """After the loop: each output as a LoD tensor in the order of the sentences fed."""
        return [self._from_array(array) for array in self._outputs]

    def _memory_from(self, initial: Variable, width: int) -> Variable:
        array = self._array(self._outer)
        self._outer.append_op(type="write_to_array",
                              inputs={
                                  "X": [initial],
                                  "I": [self._zero]
                              },
                              outputs={"Out": [array]})
        whole = self._read(array, self._step)
        whole.desc.set_shape([-1, width])
        running = self._still_running(whole, width)
        self._arrays[running.name] = array
        return running

    def _still_running(self, whole: Variable, width: int) -> Variable:
        running = self._tensor("float32")
        self._append("shrink_rnn_memory", {
            "X": [whole],
            "I": [self._step],
            "RankTable": [self._rank_table]
        }, {"Out": [running]})
        running.desc.set_shape([-1, width])
        return running

    def _to_array(self, sequence: Variable) -> Variable:
        self._sequence_shape = sequence.shape[1:]
        array = self._array(self._outer)
        self._append("lod_tensor_to_array", {
            "X": [sequence],
            "RankTable": [self._rank_table]
        }, {"Out": [array]})
        return array

    def _from_array(self, array: Variable) -> Variable:
        sequence = self._tensor("float32")
        self._append("array_to_lod_tensor", {
            "X": [array],
            "RankTable": [self._rank_table]
        }, {"Out": [sequence]})
        return sequence

    def _read(self, array: Variable, index: Variable) -> Variable:
        value = self._tensor("float32")
        self._append("read_from_array", {"X": [array], "I": [index]}, {"Out": [value]})
        return value

    def _write(self, array: Variable, value: Variable, index: Variable) -> None:
        self._append("write_to_array", {"X": [value], "I": [index]}, {"Out": [array]})

    def _append(self, kind: str, inputs: Dict[str, List[Variable]],
                outputs: Dict[str, List[Variable]], **attributes: Any) -> None:
        self._helper.main_program.current_block().append_op(type=kind,
                                                            inputs=inputs,
                                                            outputs=outputs,
                                                            attrs=attributes)

    def _make(self, name: str, kind: Any) -> Variable:
        unique = paddle.utils.unique_name.generate(name)
        return self._outer.create_var(name=unique, type=kind, stop_gradient=True)

    def _tensor(self, dtype: str, block: Any = None) -> Variable:
        block = block or self._helper.main_program.current_block()
        return block.create_var(name=paddle.utils.unique_name.generate("dynamic_rnn.tmp"),
                                dtype=dtype)

    def _array(self, block: Any) -> Variable:
        return block.create_var(name=paddle.utils.unique_name.generate("dynamic_rnn.array"),
                                type=core.VarDesc.VarType.LOD_TENSOR_ARRAY,
                                dtype="float32")


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


def _rnn_layer(sequence: Variable, hidden: int) -> Variable:
    rnn = DynamicRnn(sequence)
    with rnn.block() as word:
        memory = rnn.memory(hidden)
        first = paddle.static.nn.fc([word, memory], hidden, activation="tanh")
        second = paddle.static.nn.fc(first, hidden, activation="tanh")
        rnn.update(memory, second)
        rnn.output(second)
    return rnn.results()[0]


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
