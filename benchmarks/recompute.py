"""What recomputation costs and brings, beside MXNet's mirroring and Paddle's RecomputeOptimizer: `python -m benchmarks.recompute`."""
from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import click
from rich.table import Table

from benchmarks.output import show, write
from benchmarks.runner import EQUAL, MeasurementError, difference, measure_in_child
from benchmarks.spec import EXECUTORS, Result, Spec

MIB = 2.0**20
PIPE_WIDTH = 200
_BROKEN = "broken"
EVERYTHING = "max"


@dataclass(frozen=True)
class Study:
    """A program, and what mirroring reached on it: MiB above resting, and its extra time as a share of a step.

    `parameter_gradients_mib` is the gradient of a parameter that is as large as an activation: mirroring does not
    count it.
    """
    program: str
    options: Mapping[str, Any]
    mirrored_mib: Optional[float] = None
    mirrored_time: Optional[float] = None
    parameter_gradients_mib: float = 0.0

    @property
    def goal_mib(self) -> Optional[float]:
        """What mirroring reached, counted as here."""
        return None if self.mirrored_mib is None else self.mirrored_mib + self.parameter_gradients_mib


def _study(program: str,
           mirrored: Tuple[Optional[float], Optional[float]] = (None, None),
           **options: Any) -> Study:
    return Study(program, MappingProxyType(options), *mirrored)


_STEPS = {
    f"case2-T{steps}":
        replace(_study("attention_steps", (mib, time), trip_count=steps),
                parameter_gradients_mib=steps * 4096 * 4 / MIB)
    for steps, mib, time in ((20, 0.97, 0.69), (50, 2.4, 0.69), (100, 4.0, 0.73))
}
STUDIES: Mapping[str, Study] = MappingProxyType({
    "case1": _study("rnn_cell"),
    **_STEPS,
    "case3": _study("tanh_product"),
    "chain": _study("tanh_chain", (204.0, 1.0)),
    "transformer": _study("transformer_gelu", (245.0, 0.16)),
    "transformer-dry": _study("transformer_gelu", (172.0, 0.10), dropout=0.0),
    "transformer-512": _study("transformer_gelu", length=512),
    "transformer-512-dry": _study("transformer_gelu", length=512, dropout=0.0),
    "nmt": _study("nmt", (506.0, 0.079)),
    "resnet50": _study("resnet50", (1516.0, 0.087), batch_size=32, image_size=224),
    "resnet50-8": _study("resnet50", (None, 0.087), batch_size=8, image_size=224),
    "resnet152": _study("resnet152", (2913.0, 0.069), batch_size=32, image_size=224),
    **{
        name: _study(name) for name in ("demo", "gru_loop", "attention_loop", "nested_loops", "dynamic_rnn")
    },
    "resnet152-4": _study("resnet152", (None, 0.069), batch_size=4, image_size=224),
})


@dataclass(frozen=True)
class Row:
    """One measurement of a study. `budget` is what was asked for, in bytes with resting memory."""
    study: str
    kind: str
    result: Result
    plain: Result

    @property
    def extra(self) -> float:
        """Extra time of a step, by CPU seconds: other processes on the machine do not add to them."""
        return min(self.result.step_cpu_seconds) / min(self.plain.step_cpu_seconds) - 1

    @property
    def meets_budget(self) -> Optional[bool]:
        budget = self.result.spec.budget
        return None if budget is None else max(
            self.result.peak_bytes) + self.result.resting_bytes <= budget


def budgets(study: Study, least: int, most: int, count: int) -> List[int]:
    """Bytes above resting: mirroring's own peak, then from `most` down to `least`, in equal steps."""
    steps = [
        least + (most - least) * number // max(1, count - 1) for number in reversed(range(count))
    ]
    goal = study.goal_mib
    first = [int(goal * MIB)] if goal is not None and least <= goal * MIB < most else []
    return list(dict.fromkeys(first + steps))


