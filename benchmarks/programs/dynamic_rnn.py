"""A true LoD DynamicRNN, as programs saved before Paddle 2.0 have it, built from its operators.

The layer is gone from Paddle 2.6.2, its operators are not: sentences are sorted by length (lod_rank_table), turned into an
array with one tensor a time step (lod_tensor_to_array), and a `while` reads a step, shrinks the memories to the sentences
still running, and writes the step's outputs.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List

import numpy as np
import paddle
from paddle.base import core
from paddle.base.layer_helper import LayerHelper
from paddle.static.nn.control_flow import While

from benchmarks.programs.case import Case, Feed, Options, make_optimizer, pick

_WORDS, _EMBEDDING, _CLASSES = 30, 12, 5

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


def dynamic_rnn(options: Options) -> Case:
    """LoD DynamicRNN of two hidden layers, 64 sentences of 20 to 50 words, width 64; the first run counts."""
    sentences, longest = pick(options.batch_size, 64), pick(options.length, 50)
    width, vocabulary = pick(options.width, 64), pick(options.vocabulary, _WORDS)
    classes = pick(options.classes, _CLASSES)
    random = np.random.RandomState(options.seed)
    lengths = [longest, *random.randint(max(1, longest * 2 // 5), longest + 1, [sentences - 1])]
    paddle.enable_static()
    paddle.seed(options.seed)
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        words = paddle.static.data("words", [-1], "int64", lod_level=1)
        label = paddle.static.data("label", [-1, 1], "int64")
        embedded = paddle.static.nn.embedding(words, [vocabulary, _EMBEDDING])
        states = two_hidden_layers(paddle.static.nn.fc(embedded, width, activation="tanh"), width)
        logits = paddle.static.nn.fc(paddle.static.nn.sequence_last_step(states), classes)
        loss = paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(logits, label))
        if not options.inference:
            make_optimizer(options.optimizer).minimize(loss)

    def feed(step: int) -> Feed:
        dice = np.random.RandomState(1000 * options.seed + step)
        drawn = dice.randint(0, vocabulary, [sum(lengths)]).astype("int64")
        tensor = paddle.base.create_lod_tensor(drawn, [list(map(int, lengths))], paddle.CPUPlace())
        return {"words": tensor, "label": dice.randint(0, classes, [sentences, 1]).astype("int64")}

    return Case(main=main.clone(for_test=True) if options.inference else main,
                startup=startup,
                feed=feed,
                fetch=(loss.name,),
                batch_size={
                    "words": int(sum(lengths)),
                    "label": sentences
                },
                trip_count=longest,
                training=not options.inference,
                fresh_executor=True)


def two_hidden_layers(sequence: Variable, hidden: int) -> Variable:
    """A state a word: two layers of the word and the state before it."""
    rnn = DynamicRnn(sequence)
    with rnn.block() as word:
        memory = rnn.memory(hidden)
        first = paddle.static.nn.fc([word, memory], hidden, activation="tanh")
        second = paddle.static.nn.fc(first, hidden, activation="tanh")
        rnn.update(memory, second)
        rnn.output(second)
    return rnn.results()[0]
