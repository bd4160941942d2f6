"""The command: `python -m benchmarks.steady [PROGRAM...]` trains many steps of changing batch sizes and looks whether the process grows."""
from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, List, Optional, Tuple

import click
import paddle
from paddle import static
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.__main__ import size_options
from benchmarks.apart import apart
from benchmarks.measure import digest, optimize, process_bytes
from benchmarks.output import show, write
from benchmarks.programs import PROGRAMS, Options, build
from benchmarks.programs.case import Feed
from benchmarks.spec import Spec

MIB = 2**20
EARLY = 60  # steps, after which nothing should be new
WIDTH = 120  # where the output is no terminal


@dataclass(frozen=True)
class Run:
    """One program in one process: resident bytes above those after startup, after each step, and the highest."""
    program: str
    optimized: bool
    started_bytes: int
    resident_bytes: Tuple[int, ...]
    highest_bytes: int
    losses: Tuple[str, ...]

    @property
    def late_change(self) -> float:
        """Of what was resident after step EARLY: by how much it is more after the last."""
        early = self.resident_bytes[EARLY - 1] + self.started_bytes
        return (self.resident_bytes[-1] + self.started_bytes) / early - 1


def rows_of(step: int, most: int) -> int:
    """The batch size of a step: all from 1 to `most` come in turn, a small one after a large one."""
    turn, odd = divmod(step % most, 2)
    return 1 + turn if odd else most - turn


def cut(feed: Feed, rows: int) -> Feed:
    """The first rows of each input."""
    return {name: array[:rows] for name, array in feed.items()}


def train(program: str, options: Options, optimized: bool, steps: int) -> Run:
    """In this process, the default executor; batch sizes change from step to step."""
    case = build(program, options)
    if not isinstance(case.batch_size, int):
        raise ValueError(f"{program} has inputs of more than one batch size")
    if optimized:
        optimize(case, Spec(program))
    paddle.seed(options.seed)
    executor = static.Executor(paddle.CPUPlace())
    executor.run(case.startup)
    started = process_bytes("VmRSS")
    resident: List[int] = []
    losses: List[str] = []
    for step in range(steps):
        feed = cut(case.feed(step), rows_of(step, case.batch_size))
        values = executor.run(case.main, feed=feed, fetch_list=list(case.fetch))
        losses.append("".join(map(digest, values)))
        resident.append(process_bytes("VmRSS") - started)
    return Run(program, optimized, started, tuple(resident),
               process_bytes("VmHWM") - started, tuple(losses))


def table(runs: List[Run]) -> Table:
    """Megabytes above what there was after startup, along the steps."""
    steps = len(runs[0].resident_bytes)
    marks = sorted(
        {mark for mark in (1, 2, 5, 10, 20, 50, EARLY, 100, 200, steps) if mark <= steps})
    result = Table(title="Resident above startup after steps of changing batch sizes, MiB",
                   caption=f"late: all that is resident after the last step against step {EARLY}.")
    for column in ("program", "kind", *map(str, marks), "highest", "late"):
        result.add_column(column, no_wrap=True)
    for run in runs:
        result.add_row(run.program, "optimized" if run.optimized else "untouched",
                       *(f"{run.resident_bytes[mark - 1] / MIB:.0f}" for mark in marks),
                       f"{run.highest_bytes / MIB:.0f}", f"{100 * run.late_change:+.1f} %")
    return result


@click.command()
@click.argument("programs", nargs=-1, type=click.Choice(tuple(PROGRAMS)))
@click.option("--steps", type=click.IntRange(min=EARLY), default=300, show_default=True)
@click.option("--optimizer", default="momentum", show_default=True)
@click.option("--optimized", "kinds", flag_value="optimized", help="Only after memory_optimize.")
@click.option("--both", "kinds", flag_value="both", default="both", help="And untouched (default).")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Figures.")
@size_options
def main(programs: Tuple[str, ...], steps: int, optimizer: str, kinds: str, out: Optional[Path],
         **sizes: Any) -> None:
    """Train PROGRAMS, ResNet-50 if none is named, untouched and optimized, each in a fresh process; fails if a loss differs."""
    options = replace(Options(optimizer=optimizer), **sizes)
    wanted = [(name, optimized)
              for name in programs or ("resnet50",)
              for optimized in ((True,) if kinds == "optimized" else (False, True))]
    runs = [
        apart(train, name, options, optimized, steps)
        for name, optimized in track(wanted, console=Console(stderr=True), transient=True)
    ]
    show(table(runs), WIDTH)
    write((asdict(run) for run in runs), out)
    losses = {}
    for run in runs:
        if losses.setdefault(run.program, run.losses) != run.losses:
            raise click.ClickException(f"the losses of {run.program} differ")


if __name__ == "__main__":
    main()