def measure(name: str, points: int, executor: str, steps: int, checkpoints: bool) -> List[Row]:
    """Untouched, auto, at each budget and, if asked, RecomputeOptimizer and a budget of the same peak."""
    study = STUDIES[name]
    spec = Spec(study.program, tuple(sorted(study.options.items())), executor=executor, steps=steps)
    plain = measure_in_child(spec)
    rows = [Row(name, "untouched", plain, plain)]

    def add(kind: str, **changes: Any) -> Result:
        result = measure_in_child(replace(spec, **changes))
        rows.append(Row(name, kind, result, plain))
        return result

    # Where two names share memory the report counts both.
    resting = max(plain.resting_bytes, add("auto", optimized=True).prediction.resting_bytes)

    def fit(peak: int, kind: str) -> None:
        add(kind, optimized=True, recompute=EVERYTHING, budget=peak + resting)

    if points:
        said = add("max", optimized=True, recompute=EVERYTHING).prediction
        least = said.budget_bytes
        most = max(least, said.peak_bytes_before)
        for budget in budgets(study, least, most, points):
            fit(budget, f"budget {budget / MIB:.1f} ({budget / most:.0%})")
    if checkpoints:
        try:
            theirs = add("RecomputeOptimizer",
                         options=tuple(sorted({
                             **study.options, "checkpoints": True
                         }.items())))
            for which, peak in ("highest", max(theirs.peak_bytes)), ("lowest",
                                                                     min(theirs.peak_bytes)):
                fit(peak, f"at its {which} peak")
        except MeasurementError as error:  # it takes more than the machine has, or no plan fits its lowest peak
            click.echo(str(error).splitlines()[-1], err=True)
    return rows


def _cells(row: Row) -> List[str]:
    result, said, study = row.result, row.result.prediction, STUDIES[row.study]
    later = min(result.peak_bytes[1:], default=result.peak_bytes[0])
    most = max(result.peak_bytes)
    meets = {None: "", True: "met", False: _BROKEN}[row.meets_budget]
    verdict = difference(row.plain, result)
    return [
        row.study, row.kind, f"{result.peak_bytes[0] / MIB:.2f}", f"{later / MIB:.2f}",
        f"{most / MIB:.2f}", "" if said is None else f"{said.needed_bytes / MIB:.2f}",
        "" if study.goal_mib is None else f"{study.goal_mib:.2f}",
        "" if said is None else f"{said.overhead:+.1%}", f"{row.extra:+.1%}",
        "" if study.mirrored_time is None else f"{study.mirrored_time:+.1%}",
        "" if said is None else str(said.clones), meets, "" if verdict == EQUAL else verdict,
        "" if said is None else f"{said.planning_cpu_seconds:.1f}"
    ]


_COLUMNS = ("case", "kind", "first", "later", "most", "predicted", "mirrored", "extra predicted",
            "extra", "mirrored extra", "clones", "budget", "bytes", "plan s")


def table(rows: Sequence[Row]) -> Table:
    """All rows; memory in MiB above resting."""
    result = Table(title="Recomputation: peak above resting in MiB, and extra time of a step",
                   caption="mirrored: MXNet's figure, which leaves parameter gradients out (x's of "
                   "case 2 is added). Times are CPU seconds of one thread, the least of the runs.")
    for name in _COLUMNS:
        result.add_column(name, no_wrap=True)
    for row in rows:
        result.add_row(
            *(f"[bold red]{cell}[/]" if cell == _BROKEN else cell for cell in _cells(row)))
    return result


def markdown(rows: Sequence[Row]) -> str:
    """The columns of `table` in which something stands, for a document."""
    lines = [_COLUMNS, *map(_cells, rows)]
    used = [at for at in range(len(_COLUMNS)) if any(line[at] for line in lines[1:])]
    text = ["| " + " | ".join(line[at] for at in used) + " |" for line in lines]
    return "\n".join([text[0], "|" + "---|" * len(used), *text[1:]])


def _plain(row: Row) -> Dict[str, Any]:
    return {"study": row.study, "kind": row.kind, "extra": row.extra, **row.result.to_dict()}


@click.command()
@click.argument("names", nargs=-1)
@click.option("--points", type=click.IntRange(0), default=3, show_default=True, help="Budgets.")
@click.option("--steps", type=click.IntRange(2), default=3, show_default=True)
@click.option("--executor", type=click.Choice(tuple(EXECUTORS)), default="default")
@click.option("--checkpoints",
              is_flag=True,
              help="RecomputeOptimizer, too, and its peak as budget.")
@click.option("--markdown", "as_markdown", is_flag=True, help="A table for a document.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path))
def main(names: Tuple[str, ...], points: int, steps: int, executor: str, checkpoints: bool,
         as_markdown: bool, out: Optional[Path]) -> None:
    """Measure the cases NAMES (all of them if none is given), each figure in a fresh process."""
    unknown = sorted(set(names) - set(STUDIES))
    if unknown:
        raise click.ClickException(f"no case {unknown[0]!r}: choose from {', '.join(STUDIES)}")
    rows: List[Row] = []
    for name in names or STUDIES:
        try:
            rows += measure(name, points, executor, steps, checkpoints)
        except MeasurementError as error:
            click.echo(str(error), err=True)
    if as_markdown:
        click.echo(markdown(rows))
    else:
        show(table(rows), PIPE_WIDTH)
    write((_plain(row) for row in rows), out)


if __name__ == "__main__":
    main()
