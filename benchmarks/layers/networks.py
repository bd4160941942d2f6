"""Networks as users write them: a batch in, the loss out. The blocks of each are what one would recompute by hand."""
from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Callable, List, Mapping, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

BATCH, LENGTH, WORDS, HEADS = 8, 128, 1000, 8
Batch = Tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Network:
    """How one is made, its blocks, and the batch of a step."""
    make: Callable[[], Any]
    blocks: Callable[[Any], List[Any]]
    batch: Callable[[int], Batch]


class Classifier(nn.Layer):
    """Images to one of 1000 classes."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.net = getattr(paddle.vision.models, name)(num_classes=1000)

    def forward(self, images: Any, labels: Any) -> Any:
        return F.cross_entropy(self.net(images), labels)


class Sentences(nn.Layer):
    """Words to one of ten classes."""

    def __init__(self, width: int = 512, layers: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.encoders = nn.LayerList([encoder(width, dropout) for _ in range(layers)])
        self.head = nn.Linear(width, 10)

    def forward(self, words: Any, labels: Any) -> Any:
        hidden = self.words(words)
        for each in self.encoders:
            hidden = each(hidden)
        return F.cross_entropy(self.head(paddle.mean(hidden, axis=1)), labels)


class Gpt(nn.Layer):
    """The next word: normalised first, each word sees those before it, the embedding's weights are the head's."""

    def __init__(self, width: int = 256, layers: int = 6) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.drop, self.norm = nn.Dropout(0.1), nn.LayerNorm(width)
        self.encoders = nn.LayerList(
            [encoder(width, 0.1, normalize_before=True) for _ in range(layers)])
        self.register_buffer('mask',
                             paddle.triu(paddle.full([LENGTH, LENGTH], -1e9), 1),
                             persistable=False)

    def forward(self, words: Any, following: Any) -> Any:
        hidden = self.drop(self.words(words) + self.places(paddle.arange(LENGTH)))
        for each in self.encoders:
            hidden = each(hidden, self.mask)
        scores = paddle.matmul(self.norm(hidden), self.words.weight, transpose_y=True)
        return F.cross_entropy(scores.reshape([-1, WORDS]), following.reshape([-1, 1]))


class Bert(nn.Layer):
    """Words that are masked, and whether two sentences follow each other."""

    def __init__(self, width: int = 256, layers: int = 6) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.kinds, self.drop = nn.Embedding(2, width), nn.Dropout(0.1)
        self.norms = nn.LayerList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.encoders = nn.LayerList([encoder(width, 0.1) for _ in range(layers)])
        self.pooler, self.change = nn.Linear(width, width), nn.Linear(width, width)
        self.pairs, self.head = nn.Linear(width, 2), nn.Linear(width, WORDS)

    def forward(self, words: Any, masked: Any) -> Any:
        kinds = (paddle.arange(LENGTH) >= LENGTH // 2).astype('int64')
        hidden = self.words(words) + self.places(paddle.arange(LENGTH)) + self.kinds(kinds)
        hidden = self.drop(self.norms[0](hidden))
        for each in self.encoders:
            hidden = each(hidden)
        scores = self.head(self.norms[1](F.gelu(self.change(hidden))))
        pairs = self.pairs(paddle.tanh(self.pooler(hidden[:, 0])))
        return F.cross_entropy(scores.reshape([-1, WORDS]), masked.reshape(
            [-1, 1])) + F.cross_entropy(pairs, masked[:, :1] % 2)


def encoder(width: int, dropout: float, normalize_before: bool = False) -> Any:
    return nn.TransformerEncoderLayer(width,
                                      HEADS,
                                      4 * width,
                                      dropout=dropout,
                                      activation='gelu',
                                      normalize_before=normalize_before)


def _images(side: int) -> Callable[[int], Batch]:

    def batch(step: int) -> Batch:
        random = np.random.RandomState(step)
        images = random.standard_normal([BATCH, 3, side, side]).astype('float32')
        return images, random.randint(0, 1000, [BATCH, 1])

    return batch


def _words(most: int, targets: int) -> Callable[[int], Batch]:

    def batch(step: int) -> Batch:
        random = np.random.RandomState(step)
        return random.randint(0, WORDS, [BATCH, LENGTH]), random.randint(0, most, [BATCH, targets])

    return batch


def _stages(made: Any) -> List[Any]:
    net = made.net
    return [block for stage in (net.layer1, net.layer2, net.layer3, net.layer4) for block in stage]


def _vision(name: str, side: int) -> Network:
    return Network(lambda: Classifier(name), _stages, _images(side))


def _encoders(make: Callable[[], Any], most: int = WORDS, targets: int = LENGTH) -> Network:
    return Network(make, lambda made: list(made.encoders), _words(most, targets))


NETWORKS: Mapping[str, Network] = MappingProxyType({
    'tiny': _encoders(lambda: Sentences(width=32, layers=1), 10, 1),  # to try the command
    'transformer': _encoders(Sentences, 10, 1),
    'dropout': _encoders(lambda: Sentences(dropout=0.1), 10, 1),
    'resnet18': _vision('resnet18', 128),
    'gpt': _encoders(Gpt),
    'bert': _encoders(Bert),
    'resnet50': _vision('resnet50', 128),
})
