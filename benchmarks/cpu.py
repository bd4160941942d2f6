"""The command: `python -m benchmarks.cpu [PROGRAM...]` compares the processor time of training steps.

Untouched, optimized without settings of the heap and segments, and as by default: processes take turns, so that what others do on
the machine falls on all alike. Wall time says nothing there, and processor time still depends on who shares the caches.
"""
from __future__ import annotations

import os
import statistics
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Tuple

import click
import paddle
from paddle import static
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.__main__ import size_options
from benchmarks.apart import apart
from benchmarks.output import show, write
from benchmarks.programs import PROGRAMS, Options, build
from transpiler import memory_optimize

WIDTH = 120  # where the output is no terminal
UNTOUCHED = "untouched"
# What memory_optimize is told; None: it is not called.
KINDS: Mapping[str, Optional[Dict[str, bool]]] = MappingProxyType({
    UNTOUCHED: None,
    "heap and blocks as they are": {
        "heap": False,
        "segments": False
    },
    "default": {},
})


@dataclass(frozen=True)
class Times:
    """Seconds of a processor, all threads, system time included: of the first step, and of all later ones together."""
    program: str
    kind: str
    first: float
    later: float


def train(program: str, options: Options, kind: str, steps: int) -> Times:
    """In this process."""
    case, told = build(program, options), KINDS[kind]
    if told is not None:
        hints = {} if case.trip_count is None else {"trip_count": case.trip_count}
        memory_optimize(case.main,
                        fetch_list=list(case.fetch),
                        batch_size=case.batch_size,
                        **hints,
                        **told)
    executor = static.Executor(paddle.CPUPlace())
    executor.run(case.startup)
    spent: List[float] = []
    for step in range(steps):
        feed, before = case.feed(step), _spent()
        executor.run(case.main, feed=feed, fetch_list=list(case.fetch))
        spent.append(_spent() - before)
    return Times(program, kind, spent[0], sum(spent[1:]))


def _spent() -> float:
    times = os.times()
    return times.user + times.system


def table(times: List[Times]) -> Table:
    """The least and the median of the repeats; later steps also as a share of the untouched program's."""
    result = Table(title="CPU seconds: least / median of fresh processes that take turns")
    for column in ("program", "kind", "first step", "later steps", "of the untouched"):
        result.add_column(column, no_wrap=True)
    for program in dict.fromkeys(each.program for each in times):
        ours = [each for each in times if each.program == program]
        base = _both([each.later for each in ours if each.kind == UNTOUCHED])
        for kind in KINDS:
            of_kind = [each for each in ours if each.kind == kind]
            later = _both([each.later for each in of_kind])
            first = _both([each.first for each in of_kind])
            result.add_row(program, kind, "{:.2f} / {:.2f}".format(*first),
                           "{:.2f} / {:.2f}".format(*later),
                           "{:.3f} / {:.3f}".format(later[0] / base[0], later[1] / base[1]))
    return result


def _both(values: List[float]) -> Tuple[float, float]:
    return min(values), statistics.median(values)


@click.command()
@click.argument("programs", nargs=-1, type=click.Choice(tuple(PROGRAMS)))
@click.option("--steps", type=click.IntRange(min=2), default=10, show_default=True)
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--optimizer", default="momentum", show_default=True)
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Figures.")
@size_options
def main(programs: Tuple[str, ...], steps: int, repeat: int, optimizer: str, out: Optional[Path],
         **sizes: Any) -> None:
    """Train PROGRAMS, ResNet-50 if none is named, in processes of one thread that take turns."""
    options = replace(Options(optimizer=optimizer), **sizes)
    turns = [
        (name, kind) for name in programs or ("resnet50",) for _ in range(repeat) for kind in KINDS
    ]
    times = [
        apart(train, name, options, kind, steps)
        for name, kind in track(turns, console=Console(stderr=True), transient=True)
    ]
    show(table(times), WIDTH)
    write((asdict(each) for each in times), out)


if __name__ == "__main__":
    main()
