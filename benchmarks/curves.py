"""Peak against time, drawn from what `benchmarks.recompute --json` wrote: `python -m benchmarks.curves FILE... --picture FILE`."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import click
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.recompute import MIB, STUDIES

THEIRS = "RecomputeOptimizer"
_COLUMNS, _WIDTH, _HEIGHT = 3, 3.6, 2.9  # panels in a row; inches of each

Rows = Sequence[Dict[str, Any]]


def points(rows: Rows) -> List[Tuple[float, float]]:
    """(extra time in percent, highest peak in MiB above resting) of our plans, the lowest peak first."""
    ours = [row for row in rows if row.get("prediction")]
    return sorted(((100 * row["extra"], max(row["peak_bytes"]) / MIB) for row in ours),
                  key=lambda point: (point[1], point[0]))


def draw(studies: Dict[str, Rows]) -> Figure:
    """A panel for each study."""
    lines = -(-len(studies) // _COLUMNS)
    figure = Figure(figsize=(_WIDTH * _COLUMNS, _HEIGHT * lines), layout="constrained")
    panels = list(figure.subplots(lines, _COLUMNS, squeeze=False).flat)
    for panel, (name, rows) in zip(panels, studies.items()):
        _draw_study(panel, name, rows)
    for panel in panels[len(studies):]:
        panel.set_visible(False)
    return figure


def _draw_study(panel: Axes, name: str, rows: Rows) -> None:
    panel.set_title(name, fontsize=9)
    panel.set_xlabel("extra time of a step, %", fontsize=8)
    panel.set_ylabel("peak, MiB above resting", fontsize=8)
    panel.tick_params(labelsize=7)
    panel.plot(*zip(*points(rows)), "o-", label="memory_optimize", markersize=4)
    for row in rows:
        peaks = [peak / MIB for peak in row["peak_bytes"]]
        extra = 100 * row["extra"]
        if row["kind"] == "untouched":
            panel.plot([0], [max(peaks)], "ks", label="untouched", markersize=5)
        if row["kind"] == THEIRS:
            panel.plot([extra], peaks[:1], "^", color="C3", label=f"{THEIRS}, first run")
            panel.plot([extra], [max(peaks)], "v", color="C3", label="its later runs")
    study = STUDIES[name]
    if study.mirrored_mib is not None and study.mirrored_time is not None:
        panel.plot([100 * study.mirrored_time], [study.goal_mib],
                   "D",
                   color="C2",
                   label="MXNet's mirroring")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=6)


@click.command()
@click.argument("files",
                nargs=-1,
                required=True,
                type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--picture", required=True, type=click.Path(dir_okay=False, path_type=Path))
def main(files: Tuple[Path, ...], picture: Path) -> None:
    """Draw the studies of FILES, one panel each, into a picture of the kind that its name says."""
    studies: Dict[str, List[Dict[str, Any]]] = {}
    for file in files:
        for row in json.loads(file.read_text()):
            studies.setdefault(row["study"], []).append(row)
    unknown = sorted(set(studies) - set(STUDIES))
    if unknown:
        raise click.ClickException(f"no case {unknown[0]!r}: choose from {', '.join(STUDIES)}")
    draw(studies).savefig(picture, dpi=110)


if __name__ == "__main__":
    main()
