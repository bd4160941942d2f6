"""Are the results equal to the last bit? `python -m benchmarks.equality [PROGRAM...]`.

Each program is built and trained with each optimizer: untouched, after memory_optimize for the executor that collects, and
after memory_optimize for the one that holds. They run in every mode of the executor, each time from a fresh scope, and
losses, parameters, optimizer state and statistics are compared: each mode with the plan for it, the default executor with
the plan for the other one, too. One process a case.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import click
from rich.table import Table

from benchmarks.output import show, write
from benchmarks.spec import EXECUTORS

ROOT = Path(__file__).resolve().parent.parent
PIPE_WIDTH = 160
RUNTIMES = ("collecting", "retaining")

# The sizes of a case: those of the program itself would take hours. VGG's classifier is narrowed.
SIZES: Mapping[str, Mapping[str, int]] = MappingProxyType({
    "resnet50": {
        "image_size": 32,
        "classes": 10,
        "batch_size": 2
    },
    "vgg16": {
        "image_size": 32,
        "classes": 10,
        "batch_size": 2,
        "width": 64
    },
    "mobilenet_v2": {
        "image_size": 64,
        "classes": 10,
        "batch_size": 2
    },
    "densenet121": {
        "image_size": 32,
        "classes": 10,
        "batch_size": 2
    },
    "transformer": {
        "batch_size": 2,
        "length": 16,
        "width": 64
    },
    "lstm": {
        "batch_size": 8,
        "length": 20,
        "width": 64
    },
    "fc_chain": {
        "batch_size": 64,
        "width": 256
    },
    "demo": {
        "batch_size": 4
    },
    "bert": {
        "batch_size": 2,
        "length": 16,
        "width": 64
    },
    "inception_v3": {
        "image_size": 96,
        "classes": 10,
        "batch_size": 2
    },
})
DEFAULT_PROGRAMS = ("resnet50", "vgg16", "mobilenet_v2", "densenet121", "transformer", "lstm",
                    "fc_chain", "demo")


@dataclass(frozen=True)
class Mode:
    """How the executor is told to run."""
    executor: str
    collection: bool
    in_place: bool

    def flags(self) -> Dict[str, Any]:
        """For paddle.set_flags."""
        order = {name: value == "1" for name, value in EXECUTORS[self.executor].items()}
        return {
            **order, "FLAGS_eager_delete_tensor_gb": 0.0 if self.collection else -1.0,
            "FLAGS_new_executor_use_inplace": self.in_place
        }

    def __str__(self) -> str:
        collection = "on" if self.collection else "off"
        return f"{self.executor}/{collection}{'/in-place' if self.in_place else ''}"

    def runtimes(self) -> Tuple[str, ...]:
        """Whose plans are run in this mode."""
        own = RUNTIMES[0 if self.collection else 1]
        return RUNTIMES if self.executor == "default" and not self.in_place else (own,)


MODES: Tuple[Mode, ...] = tuple(
    Mode(*each, in_place=False) for each in product(EXECUTORS, (True, False))) + tuple(
        Mode("default", each, in_place=True) for each in (True, False))


@dataclass(frozen=True)
class Request:
    """One case; `threads` are those of a kernel."""
    program: str
    optimizer: str
    threads: int
    steps: int

    def environment(self) -> Dict[str, str]:
        """What must be set before Paddle is imported."""
        threads = str(self.threads)
        return {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "GLOG_minloglevel": "2"}


@dataclass(frozen=True)
class Verdict:
    """What came of a case. `different` names the mode, the plan and the first thing that is not equal."""
    request: Request
    ops: int = 0
    runs: int = 0
    changed: Tuple[str, ...] = ()
    different: Tuple[str, ...] = ()
    seconds: float = 0.0
    failure: Optional[str] = None

    @property
    def sound(self) -> bool:
        """It ran, and all bytes are equal."""
        return self.failure is None and not self.different


@dataclass(frozen=True)
class Outcome:
    """What a run showed: the fetched values of each step, and a digest of all state after the last."""
    fetched: Tuple[Tuple[str, ...], ...]
    state: str

    def difference(self, other: Outcome) -> Optional[str]:
        """The first thing that is not the same to the last bit."""
        for step, (expected, got) in enumerate(zip(self.fetched, other.fetched)):
            if expected != got:
                return f"fetched values differ at step {step}"
        return None if self.state == other.state else "parameters or statistics differ"


def check(request: Request) -> Verdict:
    """One case, in this process."""
    from benchmarks.programs import Options, build
    from transpiler import memory_optimize
    started = time.perf_counter()
    options = replace(Options(), optimizer=request.optimizer, **SIZES.get(request.program, {}))
    untouched = build(request.program, options)
    changed, optimized = [], {}
    for runtime in RUNTIMES:
        case = optimized[runtime] = build(request.program, options)
        report = memory_optimize(case.main,
                                 fetch_list=list(case.fetch),
                                 batch_size=case.batch_size,
                                 trip_count=case.trip_count,
                                 runtime=runtime)
        changed += [runtime] if report.changed else []
    different = []
    modes = list(_possible_modes(untouched))
    for mode in modes:
        reference = _run(untouched, mode, request.steps, options.seed)
        for runtime in mode.runtimes():
            outcome = _run(optimized[runtime], mode, request.steps, options.seed)
            problem = reference.difference(outcome)
            different += [f"{mode}, {runtime}: {problem}"] if problem else []
    return Verdict(request,
                   ops=sum(len(block.ops) for block in untouched.main.blocks),
                   runs=sum(len(mode.runtimes()) for mode in modes),
                   changed=tuple(changed),
                   different=tuple(different),
                   seconds=time.perf_counter() - started)


def _possible_modes(case: Any) -> Iterator[Mode]:
    """FLAGS_new_executor_use_inplace crashes untouched programs that have sub-blocks (2.6.2)."""
    return (mode for mode in MODES if not mode.in_place or case.main.num_blocks == 1)


def _run(case: Any, mode: Mode, steps: int, seed: int) -> Outcome:
    import paddle
    from benchmarks.measure import digest, state_digest
    paddle.set_flags(mode.flags())
    paddle.seed(seed)
    scope = paddle.static.Scope()
    with paddle.static.scope_guard(scope):
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        fetched = []
        for step in range(steps):
            values = executor.run(case.main, feed=case.feed(step), fetch_list=list(case.fetch))
            fetched.append(tuple(digest(value) for value in values))
        outcome = Outcome(tuple(fetched), state_digest(case.main, scope))
    scope._remove_from_pool()
    return outcome


def check_in_child(request: Request) -> Verdict:
    """One fresh process, one case."""
    path = os.pathsep.join(each for each in (str(ROOT), os.environ.get("PYTHONPATH")) if each)
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.equality", "--case",
         json.dumps(asdict(request))],
        env={
            **os.environ,
            **request.environment(), "PYTHONPATH": path
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        check=False)
    if child.returncode != 0:
        return Verdict(request, failure=f"status {child.returncode}: {child.stderr[-2000:]}")
    values = json.loads(child.stdout.splitlines()[-1])
    return replace(Verdict(**values),
                   request=request,
                   changed=tuple(values["changed"]),
                   different=tuple(values["different"]))


def _row(verdict: Verdict) -> List[str]:
    request = verdict.request
    equal = "failed" if verdict.failure else "; ".join(verdict.different) or "equal"
    return [
        request.program, request.optimizer,
        str(request.threads),
        str(verdict.ops),
        str(verdict.runs), ", ".join(verdict.changed), f"{verdict.seconds:.0f}", equal
    ]


def table(verdicts: List[Verdict]) -> Table:
    """One row a case."""
    result = Table(title="Losses, parameters, state and statistics against the untouched program")
    for name in ("program", "optimizer", "threads", "ops", "runs", "changed for", "s", "bytes"):
        result.add_column(name)
    for verdict in verdicts:
        result.add_row(*_row(verdict))
    return result


@click.command()
@click.argument("programs", nargs=-1)
@click.option("--optimizer",
              "optimizers",
              multiple=True,
              type=click.Choice(("sgd", "momentum", "adam")),
              default=("sgd", "momentum", "adam"),
              show_default=True)
@click.option("--threads",
              multiple=True,
              type=click.IntRange(min=1),
              default=(1,),
              show_default=True,
              help="Threads of a kernel.")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Verdicts.")
@click.option("--case", hidden=True, help="Used by the command itself: one case, in this process.")
def main(programs: Tuple[str, ...], optimizers: Tuple[str, ...], threads: Tuple[int, ...],
         steps: int, out: Optional[Path], case: Optional[str]) -> None:
    """Compare PROGRAMS (those of the README unless named), in every mode of the executor."""
    if case is not None:
        click.echo(json.dumps(asdict(check(Request(**json.loads(case))))))
        return
    verdicts = []
    for each in product(programs or DEFAULT_PROGRAMS, optimizers, threads):
        verdicts.append(check_in_child(Request(*each, steps=steps)))
        click.echo("  ".join(_row(verdicts[-1])), err=True)
    show(table(verdicts), PIPE_WIDTH)
    for verdict in verdicts:
        if verdict.failure:
            click.echo(f"{verdict.request.program}: {verdict.failure}", err=True)
    write((asdict(each) for each in verdicts), out)
    if not all(verdict.sound for verdict in verdicts):
        raise click.ClickException("not everything ran, or not all results are equal")


if __name__ == "__main__":
    main()
