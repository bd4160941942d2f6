"""The tables that the demo prints."""
from __future__ import annotations

from typing import Dict, Sequence, Tuple

from rich.table import Table
from rich.text import Text

from demos.machine_translation.measure import Measurement

Row = Tuple[str, ...]


def before_and_after(measurements: Dict[str, Measurement]) -> Table:
    """One column for each measured program, and a ratio where there are two."""
    columns = list(measurements.values())
    table = Table("", *measurements, *(["before / after"] if len(columns) == 2 else []))
    for row in _figures(columns):
        table.add_row(*row)
    if len(columns) == 2:
        equal = columns[0].same_results(columns[1])
        steps = len(columns[0].first.losses)
        table.add_row(f"losses and parameters after {steps} steps",
                      "",
                      "equal to the last bit" if equal else "DIFFERENT",
                      style="green" if equal else "red")
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
        _row("peak above resting, first run (MB)", [c.first_peak / 1e6 for c in columns]),
        _row("peak above resting, later runs (MB)", [c.later_peak / 1e6 for c in columns]),
        _row("resting: parameters, moments (MB)", [c.first.resting / 1e6 for c in columns]),
        _row("step time (s)", [min(c.first.seconds, c.later.seconds) for c in columns], digits=3),
        _row("operators", [c.first.operators for c in columns], digits=0),
    ]


def _row(label: str, values: Sequence[float], digits: int = 1) -> Row:
    cells = [f"{value:,.{digits}f}" for value in values]
    ratio = [f"{values[0] / values[1]:.2f}x"] if len(values) == 2 else []
    return (label, *cells, *ratio)
