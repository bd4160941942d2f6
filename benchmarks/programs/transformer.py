"""Transformer encoders: a sequence classifier, and a BERT-like masked language model."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from benchmarks.programs.case import Case, Draft, Options, drafting, pick


@dataclass(frozen=True)
class Sizes:
    """The sizes of an encoder; `length` and `vocabulary` in tokens."""
    length: int
    width: int
    heads: int
    layers: int
    vocabulary: int
    dropout: float


def _sizes(options: Options, default: Sizes) -> Sizes:
    return Sizes(*(pick(getattr(options, field), getattr(default, field))
                   for field in default.__dataclass_fields__))


def _encoder(sizes: Sizes, activation: str) -> nn.Layer:
    layer = nn.TransformerEncoderLayer(sizes.width,
                                       sizes.heads,
                                       4 * sizes.width,
                                       dropout=sizes.dropout,
                                       activation=activation)
    return nn.TransformerEncoder(layer, sizes.layers)


def _positions(draft: Draft, sizes: Sizes) -> Any:
    """Embedded positions, [1, length, width]; a parameter, so independent of the batch."""
    return paddle.create_parameter([1, sizes.length, sizes.width], "float32")


def transformer(options: Options) -> Case:
    """Encoder of 6 layers, batch 8, length 64, width 256, dropout on, mean pooling, 10 classes."""
    return _classifier(options, _sizes(options, Sizes(64, 256, 4, 6, 1000, 0.1)), "relu")


def transformer_gelu(options: Options) -> Case:
    """The same with GELU, 8 heads, length 128 and width 512."""
    return _classifier(options, _sizes(options, Sizes(128, 512, 8, 6, 1000, 0.1)), "gelu")


def _classifier(options: Options, sizes: Sizes, activation: str) -> Case:
    with drafting(options, batch_size=8) as draft:
        batch = draft.batch_size
        tokens = draft.integers("tokens", [batch, sizes.length], below=sizes.vocabulary)
        embedding, encoder = nn.Embedding(sizes.vocabulary,
                                          sizes.width), _encoder(sizes, activation)
        head = nn.Linear(sizes.width, pick(options.classes, 10))
        if options.inference:
            encoder.eval()
        hidden = encoder(embedding(tokens) + _positions(draft, sizes))
        logits = head(paddle.mean(hidden, axis=1))
        if options.inference:
            return draft.finish(None, [logits])
        label = draft.integers("label", [batch, 1], below=logits.shape[-1])
        return draft.finish(F.cross_entropy(logits, label), [logits])


def _masked_rows(batch: int, length: int, count: int) -> np.ndarray:
    """The rows of each sentence's masked tokens among all [batch * length] tokens."""
    spread = np.linspace(0, length - 1, count).astype("int64")
    return np.arange(batch, dtype="int64")[:, None] * length + spread


def bert(options: Options) -> Case:
    """BERT-like: 4 layers, batch 8, length 64, width 256, masked LM head tied to the embedding."""
    sizes = _sizes(options, Sizes(64, 256, 4, 4, 8000, 0.1))
    masked = max(1, sizes.length // 7)
    with drafting(options, batch_size=8) as draft:
        batch = draft.batch_size
        tokens = draft.integers("tokens", [batch, sizes.length], below=sizes.vocabulary)
        segments = draft.integers("segments", [batch, sizes.length], below=2)
        rows = draft.computed("masked_rows", _masked_rows(batch, sizes.length, masked))
        words, kinds = nn.Embedding(sizes.vocabulary, sizes.width), nn.Embedding(2, sizes.width)
        before = nn.Sequential(nn.LayerNorm(sizes.width), nn.Dropout(sizes.dropout))
        encoder = _encoder(sizes, "gelu")
        head = nn.Sequential(nn.Linear(sizes.width, sizes.width), nn.GELU(),
                             nn.LayerNorm(sizes.width))
        if options.inference:
            before.eval()
            encoder.eval()
        embedded = words(tokens) + kinds(segments) + _positions(draft, sizes)
        flat = paddle.reshape(encoder(before(embedded)), [-1, sizes.width])
        chosen = head(paddle.gather(flat, paddle.reshape(rows, [-1])))
        logits = paddle.matmul(chosen, words.weight, transpose_y=True)
        if options.inference:
            return draft.finish(None, [logits])
        label = draft.integers("label", [batch, masked], below=sizes.vocabulary)
        loss = F.cross_entropy(logits, paddle.reshape(label, [-1, 1]))
        return draft.finish(loss, [logits])
