"""How long planning takes as programs grow, and how much memory: `python -m benchmarks.planning`.

Each plan is made in a process of its own. Paddle's share is measured in another one, under a profiler: what the functions of Paddle
and of protobuf take by themselves. What Python only reaches as an attribute or a constructor is not seen, so it is at least that.
"""
from __future__ import annotations

import cProfile
import gc
import json
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple, Union

import click
from rich.console import Console
from rich.table import Table

from benchmarks.apart import apart
from benchmarks.measure import process_bytes
from benchmarks.programs import Case, Options, build

# Sizes so small that nothing but the number of ops matters.
TINY = Options(batch_size=2, width=8, length=4, heads=2, vocabulary=16, classes=4)

FAMILIES: Tuple[str, ...] = ("fc_chain", "transformer")

# Whose functions are Paddle's, protobuf's among them: by the names of built-in ones, and the files of those in Python.
_BUILT_IN, _FILES = ("libpaddle", "google._upb"), ("/site-packages/paddle/", "/google/protobuf/")


@dataclass(frozen=True)
class Planning:
    """One plan: the ops of the program, and the seconds that building and planning it took.

    `cpu_seconds` are those that the process was at work: on a machine that others use too, they say more. `paddle_seconds` are those
    of them that Paddle's own functions take. `resident_bytes` is the most that the process had while it planned, `grown_bytes` that
    above what it had before, `held_bytes` what is left of it while the report is kept.
    """
    program: str
    ops: int
    build_seconds: float
    planning_seconds: float
    cpu_seconds: float
    paddle_seconds: float = 0.0
    resident_bytes: int = 0
    grown_bytes: int = 0
    held_bytes: int = 0


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
    """Build a training program of about that many ops, time memory_optimize on it, and look at the memory of the process, whose
    imports are made before."""
    import transpiler.api  # pylint: disable=unused-import
    sized = replace(options, layers=layers_for(program, options, ops))
    started = time.perf_counter()
    case = build(program, sized)
    built = time.perf_counter()
    total = count_ops(case)
    gc.collect()
    _forget_highest()
    resident = process_bytes("VmRSS")
    before, cpu_before = time.perf_counter(), time.process_time()
    report = _optimized(case, runtime, recompute)
    seconds, cpu_seconds = time.perf_counter() - before, time.process_time() - cpu_before
    highest, left = process_bytes("VmHWM"), process_bytes("VmRSS")
    del report
    return Planning(program,
                    total,
                    built - started,
                    seconds,
                    cpu_seconds,
                    resident_bytes=highest,
                    grown_bytes=highest - resident,
                    held_bytes=left - resident)


def paddle_seconds(program: str,
                   options: Options,
                   ops: int,
                   runtime: str = "collecting",
                   recompute: Union[str, bool] = "auto") -> float:
    """CPU seconds of the same plan that functions of Paddle and protobuf take by themselves."""
    case = build(program, replace(options, layers=layers_for(program, options, ops)))
    profiler = cProfile.Profile(time.process_time)
    profiler.enable()
    _optimized(case, runtime, recompute)
    profiler.disable()
    profiler.create_stats()
    return sum(own for where, (_, _, own, _, _) in profiler.stats.items() if _is_paddles(*where))


def _optimized(case: Case, runtime: str, recompute: Union[str, bool]) -> Any:
    from transpiler import memory_optimize
    return memory_optimize(case.main,
                           fetch_list=list(case.fetch),
                           batch_size=case.batch_size,
                           runtime=runtime,
                           recompute=recompute)


def _forget_highest() -> None:
    """From here on VmHWM is the highest."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _is_paddles(file: str, _line: int, function: str) -> bool:
    return any(own in function for own in _BUILT_IN) or any(own in file for own in _FILES)


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
    for name in ("ops", "build s", "planning s", "CPU s", "of it Paddle's", "us per op", "growth",
                 "resident MB", "grown MB", "held MB"):
        result.add_column(name, justify="right")
    previous: List[Optional[Planning]] = [None, *plans]
    for before, each in zip(previous, plans):
        result.add_row(
            each.program, str(each.ops), "{:.2f}".format(each.build_seconds),
            "{:.3f}".format(each.planning_seconds), "{:.3f}".format(each.cpu_seconds),
            "{:.3f}".format(each.paddle_seconds),
            "{:.0f}".format(1e6 * each.cpu_seconds / each.ops), _growth_cell(before, each),
            *("{:.0f}".format(size / 2**20)
              for size in (each.resident_bytes, each.grown_bytes, each.held_bytes)))
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
@click.option("--no-share", is_flag=True, help="Paddle's share is not measured.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path))
def main(sizes: Tuple[int, ...], programs: Tuple[str, ...], runtime: str, no_recompute: bool,
         no_share: bool, out: Optional[Path]) -> None:
    """Time memory_optimize on generated training programs of several sizes."""
    plans: List[Planning] = []
    for program in programs:
        for size in sorted(sizes):
            asked = program, TINY, size, runtime, False if no_recompute else "auto"
            share = 0.0 if no_share else apart(paddle_seconds, *asked)
            plans.append(replace(apart(plan, *asked), paddle_seconds=share))
    Console().print(table(plans))
    if out is not None:
        out.write_text(json.dumps([asdict(each) for each in plans], indent=1) + "\n")


if __name__ == "__main__":
    main()
