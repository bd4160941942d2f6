"""Recurrent layers of paddle.nn; in static mode a stack is one fused `rnn` operator."""
from __future__ import annotations

from typing import Any, Type

import paddle
import paddle.nn.functional as F
from paddle import nn

from benchmarks.programs.case import Case, Options, drafting, pick


def _tagger(options: Options, layer: Type[Any]) -> Case:
    """Embedding, `layers` recurrent layers and a class for each sequence."""
    length, width = pick(options.length, 50), pick(options.width, 256)
    vocabulary = pick(options.vocabulary, 5000)
    with drafting(options, batch_size=32) as draft:
        tokens = draft.integers("tokens", [draft.batch_size, length], below=vocabulary)
        embedding = nn.Embedding(vocabulary, width)
        cells = layer(width, width, pick(options.layers, 2), dropout=pick(options.dropout, 0.0))
        head = nn.Linear(width, pick(options.classes, 10))
        if options.inference:
            cells.eval()
        outputs, _ = cells(embedding(tokens))
        logits = head(paddle.mean(outputs, axis=1))
        if options.inference:
            return draft.finish(None, [logits])
        label = draft.integers("label", [draft.batch_size, 1], below=logits.shape[-1])
        return draft.finish(F.cross_entropy(logits, label), [logits])


def lstm(options: Options) -> Case:
    """Two layers of paddle.nn.LSTM, batch 32, length 50, width 256."""
    return _tagger(options, nn.LSTM)


def gru(options: Options) -> Case:
    """Two layers of paddle.nn.GRU, batch 32, length 50, width 256."""
    return _tagger(options, nn.GRU)
