"""Training steps and greedy translation."""
from __future__ import annotations

import itertools
from typing import Callable, Iterator, List, Optional, Sequence

import numpy as np
import paddle

from demos.machine_translation import data
from demos.machine_translation.config import DemoConfig, ModelConfig
from demos.machine_translation.model import TrainingProgram, TranslationProgram


class Session:
    """An executor and the scope that holds the parameters of one model."""

    def __init__(self, startup: paddle.static.Program) -> None:
        self.scope = paddle.static.Scope()
        self._executor = paddle.static.Executor(paddle.CPUPlace())
        self._executor.run(startup, scope=self.scope)

    def run(self, program: paddle.static.Program, feeds: data.Feeds, fetched) -> np.ndarray:
        """Runs a program once and fetches one variable."""
        return self._executor.run(program, feed=feeds, fetch_list=[fetched], scope=self.scope)[0]

    def tensor(self, name: str) -> np.ndarray:
        """The present value of a parameter."""
        return np.array(self.scope.find_var(name).get_tensor())


def optimize(program: TrainingProgram,
             config: DemoConfig,
             progress: Optional[Callable[[str, float], None]] = None):
    """The one line that this demo is about; returns the report."""
    # Imported here so that the demo's pieces also work where only the plain program is wanted.
    from transpiler import memory_optimize
    return memory_optimize(program.main,
                           fetch_list=[program.loss],
                           batch_size=config.batch_size,
                           trip_count=config.model.target_length,
                           progress=progress)


def losses(session: Session, program: TrainingProgram,
           feeder: Callable[[int], data.Feeds]) -> Iterator[float]:
    """Trains for as long as it is asked for the next loss; `feeder` maps a step to its batch."""
    for step in itertools.count():
        yield float(session.run(program.main, feeder(step), program.loss))


def translate(session: Session, program: TranslationProgram, config: ModelConfig,
              pairs: Sequence[data.Pair]) -> List[List[int]]:
    """The tokens of each greedy translation up to its END."""
    feeds = data.feeds(pairs, config)
    tokens = session.run(program.main, {name: feeds[name] for name in program.feed_names},
                         program.tokens)
    return [
        list(itertools.takewhile(lambda token: token != data.END, row)) for row in tokens.tolist()
    ]
