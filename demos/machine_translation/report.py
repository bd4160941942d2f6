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
    table = Table("", *measurements, *(["ratio"] if len(columns) == 2 else []))
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


def _times(columns: Sequence[Measurement]) -> Sequence[Row]:
    fastest = _row("seconds a step, fastest", [c.seconds[0] for c in columns], digits=3)
    spread = [f"{low:.2f} to {high:.2f}" for low, _, high in (c.seconds for c in columns)]
    return [fastest, ("of steps that took turns", *spread, *([""] if len(columns) == 2 else []))]


def _row(label: str, values: Sequence[float], digits: int = 1) -> Row:
    cells = [f"{value:,.{digits}f}" for value in values]
    ratio = [f"{values[0] / values[1]:.2f}x" if values[1] else ""] if len(values) == 2 else []
    return (label, *cells, *ratio)
