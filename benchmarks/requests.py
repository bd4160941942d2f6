"""The command: `python -m benchmarks.requests [NETWORK...]` serves requests of changing shapes, each way in a fresh process.

What the process grows by after the predictor is loaded, as the operating system counts it: untouched under each setting that Paddle
offers, and what `optimize` wrote, as it is and with what `serve-settings` names.
"""
from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.apart import apart
from benchmarks.output import show, write
from benchmarks.programs.served import NETWORKS, save, shapes
from benchmarks.serving import optimize
from transpiler.serving.files import read_program
from transpiler.serving.apart import CACHE_OF_ONE
from transpiler.serving.wanted import Serving
from transpiler.serving.requests import RequestSpec, Served, serve_apart
from transpiler.serving.settings import serve_settings

MIB = 2**20
SIZES = 24  # that requests have
EARLY = 60  # requests, after which each size has come
WIDTH = 160  # where the output is no terminal
_INPUT = "image"


@dataclass(frozen=True)
class Way:
    """How a network is served: `advised` with what serve-settings names besides `settings`."""
    optimized: bool = False
    settings: Tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    advised: bool = False


_SMALL_HEAP = MappingProxyType({"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "1048576"})
WAYS: Mapping[str, Way] = MappingProxyType({
    "default": Way(),
    "memory_optim": Way(settings=("memory_optim",)),
    "new executor": Way(settings=("new_executor",)),
    "cache of one": Way(settings=(CACHE_OF_ONE,)),
    "without oneDNN": Way(settings=("no_onednn",)),
    "small heap": Way(environment=_SMALL_HEAP),
    "ours": Way(True),
    "ours, cache of one": Way(True, (CACHE_OF_ONE,)),
    "ours, small heap": Way(True, (CACHE_OF_ONE,), _SMALL_HEAP),
    "ours, serve-settings": Way(True, advised=True),
})


@dataclass(frozen=True)
class Row:
    """One way to serve one network."""
    network: str
    way: str
    served: Served
    equal: bool  # to the bytes of the default predictor

    @property
    def late_growth(self) -> float:
        """By how much the growth is more after the last request than after request EARLY, as a share."""
        highest = self.served.highest_bytes
        return highest[-1] / highest[EARLY - 1] - 1

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready, with the curve."""
        return {**asdict(self), "late_growth": self.late_growth}


def requests(network: str, folder: Path, count: int) -> Tuple[List[str], List[int]]:
    """Files of inputs, one for each size, and which of them each request sends: all sizes in turn, in changing orders."""
    random = np.random.RandomState(0)
    files = []
    for index, shape in enumerate(shapes(network, SIZES)):
        files.append(str(folder / f"{network}{index}.npz"))
        np.savez(files[-1], **{_INPUT: random.standard_normal(shape).astype("float32")})
    turns = [random.permutation(SIZES) for _ in range(-(-count // SIZES))]
    return files, [int(index) for index in np.concatenate(turns)[:count]]


def measure(network: str, folder: Path, ways: Sequence[str], count: int) -> List[Row]:
    """Saves the network, optimizes it and serves it each way; the first is the reference."""
    program = folder / network
    apart(save, network, str(program))
    ours = optimize(program, Serving(), 1)
    feeds, order = requests(network, folder, count)
    rows: List[Row] = []
    for name in ways:
        way = WAYS[name]
        source = ours if way.optimized else program
        settings, environment = list(way.settings), dict(way.environment)
        if way.advised:
            advice = serve_settings(read_program(str(source)))
            settings, environment = advice.switches, advice.variables
        served = serve_apart(RequestSpec(str(source), feeds, order, settings), environment)
        reference = rows[0].served if rows else served
        rows.append(Row(network, name, served, served.digests == reference.digests))
    return rows


def table(rows: Sequence[Row]) -> Table:
    """Megabytes of the process above what it had when the predictor was loaded; CPU seconds of a request."""
    result = Table(
        title="Serving changing shapes: growth of the process since loading, MiB",
        caption=
        f"late: grown from request {EARLY} to the end, as a share; tensors: the allocator's peak above what is "
        "loaded; CPU: of a request, mean of the last half.")
    for column in ("network", "way", "growth", "of tensors", "late", "tensors", "CPU ms", "bytes"):
        result.add_column(column,
                          no_wrap=True,
                          justify="left" if column in ("network", "way") else "right")
    for each in rows:
        served = each.served
        seconds = served.cpu_seconds[len(served.cpu_seconds) // 2:]
        result.add_row(each.network, each.way, f"{served.growth_bytes / MIB:.0f}",
                       f"{served.growth_bytes / served.peak_bytes:.1f}",
                       f"{100 * each.late_growth:.1f} %", f"{served.peak_bytes / MIB:.1f}",
                       f"{1e3 * float(np.mean(seconds)):.0f}", "equal" if each.equal else "other")
    return result


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(tuple(NETWORKS)))
@click.option("--way",
              "ways",
              multiple=True,
              type=click.Choice(tuple(WAYS)),
              default=tuple(WAYS),
              help="Repeatable; all if not given. The first is the reference of bytes.")
@click.option("--requests", "count", type=click.IntRange(min=EARLY), default=200, show_default=True)
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Figures.")
def main(networks: Tuple[str, ...], ways: Tuple[str, ...], count: int, out: Optional[Path]) -> None:
    """Serve requests of changing shapes to NETWORKS, or all of them, on the CPU, one thread."""
    rows: List[Row] = []
    with tempfile.TemporaryDirectory() as folder, Progress(transient=True,
                                                           console=Console(stderr=True)) as bar:
        for network in bar.track(networks or tuple(NETWORKS), description="serving"):
            rows += measure(network, Path(folder), ways, count)
    show(table(rows), WIDTH)
    write((each.to_dict() for each in rows), out)
    different = [
        each.way for each in rows if not each.equal and "no_onednn" not in WAYS[each.way].settings
    ]
    if different:
        raise click.ClickException("not all results are equal to the last bit: " +
                                   ", ".join(different))


if __name__ == "__main__":
    main()
