"""Memory, time and losses of the training program, each measured in a process of its own.

Paddle's peak statistics cannot be reset, so one process measures one peak. The first run of an
executor and the later ones follow different orders: to see the later runs' peak alone, the first
run gets a batch of a single word.
"""
from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Dict, List, Tuple

import paddle

from demos.machine_translation import data, model, train
from demos.machine_translation.config import DemoConfig


@dataclasses.dataclass(frozen=True)
class Run:
    """What one process saw.

    `peaks` holds, after each step, the highest bytes above `resting` so far; `seconds` are those of each step but the first;
    `growth` is what the process grew by after startup at its highest, as the operating system counts it, in bytes; the losses
    are exact, as hexadecimal floats.
    """
    resting: int
    peaks: List[int]
    seconds: List[float]
    operators: int
    growth: int
    losses: List[str]
    parameters: str


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One program's first run and its later runs."""
    first: Run
    later: Run

    @property
    def growth(self) -> int:
        """Bytes by which the process grew at its highest."""
        return min(self.first.growth, self.later.growth)

    @property
    def seconds(self) -> Tuple[float, float, float]:
        """The fastest, the middle and the slowest step."""
        each = sorted(self.first.seconds + self.later.seconds)
        return each[0], statistics.median(each), each[-1]

    @property
    def first_peak(self) -> int:
        """Bytes above resting in the first run of an executor."""
        return self.first.peaks[0]

    @property
    def later_peak(self) -> int:
        """Bytes above resting in all runs but the first."""
        return self.later.peaks[-1]

    def same_results(self, other: "Measurement") -> bool:
        """Whether both have the same losses and end with the same parameters, bit by bit."""
        return all(a.losses == b.losses and a.parameters == b.parameters
                   for a, b in ((self.first, other.first), (self.later, other.later)))


def measure(config: DemoConfig, plain: bool, steps: int = 8) -> Dict[str, Measurement]:
    """Measures the program untouched and, unless `plain`, optimized, each in two fresh processes.

    They take turns, so that other work on the machine slows both.
    """
    labels = {"before": False} if plain else {"before": False, "after": True}
    runs: Dict[str, List[Run]] = {label: [] for label in labels}
    for warm in (False, True):
        for label, optimized in labels.items():
            runs[label].append(in_fresh_process(config, optimized, warm, steps))
    return {label: Measurement(*pair) for label, pair in runs.items()}


def in_fresh_process(config: DemoConfig, optimized: bool, warm: bool, steps: int) -> Run:
    """Trains on the longest sentences; `warm` gives the executor's first run to a single word."""
    request = json.dumps([config.to_json(), optimized, warm, steps])
    environment: Dict[str, str] = dict(os.environ,
                                       OMP_NUM_THREADS="1",
                                       GLOG_minloglevel="2",
                                       PYTHONPATH=os.pathsep.join(sys.path))
    answer = subprocess.run([sys.executable, "-m", __name__, request],
                            env=environment,
                            stdout=subprocess.PIPE,
                            check=True)
    return Run(**json.loads(answer.stdout.decode().splitlines()[-1]))


def _run(config: DemoConfig, optimized: bool, warm: bool, steps: int) -> Run:
    program = model.build_training_program(config.model)
    if optimized:
        train.optimize(program, config)
    corpus = data.load_corpus(config)
    feeds = data.feeds(corpus.longest(config.batch_size), config.model)
    session = train.Session(program.startup)
    resting, started = _host_memory("current"), _process_memory("VmRSS")
    if warm:
        word = data.feeds([data.Pair((data.UNKNOWN,), (data.UNKNOWN,))], config.model)
        session.run(program.main, word, program.loss)
    seconds, losses, peaks = [], [], []
    for loss in train.losses(session, program, lambda step: feeds):
        seconds.append(time.perf_counter())
        losses.append(loss.hex())
        peaks.append(_host_memory("peak") - resting)
        if len(losses) == steps:
            break
    return Run(resting=resting,
               peaks=peaks,
               seconds=[b - a for a, b in zip(seconds, seconds[1:])],
               operators=sum(len(block.ops) for block in program.main.blocks),
               growth=_process_memory("VmHWM") - started,
               losses=losses,
               parameters=_digest(program, session))


def _host_memory(statistic: str) -> int:
    read = getattr(paddle.base.core, f"host_memory_stat_{statistic}_value")
    return read("Allocated", 0)


def _process_memory(which: str) -> int:
    """Bytes of this process, as the operating system counts them; 0 where it does not say."""
    try:
        with open("/proc/self/status") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith(which)),
                        0)
    except OSError:
        return 0


def _digest(program: model.TrainingProgram, session: train.Session) -> str:
    digest = hashlib.sha256()
    for parameter in sorted(program.main.all_parameters(), key=lambda parameter: parameter.name):
        digest.update(session.tensor(parameter.name).tobytes())
    return digest.hexdigest()


def _main() -> None:
    paddle.enable_static()
    config, optimized, warm, steps = json.loads(sys.argv[1])
    run = _run(DemoConfig.from_json(config), optimized, warm, steps)
    print(json.dumps(dataclasses.asdict(run)))


if __name__ == "__main__":
    _main()
