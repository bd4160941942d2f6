"""What MXNet's backward mirroring was tested on (its pull request 18228), and a chain that it can't segment.

What it calls variables are parameters here: their memory rests, and they get gradients.
"""
from __future__ import annotations

from typing import Any, List

import paddle
import paddle.nn.functional as F
from paddle import nn, static

from benchmarks.programs.case import Case, Options, drafting, pick


def _parameter(shape: List[int], scale: float = 0.1) -> Any:
    return paddle.create_parameter(shape,
                                   "float32",
                                   default_initializer=nn.initializer.Normal(0.0, scale))


def rnn_cell(options: Options) -> Case:
    """Mirroring's case 1: x and y of 4096, each through a product to (4096, 4096), their sum, tanh."""
    width = pick(options.width, 4096)
    with drafting(options, batch_size=4096) as draft:
        x, y = (draft.floats(name, [draft.batch_size, 1]) for name in "xy")
        total = static.nn.fc(x, width) + static.nn.fc(y, width)
        return draft.finish(paddle.sum(paddle.tanh(total)), [total])


def attention_steps(options: Options) -> Case:
    """Mirroring's case 2: tanh(x + y_t) for `trip_count` (50) steps, x [steps, 4096], with one head for all."""
    steps, width = pick(options.trip_count, 50), pick(options.width, 4096)
    with drafting(options, batch_size=1) as draft:
        # Something must be fed; the loss is scaled with it.
        scale = draft.floats("scale", [1], batch_axis=None)
        x, head = _parameter([steps, width]), _parameter([width, 1])
        heads = [paddle.matmul(paddle.tanh(x + _parameter([1, width])), head) for _ in range(steps)]
        return draft.finish(paddle.mean(paddle.concat(heads, axis=1)) * scale, heads[-1:])


def tanh_product(options: Options) -> Case:
    """Mirroring's case 3: y = tanh(x), z = tanh(y), and a product of 4096 on z."""
    width = pick(options.width, 4096)
    with drafting(options, batch_size=4096) as draft:
        x = paddle.scale(draft.floats("x", [draft.batch_size, 1]), 1.0)
        x.stop_gradient = False
        product = static.nn.fc(paddle.tanh(paddle.tanh(x)), width)
        return draft.finish(paddle.mean(product), [product])


def tanh_chain(options: Options) -> Case:
    """`layers` (50) tanh one after the other, 4 MiB each: `width` (1024) at batch 1024."""
    with drafting(options, batch_size=1024) as draft:
        value = paddle.scale(draft.floats("x", [draft.batch_size, pick(options.width, 1024)]), 1.0)
        value.stop_gradient = False
        for _ in range(pick(options.layers, 50)):
            value = paddle.tanh(value)
        # A parameter, so that there is something to train.
        return draft.finish(paddle.mean(value) * _parameter([1]), [value])


class _Lstm:
    """A stack of cells, run one step at a time."""

    def __init__(self, inputs: int, width: int, layers: int) -> None:
        self._cells = [nn.LSTMCell(inputs if not i else width, width) for i in range(layers)]

    def start(self, like: Any) -> List[Any]:
        """A state of zeros for each cell."""
        return [cell.get_initial_states(like, cell.state_shape) for cell in self._cells]

    def step(self, value: Any, states: List[Any]) -> Any:
        """The output of the last cell and the new states."""
        found = []
        for cell, state in zip(self._cells, states):
            value, new = cell(value, state)
            found.append(new)
        return value, found


def nmt(options: Options) -> Case:
    """Translation unrolled: LSTMs of 2 layers, additive attention at every step; batch 64, 50 words, width 512."""
    length, width = pick(options.length, 50), pick(options.width, 512)
    vocabulary, layers = pick(options.vocabulary, 10000), pick(options.layers, 2)
    with drafting(options, batch_size=64) as draft:
        source, target, label = (draft.integers(n, [draft.batch_size, length], below=vocabulary)
                                 for n in ("source", "target", "label"))
        encoder, decoder = _Lstm(width, width, layers), _Lstm(2 * width, width, layers)
        words = nn.Embedding(vocabulary, width)(source)
        states, read = encoder.start(words), []
        for word in paddle.unbind(words, axis=1):
            value, states = encoder.step(word, states)
            read.append(value)
        memory = paddle.stack(read, axis=1)
        keys, query = nn.Linear(width, width)(memory), nn.Linear(width, width, bias_attr=False)
        score = nn.Linear(width, 1, bias_attr=False)
        context, written = paddle.zeros_like(read[0]), []
        for word in paddle.unbind(nn.Embedding(vocabulary, width)(target), axis=1):
            value, states = decoder.step(paddle.concat([word, context], axis=-1), states)
            scores = score(paddle.tanh(keys + paddle.unsqueeze(query(value), 1)))
            weights = F.softmax(scores, axis=1)
            context = paddle.squeeze(paddle.matmul(weights, memory, transpose_x=True), 1)
            written.append(paddle.concat([value, context], axis=-1))
        if options.dropout:
            written = [F.dropout(each, options.dropout) for each in written]
        logits = nn.Linear(2 * width, vocabulary)(paddle.stack(written, axis=1))
        loss = F.cross_entropy(logits, paddle.unsqueeze(label, -1))
        return draft.finish(loss, [logits])
