"""Trains a translation model with memory_optimize, translates with it, and measures what it saved.

    python -m demos.machine_translation
"""
from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import statistics
import sys
import time
from typing import Iterable, List, Optional

# Paddle and glog read these when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOG_minloglevel", "2")

import paddle
import rich.console
import rich.markup
import rich.progress

from demos.machine_translation import data, measure, model, report, train
from demos.machine_translation.config import DemoConfig, ModelConfig

SECONDS_BETWEEN_LINES = 5.0  # of progress, where stderr is a file or a pipe


def _arguments(argv: Optional[List[str]]) -> argparse.Namespace:
    defaults = DemoConfig()
    parser = argparse.ArgumentParser(prog="python -m demos.machine_translation",
                                     description=__doc__)
    parser.add_argument("--data", help="a WMT14 archive (wmt14.tgz) in place of gettext catalogues")
    parser.add_argument("--package",
                        action="append",
                        help="installed packages whose catalogues are read (repeatable)")
    parser.add_argument("--language", default=defaults.language)
    parser.add_argument("--batch-size", type=int, default=defaults.batch_size)
    parser.add_argument("--steps", type=int, default=150, help="training steps")
    parser.add_argument("--sentences", type=int, default=8, help="held-out sentences to translate")
    parser.add_argument("--plain",
                        action="store_true",
                        help="train and measure the program as it is, without memory_optimize")
    for field in dataclasses.fields(ModelConfig):
        parser.add_argument("--" + field.name.replace("_", "-"),
                            type=type(field.default),
                            default=field.default)
    return parser.parse_args(argv)


def _config(arguments: argparse.Namespace) -> DemoConfig:
    fields = dataclasses.fields(ModelConfig)
    packages = tuple(arguments.package) if arguments.package else DemoConfig.packages
    return DemoConfig(model=ModelConfig(**{f.name: getattr(arguments, f.name) for f in fields}),
                      batch_size=arguments.batch_size,
                      packages=packages,
                      language=arguments.language,
                      archive=arguments.data)


class _Progress:
    """What is being done: beside a spinner where stdout is a terminal, else a line every few seconds."""

    def __init__(self, console: rich.console.Console) -> None:
        self._console = console
        self._status = console.status("")
        self._told = self._began = time.perf_counter()

    def __enter__(self) -> _Progress:
        self._status.__enter__()
        return self

    def __exit__(self, *raised) -> None:
        self._status.__exit__(*raised)

    def __call__(self, what: str) -> None:
        self._status.update(rich.markup.escape(what))
        now = time.perf_counter()
        if not self._console.is_terminal and now - self._told > SECONDS_BETWEEN_LINES:
            self._told = now
            self._console.print(f"{now - self._began:5.0f} s  {what}",
                                markup=False,
                                highlight=False)


def _train(console: rich.console.Console, config: DemoConfig, corpus: data.Corpus, steps: int,
           plain: bool) -> train.Session:
    program = model.build_training_program(config.model)
    if not plain:
        with _Progress(console) as progress:
            done = train.optimize(program, config, lambda what, seconds: progress(what))
        console.print(str(done), markup=False, highlight=False)
    session = train.Session(program.startup)

    def feeder(step: int) -> data.Feeds:
        return data.feeds(corpus.batch(step, config.batch_size), config.model)

    losses = itertools.islice(train.losses(session, program, feeder), steps)
    _show_progress(console, losses, steps, corpus.steps_per_epoch(config.batch_size))
    return session


def _show_progress(console: rich.console.Console, losses: Iterable[float], steps: int,
                   steps_per_epoch: int) -> None:
    """Consumes the losses; prints epoch means, since batches differ in sentence length."""
    columns = [*rich.progress.Progress.get_default_columns(), "loss {task.fields[loss]}"]
    epoch: List[float] = []
    told = time.perf_counter()
    with rich.progress.Progress(*columns, console=console,
                                disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=steps, loss="")
        for step, loss in enumerate(losses, start=1):
            epoch.append(loss)
            progress.update(task, advance=1, loss=f"{loss:.3f}")
            late = not console.is_terminal and time.perf_counter() - told > SECONDS_BETWEEN_LINES
            if step % steps_per_epoch == 0 or step == steps or late:
                told = time.perf_counter()
                progress.console.print(
                    f"step {step:5d} of {steps}  mean loss {statistics.mean(epoch):.4f}")
                epoch.clear()


def _translate(config: DemoConfig, corpus: data.Corpus, session: train.Session, sentences: int):
    pairs = corpus.held_out[:sentences]
    tokens = train.translate(session, model.build_translation_program(config.model), config.model,
                             pairs)
    return report.translations([
        (corpus.decode_source(pair.source), corpus.decode_target(pair.target),
         corpus.decode_target(translation)) for pair, translation in zip(pairs, tokens)
    ])


def _measure(console: rich.console.Console, config: DemoConfig, plain: bool) -> bool:
    console.print("measuring the program as it is, in fresh processes ..." if plain else
                  "measuring before and after memory_optimize, in turns, in fresh processes ...")
    with _Progress(console) as progress:
        measurements = measure.measure(config, plain, told=progress)
    console.print(report.before_and_after(measurements))
    console.print(
        "tensors: the peak above resting memory (parameters and the optimizer's state), as "
        "Paddle's allocator counts it; process: VmHWM, above what it had after startup")
    first, *rest = measurements.values()
    for other in rest:
        console.print(report.time_line(first, other), highlight=False)
    return all(first.same_results(other) for other in rest)


def main(argv: Optional[List[str]] = None) -> int:
    """Runs the demo; 1 if the optimized program trains differently, 2 if no text can be read."""
    began = time.perf_counter()
    arguments = _arguments(argv)
    config = _config(arguments)
    console = rich.console.Console()
    paddle.enable_static()
    try:
        corpus = data.load_corpus(config)
        corpus.steps_per_epoch(config.batch_size)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        console.print(f"cannot read the sentences: {error}", style="red", markup=False)
        return 2
    console.print(
        f"{len(corpus.train)} sentence pairs to train on, {len(corpus.held_out)} held out")
    equal = _measure(console, config, arguments.plain)
    session = _train(console, config, corpus, arguments.steps, arguments.plain)
    console.print(_translate(config, corpus, session, arguments.sentences))
    console.print(f"{time.perf_counter() - began:.0f} s in all")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
