"""Ours beside the references, budget by budget: `python -m benchmarks.references`."""
from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

import click

from benchmarks.output import write
from benchmarks.references.compared import Limits, Row, compared
from benchmarks.references.largest import GOALS, confirmed, largest, lines
from benchmarks.references.nets import CASES

MIB = 2.0**20
_COLUMNS = ("net", "MiB", "ours", "bound", "printed", "Checkmate", "rounded", "sqrt n", "greedy",
            "equal distances", "revolve", "verdict")


def _percent(seconds: Optional[float], step: float) -> str:
    return "" if seconds is None else f"{100 * seconds / step:.1f}"


def _both(row: Row, rule: str) -> str:
    """What a rule does over all ops, and over articulation points."""
    cells = [
        _percent(row.references[f"{rule}, {kind}"], row.step) or "-"
        for kind in ("linear", "points")
    ]
    return "" if cells == ["-", "-"] else " / ".join(cells)


def _optimum(row: Row) -> str:
    if row.optimum is None:
        return "none" if row.proved else ""
    found = _percent(row.optimum, row.step)
    return found if row.proved else f"time limit ({_percent(row.floor, row.step)} to {found})"


def cells(row: Row) -> Tuple[str, ...]:
    """A line of the table: percent of a step that runs again."""
    said = "above " + ", ".join(row.beaten_by) if row.beaten_by else {
        None: "no plan",
        True: "within",
        False: "far from the bound"
    }[row.within]
    return (row.name, f"{row.peak / MIB:.1f}", _percent(row.ours,
                                                        row.step), _percent(row.lowest, row.step),
            _percent(row.printed, row.step), _optimum(row), _percent(row.rounded, row.step),
            *(_both(row, rule) for rule in ("sqrt n", "greedy", "equal distances")),
            _percent(row.references.get("revolve"), row.step), said)


def summary(rows: Sequence[Row]) -> str:
    """How many rows hold what was asked of them."""
    known = [row for row in rows if row.proved and row.optimum is not None]
    others = [row for row in rows if row not in known and row.ours is not None]
    return (
        f"{sum(bool(row.within) for row in known)} of {len(known)} within 5 % of the optimum, "
        f"{sum(bool(row.within) for row in others)} of {len(others)} others within 15 % of the bound, "
        f"{sum(bool(row.beaten_by) for row in rows)} of {len(rows)} above a reference")


@click.command()
@click.argument("names", nargs=-1)
@click.option("--points", type=click.IntRange(2), default=10, show_default=True, help="Budgets.")
@click.option("--integer-seconds", type=float, default=Limits.integer_seconds, show_default=True)
@click.option("--integer-variables", type=int, default=Limits.integer_variables, show_default=True)
@click.option("--relaxed-seconds", type=float, default=Limits.relaxed_seconds, show_default=True)
@click.option("--relaxed-variables", type=int, default=Limits.relaxed_variables, show_default=True)
@click.option("--largest-batch",
              is_flag=True,
              help="The largest batch in 16 GB, in place of the table.")
@click.option("--confirm",
              type=(click.IntRange(1), click.IntRange(1)),
              metavar="ROWS BYTES",
              help="Run a step of the nets with so many rows in so many bytes.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path))
def main(names: Tuple[str, ...], points: int, integer_seconds: float, integer_variables: int,
         relaxed_seconds: float, relaxed_variables: int, largest_batch: bool,
         confirm: Optional[Tuple[int, int]], out: Optional[Path]) -> None:
    """Compare on the nets NAMES (all without): seconds that run again, in percent of a step, none of it measured."""
    unknown = sorted(set(names) - set(CASES))
    if unknown:
        raise click.ClickException(f"no net {unknown[0]!r}: choose from {', '.join(CASES)}")
    if confirm is not None:
        for name in names or GOALS:
            click.echo(confirmed(name, *confirm))
        return
    if largest_batch:
        for line in lines(largest(name) for name in names or GOALS):
            click.echo(line)
        return
    limits = Limits(integer_seconds, relaxed_seconds, integer_variables, relaxed_variables)
    click.echo("| " + " | ".join(_COLUMNS) + " |\n|" + "---|" * len(_COLUMNS))
    rows: List[Row] = []
    for name in names or CASES:
        for row in compared(name, CASES[name](), points, limits):
            click.echo("| " + " | ".join(cells(row)) + " |")
            rows.append(row)
    click.echo(summary(rows))
    write((asdict(row) for row in rows), out)


if __name__ == "__main__":
    main()
