"""The table of measurements; memory in MiB (2**20 bytes): of the process since startup, of tensors above resting."""
from __future__ import annotations

from typing import List, Optional, Sequence

from rich.table import Table

from benchmarks.runner import EQUAL, Spread, Summary
from benchmarks.spec import Prediction, Spec

MIB = 2.0**20

NUMBERS = ("ops", "process", "anon", "run 1 s", "resting", "first", "later", "held", "step ms",
           "said before", "said after", "bound", "plan s")


def _mib(count: Optional[float]) -> str:
    return "" if count is None else "{:.2f}".format(count / MIB)


def _spread(spread: Optional[Spread], scale: float) -> str:
    """Minimum, median and maximum, or one figure where they agree."""
    if spread is None:
        return ""
    figures = [
        "{:.2f}".format(each / scale) for each in (spread.minimum, spread.median, spread.maximum)
    ]
    return figures[0] if figures[0] == figures[-1] else " / ".join(figures)


def _milliseconds(spread: Spread) -> str:
    return "{:.1f} / {:.1f}".format(1e3 * spread.minimum, 1e3 * spread.median)


def _verdict(summary: Summary) -> str:
    verdict = summary.verdict
    if verdict is None:
        return "" if summary.spec.optimized else "reference"
    return verdict if verdict == EQUAL else "[bold red]{}[/]".format(verdict)


def _names(spec: Spec, training: bool, changed: bool) -> List[str]:
    """The cells that say what was measured."""
    kind = "released" if spec.released else "optimized" if spec.optimized else "plain"
    return [
        spec.program if training else spec.program + " (inference)",
        str(dict(spec.options).get("optimizer", "")) if training else "",
        kind if changed or not spec.optimized else "unchanged", spec.executor,
        "on" if spec.collection else "off"
    ]


def _predicted(said: Optional[Prediction]) -> List[str]:
    """The cells that say what the report predicted."""
    if said is None:
        return [""] * 4
    return [
        _mib(said.peak_bytes_before),
        _mib(said.peak_bytes_after),
        _mib(said.lower_bound_bytes), "{:.2f}".format(said.planning_seconds)
    ]


def row(summary: Summary) -> List[str]:
    """The cells of one measurement."""
    if summary.failure is not None:
        return _names(summary.spec, True, True) + [""] * len(NUMBERS) + ["[bold red]failed[/]"]
    result = summary.results[0]
    said = result.prediction
    measured = [
        str(result.ops),
        _spread(summary.growth, MIB),
        _spread(summary.anonymous_growth, MIB),
        _spread(summary.first_seconds, 1),
        _mib(result.resting_bytes),
        _spread(summary.first_peak, MIB),
        _spread(summary.later_peak, MIB),
        _mib(result.held_bytes),
        _milliseconds(summary.step_seconds)
    ]
    names = _names(summary.spec, result.training, said is None or said.changed)
    return names + measured + _predicted(said) + [_verdict(summary)]


def table(summaries: Sequence[Summary]) -> Table:
    """All measurements; several figures in a cell are minimum, median and maximum."""
    result = Table(
        title="Memory in MiB (minimum / median / maximum)",
        caption=
        "process: the highest that the operating system counts, above what there was after startup; anon: how much more "
        "anonymous memory in the end. All else is of tensors, above resting. held: left after the last run. said and bound: the "
        "report's prediction.")
    for name in ("program", "optimizer", "kind", "executor", "collect"):
        result.add_column(name, no_wrap=True)
    for name in NUMBERS:
        result.add_column(name, justify="right", no_wrap=True)
    result.add_column("bytes")
    for summary in summaries:
        result.add_row(*row(summary))
    return result
