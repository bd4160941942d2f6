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
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

import paddle

from demos.machine_translation import data, model, train
from demos.machine_translation.config import DemoConfig

_STEP = "step"  # what a line begins with that says how far a process is


@dataclasses.dataclass(frozen=True)
class Run:
    """What one process saw.

    `peaks` holds, after each step, the highest bytes above `resting` so far; `seconds` are those of each step but the first by
    the clock, `processor_seconds` those that processors worked for it; `growth` is what the process grew by after startup at its
    highest, as the operating system counts it, in bytes; the losses are exact, as hexadecimal floats. `predicted` is what the
    optimizer said that a step takes longer, as a share of it: for what it computes again, and what dropped copies take off.
    """
    resting: int
    peaks: List[int]
    seconds: List[float]
    processor_seconds: List[float]
    operators: int
    growth: int
    losses: List[str]
    parameters: str
    predicted: List[float]


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
    def processor_seconds(self) -> float:
        """Of the step that took least of the processors' time."""
        return min(self.first.processor_seconds + self.later.processor_seconds)

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


def measure(config: DemoConfig,
            plain: bool,
            steps: int = 8,
            told: Callable[[str], None] = lambda what: None) -> Dict[str, Measurement]:
    """Measures the program untouched and, unless `plain`, optimized, each in two fresh processes.

    They take turns, so that other work on the machine slows both. `told` hears of each step.
    """
    labels = {"before": False} if plain else {"before": False, "after": True}
    runs: Dict[str, List[Run]] = {label: [] for label in labels}
    for warm in (False, True):
        for label, optimized in labels.items():
            each = partial(_tell, told,
                           f'measuring {label}, {"later runs" if warm else "first run"}')
            runs[label].append(in_fresh_process(config, optimized, warm, steps, each))
    return {label: Measurement(*pair) for label, pair in runs.items()}


def _tell(told: Callable[[str], None], title: str, what: str) -> None:
    told(f'{title}: {what}')


def in_fresh_process(config: DemoConfig,
                     optimized: bool,
                     warm: bool,
                     steps: int,
                     told: Callable[[str], None] = lambda what: None) -> Run:
    """Trains on the longest sentences; `warm` gives the executor's first run to a single word. `told` hears of each step."""
    request = json.dumps([config.to_json(), optimized, warm, steps])
    environment: Dict[str, str] = dict(os.environ,
                                       OMP_NUM_THREADS="1",
                                       GLOG_minloglevel="2",
                                       PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-m", __name__, request]
    line = ""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                          encoding="utf-8") as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith(_STEP):
                told(line.strip())
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return Run(**json.loads(line))


def _run(config: DemoConfig, optimized: bool, warm: bool, steps: int) -> Run:
    program = model.build_training_program(config.model)
    predicted = _predicted(train.optimize(program, config)) if optimized else [0.0, 0.0]
    corpus = data.load_corpus(config)
    feeds = data.feeds(corpus.longest(config.batch_size), config.model)
    session = train.Session(program.startup)
    resting, started = _host_memory("current"), _process_memory("VmRSS")
    if warm:
        word = data.feeds([data.Pair((data.UNKNOWN,), (data.UNKNOWN,))], config.model)
        session.run(program.main, word, program.loss)
    seconds, processor_seconds, losses, peaks = [], [], [], []
    for loss in train.losses(session, program, lambda step: feeds):
        seconds.append(time.perf_counter())
        processor_seconds.append(time.process_time())
        losses.append(loss.hex())
        peaks.append(_host_memory("peak") - resting)
        print(f"{_STEP} {len(losses)} of {steps}", flush=True)
        if len(losses) == steps:
            break
    return Run(resting=resting,
               peaks=peaks,
               seconds=_differences(seconds),
               processor_seconds=_differences(processor_seconds),
               operators=sum(len(block.ops) for block in program.main.blocks),
               growth=_process_memory("VmHWM") - started,
               losses=losses,
               parameters=_digest(program, session),
               predicted=predicted)


def _differences(times: List[float]) -> List[float]:
    return [b - a for a, b in zip(times, times[1:])]


def _predicted(report: Any) -> List[float]:
    """Shares of a step; see Run."""
    again = report.recompute
    if again is None or not again.step_seconds:
        return [0.0, 0.0]
    return [again.extra_seconds / again.step_seconds, again.saved_seconds / again.step_seconds]


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
