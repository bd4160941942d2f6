"""Encoder, additive-attention decoder, and the programs that train and use them.

The decoder is the whole block of a `while_loop`: attention, two hidden GRU layers, the output layer
and the loss of one target position, so that all that a position needs lives in one trip.
"""
from __future__ import annotations

from typing import List, NamedTuple, Tuple

import paddle
from paddle.nn import functional

from demos.machine_translation.config import ModelConfig
from demos.machine_translation.data import END, START


class TrainingProgram(NamedTuple):
    """What a caller needs to run training steps."""
    main: paddle.static.Program
    startup: paddle.static.Program
    feed_names: List[str]
    loss: paddle.static.Variable


class TranslationProgram(NamedTuple):
    """What a caller needs to translate greedily; `tokens` is [batch, target_length]."""
    main: paddle.static.Program
    feed_names: List[str]
    tokens: paddle.static.Variable


class Encoded(NamedTuple):
    """The source sentence as the decoder sees it: the same at every trip of the loop."""
    states: paddle.static.Variable
    keys: paddle.static.Variable
    padding: paddle.static.Variable


class Hidden(NamedTuple):
    """The two hidden layers of the decoder."""
    lower: paddle.static.Variable
    upper: paddle.static.Variable


class Translator(paddle.nn.Layer):
    """The parameters, and the pieces that both programs are made of."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self._config = config
        hidden, attention = config.hidden, config.attention
        self.source_embedding = paddle.nn.Embedding(config.source_vocabulary, config.embedding)
        self.target_embedding = paddle.nn.Embedding(config.target_vocabulary, config.embedding)
        self.encoder = paddle.nn.GRU(config.embedding, hidden, direction="bidirect")
        self.key = paddle.nn.Linear(2 * hidden, attention)
        self.query = paddle.nn.Linear(hidden, attention, bias_attr=False)
        self.score = paddle.nn.Linear(attention, 1, bias_attr=False)
        self.initial_lower = paddle.nn.Linear(hidden, hidden)
        self.initial_upper = paddle.nn.Linear(hidden, hidden)
        self.lower = paddle.nn.GRUCell(config.embedding + 2 * hidden, hidden)
        self.upper = paddle.nn.GRUCell(hidden, hidden)
        self.output = paddle.nn.Linear(hidden, config.target_vocabulary)

    def encode(self, source, source_length) -> Tuple[Encoded, Hidden]:
        """Reads the source in both directions; the backward summary starts the decoder."""
        states, summary = self.encoder(self.source_embedding(source), sequence_length=source_length)
        mask = functional.sequence_mask(source_length, self._config.source_length, "float32")
        encoded = Encoded(states, self.key(states), (mask - 1.0) * 1e9)
        backward = summary[1]
        return encoded, Hidden(paddle.tanh(self.initial_lower(backward)),
                               paddle.tanh(self.initial_upper(backward)))

    def attend(self, encoded: Encoded, hidden):
        """Additive attention: the source states, averaged by how well they fit the hidden state."""
        query = paddle.unsqueeze(self.query(hidden), 1)
        scores = self.score(paddle.tanh(encoded.keys + query))
        weights = functional.softmax(paddle.squeeze(scores, -1) + encoded.padding)
        return paddle.squeeze(paddle.bmm(paddle.unsqueeze(weights, 1), encoded.states), 1)

    def decode(self, embedded, hidden: Hidden, encoded: Encoded):
        """One target position: the scores of the next token and the new hidden layers."""
        context = self.attend(encoded, hidden.lower)
        lower, _ = self.lower(paddle.concat([embedded, context], axis=-1), hidden.lower)
        lower_out = functional.dropout(lower, self._config.dropout, training=self.training)
        upper, _ = self.upper(lower_out, hidden.upper)
        return self.output(upper), Hidden(lower, upper)


def build_training_program(config: ModelConfig, optimize: bool = True) -> TrainingProgram:
    """Teacher forcing with Adam; `optimize=False` leaves the forward program."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    main.random_seed = startup.random_seed = config.seed
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        source, source_length = _source_inputs(config)
        target_in = paddle.static.data("target_in", [None, config.target_length], "int64")
        target_out = paddle.static.data("target_out", [None, config.target_length], "int64")
        target_length = paddle.static.data("target_length", [None], "int64")
        translator = Translator(config)
        encoded, hidden = translator.encode(source, source_length)
        loss = _sequence_loss(translator, config, encoded, hidden, target_in, target_out,
                              target_length)
        if optimize:
            paddle.optimizer.Adam(config.learning_rate).minimize(loss)
    names = ["source", "source_length", "target_in", "target_out", "target_length"]
    return TrainingProgram(main, startup, names, loss)


