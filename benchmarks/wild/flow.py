"""Features of training scripts: control flow, Python in the middle, shapes that depend on values, LoD, second derivatives."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn, static
from paddle.base import core

from benchmarks.wild.script import BATCH, Builder, Script, trained, writing

WIDTH, TRIPS = 256, 6


def builders() -> Dict[str, Builder]:
    """By name."""
    return {
        'cond': cond,
        'weights in cond': weights_in_cond,
        'switch case': switch_case,
        'while loop': while_loop,
        'py_func': py_func,
        'own gradient': own_gradient,
        'print': printing,
        'assert': asserting,
        'masked select': masked_select,
        'unique': unique,
        'in place': in_place,
        'gradient penalty': gradient_penalty,
        'gradient of input': gradient_of_input,
        'sequences': sequences,
        'sequence conv': sequence_conv,
        'unread inputs': unread_inputs,
    }


def _hidden(draft: Any, layers: int = 2) -> Any:
    hidden = draft.floats('x', [BATCH, WIDTH])
    for _ in range(layers):
        hidden = static.nn.fc(hidden, WIDTH, activation='relu')
    return hidden


def cond() -> Script:
    """One of two ways, by what was computed."""
    with writing() as draft:
        hidden = _hidden(draft)
        chosen = static.nn.cond(
            paddle.mean(hidden) > 0.1, lambda: paddle.tanh(hidden) * 2.0, lambda: F.gelu(hidden))
        return trained(draft, paddle.mean(chosen**2))


def weights_in_cond() -> Script:
    """Layers inside of the ways."""
    with writing() as draft:
        hidden = _hidden(draft)
        deep, flat = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                                   nn.Linear(WIDTH, WIDTH)), nn.Linear(WIDTH, WIDTH)
        chosen = static.nn.cond(paddle.mean(hidden) > 0, lambda: deep(hidden), lambda: flat(hidden))
        return trained(draft, paddle.mean(chosen**2), paddle.optimizer.SGD(0.01))


def switch_case() -> Script:
    """One of four ways, by what is fed."""
    with writing() as draft:
        hidden = _hidden(draft)
        way = draft.integers('way', [1], below=4, batch_axis=None)
        functions = [F.relu, F.sigmoid, paddle.tanh, F.gelu]
        ways = {i: (lambda f=f: f(hidden) * 1.5) for i, f in enumerate(functions)}
        return trained(draft, paddle.mean(static.nn.switch_case(way, ways)**2))


def while_loop() -> Script:
    """A loop whose weight is trained."""
    with writing(trip_count=TRIPS) as draft:
        weight = paddle.create_parameter([WIDTH, WIDTH], 'float32')
        zero, limit = paddle.full([], 0, 'int64'), paddle.full([], TRIPS, 'int64')
        _, state = static.nn.while_loop(
            lambda i, s: i < limit,
            lambda i, s: [i + 1, paddle.tanh(paddle.matmul(s, weight)) * F.sigmoid(s)],
            [zero, _hidden(draft, 1)])
        return trained(draft, paddle.mean(state**2))


def _like(x: Any, name: str) -> Any:
    block = static.default_main_program().current_block()
    return block.create_var(name=name, shape=x.shape, dtype=x.dtype)


def py_func() -> Script:
    """NumPy in the middle, with a gradient of its own."""
    with writing() as draft:
        hidden = _hidden(draft)
        result = static.nn.py_func(lambda x: np.tanh(np.array(x)),
                                   hidden,
                                   _like(hidden, 'by_numpy'),
                                   backward_func=lambda x, y, dy: np.array(dy) *
                                   (1 - np.square(np.array(y))))
        return trained(draft, paddle.mean(result**2))


def own_gradient() -> Script:
    """A function with the gradient that the script says: rounding that lets gradients through."""
    with writing() as draft:
        hidden = _hidden(draft)
        rounded = static.nn.static_pylayer(lambda x: paddle.round(x * 8) / 8, [hidden],
                                           lambda dy: paddle.clip(dy, -1, 1))
        return trained(draft, paddle.mean(static.nn.fc(rounded, WIDTH)**2))


def printing() -> Script:
    """A value is printed on its way."""
    with writing() as draft:
        hidden = static.Print(_hidden(draft), first_n=1, summarize=2, print_phase='forward')
        return trained(draft, paddle.mean(hidden**2))


def asserting() -> Script:
    """A condition is looked at in each step."""
    with writing() as draft:
        loss = paddle.mean(_hidden(draft)**2)
        static.nn.control_flow.Assert(paddle.isfinite(loss), [loss])
        return trained(draft, loss)


def masked_select() -> Script:
    """As many values as are positive."""
    with writing() as draft:
        hidden = _hidden(draft)
        chosen = paddle.masked_select(hidden, hidden > 0.05)
        rows = paddle.nonzero(paddle.sum(hidden, axis=1) > 0)
        kept = paddle.gather(hidden, rows.reshape([-1]))
        loss = paddle.mean(chosen**2) + paddle.mean(kept)
        return replace(trained(draft, loss), foreseeable=False)


def unique() -> Script:
    """Each word is embedded once."""
    with writing() as draft:
        words = draft.integers('words', [BATCH, 32], below=100)
        found, inverse = paddle.unique(words, return_inverse=True)
        table = nn.Embedding(100, WIDTH)
        hidden = nn.Linear(WIDTH, WIDTH)(paddle.gather(table(found), inverse.reshape([-1])))
        return replace(trained(draft, paddle.mean(hidden**2)), foreseeable=False)


def in_place() -> Script:
    """Operators that write over what they read."""
    with writing() as draft:
        hidden = F.relu_(_hidden(draft))
        hidden = paddle.reshape_(hidden, [BATCH, 16, 16])
        buffer = paddle.zeros([BATCH, 16, 16])
        paddle.assign(hidden, buffer)
        return trained(draft, paddle.mean((buffer + hidden)**2))


def gradient_penalty() -> Script:
    """The gradient of a gradient."""
    with writing() as draft:
        x = draft.floats('x', [BATCH, WIDTH])
        x.stop_gradient = False
        score = paddle.tanh(static.nn.fc(paddle.tanh(static.nn.fc(x, WIDTH)), 1))
        slope, = static.gradients([score], [x])
        length = paddle.sqrt(paddle.sum(slope**2, axis=1) + 1e-6)
        return trained(draft, paddle.mean(score) + 10 * paddle.mean((length - 1)**2))


def gradient_of_input() -> Script:
    """An adversarial step: what is fed, moved by its gradient, is what is trained on."""
    with writing() as draft:
        x = draft.floats('x', [BATCH, WIDTH])
        x.stop_gradient = False
        layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sigmoid(), nn.Linear(WIDTH, 10))
        label = draft.integers('label', [BATCH, 1], below=10)
        slope, = static.gradients([F.cross_entropy(layers(x), label)], [x])
        moved = x + 0.1 * paddle.sign(slope)
        moved.stop_gradient = True
        return trained(draft, F.cross_entropy(layers(moved), label))


def _with_sentences(script: Script) -> Script:
    """Feeds sentences of 4 to 13 words as one LoD tensor."""
    case, = script.cases
    lengths = [4 + 3 * (i % 4) for i in range(BATCH)]

    def feed(step: int) -> Dict[str, Any]:
        random = np.random.RandomState(step)
        tensor = core.LoDTensor()
        tensor.set(random.rand(sum(lengths), WIDTH).astype('float32'), core.CPUPlace())
        tensor.set_recursive_sequence_lengths([lengths])
        return {'words': tensor}

    return Script((replace(case, feed=feed, batch_size={"words": sum(lengths)}),))


def _words() -> Any:
    return static.data('words', [-1, WIDTH], 'float32', lod_level=1)


def sequences() -> Script:
    """Attention over the words of each sentence, pooling."""
    with writing() as draft:
        words = static.nn.fc(_words(), WIDTH, activation='tanh')
        weights = static.nn.sequence_lod.sequence_softmax(static.nn.fc(words, 1))
        pooled = static.nn.sequence_lod.sequence_pool(words * weights, 'sum')
        last = static.nn.sequence_lod.sequence_last_step(words)
        return _with_sentences(trained(draft, paddle.mean((pooled + last)**2)))


def sequence_conv() -> Script:
    """Windows of words."""
    with writing() as draft:
        hidden = static.nn.sequence_lod.sequence_conv(_words(), WIDTH, 3, act='relu')
        pooled = static.nn.sequence_lod.sequence_pool(hidden, 'max')
        return _with_sentences(trained(draft, paddle.mean(pooled**2)))


def unread_inputs() -> Script:
    """More is fed than is read."""
    with writing() as draft:
        draft.floats('unread', [BATCH, 16 * WIDTH])
        return trained(draft, paddle.mean(_hidden(draft)**2))
