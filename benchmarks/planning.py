"""How long planning takes as programs grow: `python -m benchmarks.planning`."""
from __future__ import annotations

import gc
import json
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import List, Optional, Sequence, Tuple, Union

import click
from rich.console import Console
from rich.table import Table

from benchmarks.programs import Case, Options, build

# Sizes so small that nothing but the number of ops matters.
TINY = Options(batch_size=2, width=8, length=4, heads=2, vocabulary=16, classes=4)

FAMILIES: Tuple[str, ...] = ("fc_chain", "transformer")


@dataclass(frozen=True)
class Planning:
    """One plan: the ops of the program, and the seconds that building and planning it took.

    `cpu_seconds` are those that the process was at work: on a machine that others use too, they say more.
    """
    program: str
    ops: int
    build_seconds: float
    planning_seconds: float
    cpu_seconds: float


def count_ops(case: Case) -> int:
    """Ops of all blocks."""
    return sum(len(block.ops) for block in case.main.blocks)


def layers_for(program: str, options: Options, ops: int) -> int:
    """The layers for at least that many ops: each layer adds the same number of ops."""
    two, three = (count_ops(build(program, replace(options, layers=each))) for each in (2, 3))
    return max(1, 2 + math.ceil((ops - two) / (three - two)))


def plan(program: str,
         options: Options,
         ops: int,
         runtime: str = "collecting",
         recompute: Union[str, bool] = "auto") -> Planning:
    """Build a training program of about that many ops and time memory_optimize on it."""
    from transpiler import memory_optimize
    sized = replace(options, layers=layers_for(program, options, ops))
    started = time.perf_counter()
    case = build(program, sized)
    built = time.perf_counter()
    total = count_ops(case)
    gc.collect()
    before, cpu_before = time.perf_counter(), time.process_time()
    memory_optimize(case.main,
                    fetch_list=list(case.fetch),
                    batch_size=case.batch_size,
                    runtime=runtime,
                    recompute=recompute)
    return Planning(program, total, built - started,
                    time.perf_counter() - before,
                    time.process_time() - cpu_before)


def growth(smaller: Planning, larger: Planning) -> float:
    """The exponent k of CPU seconds ~ ops**k between two plans: 1 is linear, 2 quadratic."""
    return (math.log(larger.cpu_seconds / smaller.cpu_seconds) / math.log(larger.ops / smaller.ops))


def _growth_cell(previous: Optional[Planning], current: Planning) -> str:
    if previous is None or previous.program != current.program or previous.ops == current.ops:
        return ""
    return "ops^{:.2f}".format(growth(previous, current))


def table(plans: Sequence[Planning]) -> Table:
    """One row a plan, each with the growth from the row above."""
    result = Table(title="Planning time")
    result.add_column("program")
    for name in ("ops", "build s", "planning s", "CPU s", "us per op", "growth"):
        result.add_column(name, justify="right")
    previous: List[Optional[Planning]] = [None, *plans]
    for before, each in zip(previous, plans):
        result.add_row(each.program, str(each.ops), "{:.2f}".format(each.build_seconds),
                       "{:.3f}".format(each.planning_seconds), "{:.3f}".format(each.cpu_seconds),
                       "{:.0f}".format(1e6 * each.cpu_seconds / each.ops),
                       _growth_cell(before, each))
    return result


@click.command()
@click.option("--ops",
              "sizes",
              multiple=True,
              type=click.IntRange(min=1),
              default=(1600, 3200, 10000),
              show_default=True)
@click.option("--program",
              "programs",
              multiple=True,
              type=click.Choice(FAMILIES),
              default=FAMILIES,
              show_default=True)
@click.option("--runtime",
              type=click.Choice(("collecting", "retaining")),
              default="collecting",
              show_default=True)
@click.option("--no-recompute", is_flag=True, help="All passes but recomputation.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path))
def main(sizes: Tuple[int, ...], programs: Tuple[str, ...], runtime: str, no_recompute: bool,
         out: Optional[Path]) -> None:
    """Time memory_optimize on generated training programs of several sizes."""
    plans: List[Planning] = [
        plan(program, TINY, size, runtime, False if no_recompute else "auto")
        for program in programs
        for size in sorted(sizes)
    ]
    Console().print(table(plans))
    if out is not None:
        out.write_text(json.dumps([asdict(each) for each in plans], indent=1) + "\n")


if __name__ == "__main__":
    main()