def build_translation_program(config: ModelConfig) -> TranslationProgram:
    """Greedy decoding with the parameters that the training program left in the scope."""
    main = paddle.static.Program()
    # A fresh name generator gives the parameters the names they have in the training program.
    with paddle.static.program_guard(main,
                                     paddle.static.Program()), paddle.utils.unique_name.guard():
        source, source_length = _source_inputs(config)
        translator = Translator(config)
        translator.eval()
        encoded, hidden = translator.encode(source, source_length)
        tokens = _greedy_tokens(translator, config, encoded, hidden)
    return TranslationProgram(main, ["source", "source_length"], tokens)


def _source_inputs(config: ModelConfig):
    return (paddle.static.data("source", [None, config.source_length],
                               "int64"), paddle.static.data("source_length", [None], "int64"))


def _row(sequence, position, shape: List[int]):
    return paddle.reshape(paddle.gather(sequence, position, axis=0), shape)


def _sequence_loss(translator: Translator, config: ModelConfig, encoded: Encoded, hidden: Hidden,
                   target_in, target_out, target_length):
    """The mean cross entropy of the target tokens, one trip of the loop for each position."""
    embedded = translator.target_embedding(paddle.transpose(target_in, [1, 0]))
    labels = paddle.transpose(target_out, [1, 0])
    trips = paddle.reshape(paddle.max(target_length), [1])
    total = paddle.zeros([1], "float32")
    # Constants stop gradients by default, and a stopped variable would cut the loss off the loop.
    total.stop_gradient = False

    def unfinished(position, *_):
        return position < trips

    def step(position, lower, upper, total):
        row = _row(embedded, position, [-1, config.embedding])
        logits, new = translator.decode(row, Hidden(lower, upper), encoded)
        errors = functional.cross_entropy(logits, _row(labels, position, [-1, 1]), reduction="none")
        present = paddle.unsqueeze(paddle.cast(position < target_length, "float32"), -1)
        total = total + paddle.reshape(paddle.sum(errors * present), [1])
        return [position + 1, new.lower, new.upper, total]

    start = paddle.zeros([1], "int64")
    _, lower, upper, total = paddle.static.nn.while_loop(unfinished, step, [start, *hidden, total])
    # while_grad fills the gradient of an output that nobody reads with zeros of the declared shape,
    # and fails where the batch is -1. Zero times the last hidden layers reads them, to no effect.
    unused = paddle.scale(paddle.sum(lower) + paddle.sum(upper), 0.0)
    return paddle.sum(total) / paddle.cast(paddle.sum(target_length), "float32") + unused


def _greedy_tokens(translator: Translator, config: ModelConfig, encoded: Encoded, hidden: Hidden):
    """The best token at each position until all sentences have ended; END fills the rest."""
    batch = paddle.shape(encoded.states)[0]
    last = paddle.full([config.target_length], config.target_length, "int64")[:1]
    tokens = paddle.full([config.target_length, batch], END, "int64")
    previous = paddle.full([batch], START, "int64")
    running = paddle.ones([1], "int64")

    def unfinished(position, running, *_):
        return paddle.logical_and(position < last, running > 0)

    def step(position, running, previous, lower, upper, tokens):
        logits, new = translator.decode(translator.target_embedding(previous), Hidden(lower, upper),
                                        encoded)
        # A sentence that has ended keeps saying END.
        best = paddle.where(paddle.logical_and(position > 0, previous == END),
                            paddle.full_like(previous, END), paddle.argmax(logits, axis=-1))
        tokens = paddle.scatter(tokens, position, paddle.unsqueeze(best, 0))
        running = paddle.reshape(paddle.sum(paddle.cast(best != END, "int64")), [1])
        return [position + 1, running, best, new.lower, new.upper, tokens]

    start = paddle.zeros([1], "int64")
    tokens = paddle.static.nn.while_loop(unfinished,
                                         step, [start, running, previous, *hidden, tokens],
                                         is_test=True)[-1]
    return paddle.transpose(tokens, [1, 0])
