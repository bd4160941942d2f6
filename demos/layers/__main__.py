"""`python -m demos.layers`: the same training twice in fresh processes, as Paddle makes it static and with one line more.

A trainer as many write it, and `paddle.Model`. What is printed is the most that all tensors took, by Paddle's allocator, and the
last loss, which must be the same to the last bit.
"""
from __future__ import annotations

import subprocess
import sys
from typing import Any, Callable, Dict

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.base import core

from transpiler import memory_optimize

BATCH, LENGTH, WIDTH, STEPS = 8, 128, 256, 4
MIB = float(1 << 20)


class Classifier(nn.Layer):
    """Sentences of words, encoded by two layers of a transformer, to one of ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, WIDTH)
        self.encoders = nn.LayerList(
            [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1) for _ in range(2)])
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, words: Any) -> Any:
        hidden = self.words(words)
        for encoder in self.encoders:
            hidden = encoder(hidden)
        return self.head(paddle.mean(hidden, axis=1))


class Sentences(paddle.io.Dataset):
    """Made up, the same each time."""

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> Any:
        random = np.random.RandomState(index)
        return random.randint(0, 1000, [LENGTH]), random.randint(0, 10, [1])


class Trainer:
    """Trains for some epochs, and says after each how many answers are right."""

    def __init__(self, network: Any, optimizer: Any, data: Any) -> None:
        self.network, self.optimizer = network, optimizer
        self.loader = paddle.io.DataLoader(data, batch_size=BATCH)
        self.loss = 0.0

    def fit(self, epochs: int) -> None:
        for epoch in range(epochs):
            self.network.train()
            for words, label in self.loader:
                self.step(words, label)
            print(f'epoch {epoch}: loss {self.loss:.4f}, right {self.evaluate():.0%}')

    def step(self, words: Any, label: Any) -> None:
        loss = F.cross_entropy(self.network(words), label)
        loss.backward()
        self.optimizer.step()
        self.optimizer.clear_grad()
        self.loss = float(loss)

    @paddle.no_grad()
    def evaluate(self) -> float:
        self.network.eval()
        right = [
            paddle.argmax(self.network(words), 1) == label[:, 0] for words, label in self.loader
        ]
        return float(paddle.concat(right).astype('float32').mean())


def trainer(network: Any) -> str:
    """A class of the user's own."""
    optimizer = paddle.optimizer.SGD(0.1, parameters=network.parameters())
    made = Trainer(network, optimizer, Sentences())
    made.fit(2)
    return repr(made.loss)


def high_level(network: Any) -> str:
    """The high-level API."""
    words = paddle.static.InputSpec([None, LENGTH], 'int64', 'words')
    model = paddle.Model(network, inputs=[words])  # of a static layer it cannot find them out
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    model.prepare(optimizer, nn.CrossEntropyLoss())
    for words, label in paddle.io.DataLoader(Sentences(), batch_size=BATCH):
        losses = model.train_batch([words], [label])
    return repr(float(losses[0][0] if isinstance(losses[0], (list, tuple)) else losses[0]))


WAYS: Dict[str, Callable[[Any], str]] = {'trainer': trainer, 'paddle.Model': high_level}


def train(way: str, optimized: bool) -> None:
    """In this process: prints the report, the peak and the last loss."""
    paddle.seed(1)
    network = paddle.jit.to_static(Classifier(), full_graph=True)
    resting = core.host_memory_stat_current_value('Allocated', 0)
    report = memory_optimize(network) if optimized else None  # this line is all
    loss = WAYS[way](network)
    peak = (core.host_memory_stat_peak_value('Allocated', 0) - resting) / MIB
    if report is not None:
        print(report)
    print(f'{way}, {"with" if optimized else "without"} memory_optimize: {peak:.1f} MiB above the '
          f'parameters, last loss {loss}')


def main() -> None:
    if len(sys.argv) == 3:
        train(sys.argv[1], sys.argv[2] == 'optimized')
        return
    for way in WAYS:
        for how in ('plain', 'optimized'):
            subprocess.run([sys.executable, '-m', 'demos.layers', way, how], check=True)


if __name__ == '__main__':
    main()
