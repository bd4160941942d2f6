"""The tables that the demo prints."""
from __future__ import annotations

from typing import Dict, Sequence, Tuple

from rich.table import Table
from rich.text import Text

from demos.machine_translation.measure import Measurement

Row = Tuple[str, ...]
MIB = 2**20


def before_and_after(measurements: Dict[str, Measurement]) -> Table:
    """One column for each measured program, and a ratio where there are two."""
    columns = list(measurements.values())
    table = Table("", *measurements, *(["change"] if len(columns) == 2 else []))
    for row in _figures(columns):
        table.add_row(*row)
    if len(columns) == 2:
        equal = columns[0].same_results(columns[1])
        steps = len(columns[0].first.losses)
        table.caption = (f"Losses and parameters after {steps} steps: " +
                         ("equal to the last bit." if equal else "DIFFERENT."))
        table.caption_style = "green" if equal else "red"
    return table


def translations(rows: Sequence[Tuple[str, str, str]]) -> Table:
    """Held-out sentences with their reference and greedy translations."""
    table = Table("held-out sentence", "reference", "translation", show_lines=True)
    for row in rows:
        # Interface texts have square brackets, which rich would take for markup.
        table.add_row(*map(Text, row))
    return table


def _figures(columns: Sequence[Measurement]) -> Sequence[Row]:
    return [
        _row("process grew by (MiB)", [c.growth / MIB for c in columns]),
        _row("tensors, first run (MiB)", [c.first_peak / MIB for c in columns]),
        _row("tensors, later runs (MiB)", [c.later_peak / MIB for c in columns]),
        _row("resting (MiB)", [c.first.resting / MIB for c in columns]),
        *_times(columns),
        _row("operators", [c.first.operators for c in columns], digits=0),
    ]


def time_line(before: Measurement, after: Measurement) -> str:
    """What the optimizer may take, what it said that it would, and what it took."""
    again, copies = after.first.predicted
    measured = [
        _change(*pair) for pair in ((before.processor_seconds, after.processor_seconds),
                                    (before.seconds[0], after.seconds[0]))
    ]
    return (
        "time of a step: operators that run again may take 10 % of the processors' time (max_overhead), by a model of it, "
        "and besides that the time of the copies that loops no longer make.\n"
        f"  predicted: {again:+.1%} for operators that run again, {-copies:+.1%} for those copies: {again - copies:+.1%}\n"
        f"  measured:  {measured[0]} of the processors' time, {measured[1]} by the clock\n"
        "The model predicts, it limits nothing; other work adds to the clock's time. recompute=False takes least time, and more memory."
    )


def _times(columns: Sequence[Measurement]) -> Sequence[Row]:
    rows = [("processor seconds a step, least", [c.processor_seconds for c in columns]),
            ("clock seconds a step, least", [c.seconds[0] for c in columns])]
    spread = [f"{low:.2f} to {high:.2f}" for low, _, high in (c.seconds for c in columns)]
    return [
        *(_row(label, seconds, digits=3) for label, seconds in rows),
        ("clock seconds, all steps", *spread, *([""] if len(columns) == 2 else []))
    ]


def _row(label: str, values: Sequence[float], digits: int = 1) -> Row:
    cells = [f"{value:,.{digits}f}" for value in values]
    return (label, *cells, *([_change(*values)] if len(values) == 2 else []))


def _change(before: float, after: float) -> str:
    if not before or not after or round(before / after, 2) == 1:
        return "same" if before == after or before and after else ""
    return f"{before / after:.2f}x less" if before > 1.5 * after else f"{after / before - 1:+.0%}"
