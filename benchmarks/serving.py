"""The command: `python -m benchmarks.serving [MODEL...]` measures saved models in Paddle Inference, fresh process each.

Each model is saved, optimised, and run: untouched under every switch that Paddle offers, then what `optimize` wrote.
"""
from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.output import show, write
from benchmarks.saving import SERVED, save
from transpiler.planning import PlanOptions
from transpiler.request import Request
from transpiler.serving.files import read_program, write_program
from transpiler.serving.offline import optimize_saved
from transpiler.serving.wanted import Serving
from transpiler.serving.apart import RunSpec
from transpiler.serving.running import SETTINGS, run_apart

MIB = 2**20
WIDTH = 250  # where the output is no terminal
ASKED = 0.7  # of the best of Paddle's own switches without the new executor
NEW_EXECUTOR = "new_executor"
DEFAULT: Tuple[str, ...] = ()
# Ways to optimise, as the table calls them.
WAYS = (("optimized", Serving()), ("inputs released", Serving(release_inputs=True)),
        ("in parts", Serving(in_parts=True)), ("in parts, inputs released",
                                               Serving(release_inputs=True, in_parts=True)))


@dataclass(frozen=True)
class Peak:
    """Activations of one way to run a model: bytes above resting, in the first run and the highest of the later ones."""
    way: str
    first: int
    later: int
    digest: str

    @property
    def highest(self) -> int:
        """Of all runs."""
        return max(self.first, self.later)


@dataclass(frozen=True)
class Row:
    """One model, untouched and optimised; of several settings, the optimised model's worst."""
    model: str
    default: Peak
    own_switch: Peak
    own_later: Peak
    new_executor: Peak
    kept: Peak
    released: Peak
    in_parts: Peak
    in_parts_released: Peak
    equal: bool

    @property
    def ours(self) -> Tuple[Peak, ...]:
        """What was optimised, in the order of WAYS."""
        return self.kept, self.released, self.in_parts, self.in_parts_released

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def measure(program: Path, feed: str, setting: Tuple[str, ...], runs: int) -> Peak:
    """One fresh process. Results that differ between its runs have no digest in common with anything."""
    result = run_apart(RunSpec(str(program), feed, settings=list(setting), runs=runs))
    same = len(set(result.digests)) == 1
    return Peak("+".join(setting) or "default", result.peak_bytes[0], max(result.peak_bytes[1:]),
                result.digests[0] if same else "differ")


def optimize(program: Path, serving: Serving, batch_size: int) -> Path:
    """What the command line writes next to `program`."""
    saved = read_program(str(program))
    done = optimize_saved(saved, Request(batch_size=batch_size), PlanOptions(), serving)
    flags = (".released" if serving.release_inputs else ".kept") + (".parts" * serving.in_parts)
    out = program.with_name(program.name + flags)
    write_program(str(out), saved, done.serialized, done.replaced, force=True)
    return out


def worst(peaks: List[Peak]) -> Peak:
    """The highest first and later peak of the settings."""
    return Peak("worst of {}".format(len(peaks)) if len(peaks) > 1 else peaks[0].way,
                max(p.first for p in peaks), max(p.later for p in peaks),
                peaks[0].digest if len({p.digest for p in peaks}) == 1 else "differ")


def row(name: str, folder: Path, runs: int, every_setting: bool) -> Row:
    """Measures one model."""
    options = SERVED[name]
    program = save(folder, name, options)
    feed = str(program) + ".npz"
    plain = {s: measure(program, feed, s, runs) for s in SETTINGS if NEW_EXECUTOR not in s}
    new_executor = measure(program, feed, (NEW_EXECUTOR,), runs)
    settings = SETTINGS if every_setting else (DEFAULT,)
    ours = [
        worst([measure(out, feed, s, runs)
               for s in settings])
        for out in (optimize(program, way, options.batch_size or 1) for _, way in WAYS)
    ]
    default = plain[DEFAULT]
    return Row(name, default, min(plain.values(), key=lambda p: p.highest),
               min(plain.values(), key=lambda p: p.later), new_executor, *ours,
               {p.digest for p in ours} == {default.digest})


def table(rows: List[Row]) -> Table:
    """Activations in MiB, first run / later runs."""
    result = Table(
        title="Activations in MiB (peak minus resting), first run / highest of the later runs",
        caption=
        "share: of the best of Paddle's own switches without the new executor, the highest of all "
        "runs / of later runs; at most {:.1f} is asked for.".format(ASKED))
    shown = [heading for name, _ in WAYS for heading in (name, "share")]
    for column in ("model", "default", "best own switch", "new executor", *shown, "bytes"):
        result.add_column(column, no_wrap=True, justify="left" if column == "model" else "right")
    for each in rows:
        result.add_row(each.model, _both(each.default),
                       "{} {}".format(each.own_switch.way, _both(each.own_switch)),
                       _both(each.new_executor),
                       *(cell for ours in each.ours for cell in (_both(ours), _share(each, ours))),
                       "equal" if each.equal else "[bold red]DIFFERENT[/]")
    return result


def _both(peak: Peak) -> str:
    return "{:.2f} / {:.2f}".format(peak.first / MIB, peak.later / MIB)


def _share(each: Row, ours: Peak) -> str:
    return "{:.2f} / {:.2f}".format(ours.highest / each.own_switch.highest,
                                    ours.later / each.own_later.later)


@click.command()
@click.argument("models", nargs=-1, type=click.Choice(tuple(SERVED)))
@click.option("--runs", type=click.IntRange(min=2), default=4, show_default=True)
@click.option("--every-setting",
              is_flag=True,
              help="The optimised model under all 12 settings: the worst counts.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Figures.")
def main(models: Tuple[str, ...], runs: int, every_setting: bool, out: Optional[Path]) -> None:
    """Measure MODELS, or all of them, as Paddle Inference serves them on the CPU, one thread."""
    names = models or tuple(SERVED)
    rows = []
    with tempfile.TemporaryDirectory() as folder, Progress(transient=True,
                                                           console=Console(stderr=True)) as bar:
        task = bar.add_task("measuring", total=len(names))
        for name in names:
            bar.update(task, description=name)
            rows.append(row(name, Path(folder), runs, every_setting))
            bar.advance(task)
    show(table(rows), WIDTH)
    write((each.to_dict() for each in rows), out)
    if not all(each.equal for each in rows):
        raise click.ClickException("not all results are equal to the last bit")


if __name__ == "__main__":
    main()
