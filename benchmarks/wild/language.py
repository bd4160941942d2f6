"""BERT, ERNIE and GPT in pre-training, after their papers; PaddleNLP's own models where that is installed.

Small: two layers, width 128. Words, positions and token types (ERNIE: and tasks) are embedded; encoders are post-norm with
GELU, with a pooler, a masked-word head that is tied to the embedding and a next-sentence head. GPT is pre-norm and causal.
"""
from __future__ import annotations

import importlib.util
from typing import Any, Dict, List

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from benchmarks.programs.case import Draft
from benchmarks.wild.script import Builder, Script, trained, writing

BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY, MASKED, TASKS = 8, 64, 128, 4, 2, 2000, 9, 3


def builders() -> Dict[str, Builder]:
    """By name; those of PaddleNLP where it is there."""
    found: Dict[str, Builder] = {'bert': bert, 'ernie': ernie, 'gpt': gpt}
    if importlib.util.find_spec('paddlenlp') is not None:
        from benchmarks.wild import paddlenlp_models
        found.update(paddlenlp_models.builders())
    return found


def adamw() -> Any:
    """As these are trained: warmed up, decayed, clipped."""
    schedule = paddle.optimizer.lr.LinearWarmup(1e-4, 10, 0.0, 1e-4)
    return paddle.optimizer.AdamW(schedule,
                                  weight_decay=0.01,
                                  grad_clip=nn.ClipGradByGlobalNorm(1.0))


class Embeddings(nn.Layer):
    """The sum of the embeddings of all ids, normalised."""

    def __init__(self, sizes: List[int]) -> None:
        super().__init__()
        self.tables = nn.LayerList([nn.Embedding(size, WIDTH) for size in sizes])
        self.after = nn.Sequential(nn.LayerNorm(WIDTH), nn.Dropout(0.1))

    def forward(self, *ids: Any) -> Any:
        return self.after(sum(table(each) for table, each in zip(self.tables, ids)))


def _encoder(pre_norm: bool) -> nn.Layer:
    layer = nn.TransformerEncoderLayer(WIDTH,
                                       HEADS,
                                       4 * WIDTH,
                                       activation='gelu',
                                       normalize_before=pre_norm)
    return nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH) if pre_norm else None)


def _tokens(draft: Draft, name: str, below: int) -> Any:
    return draft.integers(name, [BATCH, LENGTH], below=below)


def _positions(words: Any) -> Any:
    ones = paddle.ones_like(words)
    return paddle.cumsum(ones, axis=-1) - ones


def bert() -> Script:
    """Masked words and next sentence."""
    with writing(BATCH) as draft:
        return _masked(draft, [VOCABULARY, LENGTH, 2], ['segments'])


def ernie() -> Script:
    """BERT with embedded tasks."""
    with writing(BATCH) as draft:
        return _masked(draft, [VOCABULARY, LENGTH, 2, TASKS], ['segments', 'tasks'])


def _masked(draft: Draft, sizes: List[int], kinds: List[str]) -> Script:
    words = _tokens(draft, 'words', VOCABULARY)
    others = [_tokens(draft, name, size) for name, size in zip(kinds, sizes[2:])]
    embeddings, encoder = Embeddings(sizes), _encoder(pre_norm=False)
    padding = paddle.cast(words == 0, 'float32').unsqueeze([1, 2]) * -1e4
    hidden = encoder(embeddings(words, _positions(words), *others), padding)
    pooled = paddle.tanh(nn.Linear(WIDTH, WIDTH)(hidden[:, 0]))
    spread = np.linspace(0, LENGTH - 1, MASKED).astype('int64')
    rows = draft.computed('masked', np.arange(BATCH)[:, None] * LENGTH + spread)
    chosen = paddle.gather(hidden.reshape([-1, WIDTH]), rows.reshape([-1]))
    chosen = nn.LayerNorm(WIDTH)(F.gelu(nn.Linear(WIDTH, WIDTH)(chosen)))
    bias = paddle.create_parameter([VOCABULARY], 'float32', is_bias=True)
    scores = paddle.matmul(chosen, embeddings.tables[0].weight, transpose_y=True) + bias
    said = draft.integers('said', [BATCH, MASKED], below=VOCABULARY).reshape([-1, 1])
    follows = draft.integers('follows', [BATCH, 1], below=2)
    loss = F.cross_entropy(scores, said) + F.cross_entropy(nn.Linear(WIDTH, 2)(pooled), follows)
    return trained(draft, loss, adamw())


def gpt() -> Script:
    """The next word, by what is before it."""
    with writing(BATCH) as draft:
        words, following = (_tokens(draft, name, VOCABULARY) for name in ('words', 'following'))
        table, positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        hidden = F.dropout(table(words) + positions(_positions(words)), 0.1)
        causal = paddle.triu(paddle.full([LENGTH, LENGTH], -1e4), 1)
        hidden = _encoder(pre_norm=True)(hidden, causal)
        scores = paddle.matmul(hidden, table.weight, transpose_y=True)
        return trained(draft, F.cross_entropy(scores, following.unsqueeze(-1)), adamw())
