"""The command: `python -m benchmarks.assignment --nets DIR` measures assignment and packing.

Every plan is run symbolically by `check_plan` before a figure of it is printed.
"""
from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.memonger_net import MemongerNet, check_plan, load_all
from benchmarks.packing_variants import Instance, cut
from benchmarks.packing_variants import variants as variants_of
from transpiler.assignment import (Assignment, CapacityError, assign, best_order, critical_path,
                                   live_max_bytes, live_ranges, pack, parallel_safe,
                                   parallel_safe_bound, read_problem)
from transpiler.assignment.bounds import sharing_bound
from transpiler.assignment.orders import OrderResult, given
from transpiler.assignment.packing_exact import loading_seconds
from transpiler.assignment.portfolio import affordable
from transpiler.assignment.ranges import total_bytes

MIB = 2.0**20
PIPE_WIDTH = 200
ORDER_ROUNDS = 500
SCALES = (20_000, 100_000)


@dataclass(frozen=True)
class NetRow:
    """One net's figures; bytes are of intermediates, seconds are of everything we did.

    `bound`, `gap` and `proved` belong to `assigned_bytes` in our order, `arena_*` to
    `arena_bytes` in the same order; `buffer_sharing_bytes` and `live_max_bytes` are the net
    file's own bounds, for program order. `program_order_bytes` is the assignment in that order.
    """
    net: str
    memonger_bytes: int
    memonger_algorithm: str
    assigned_bytes: int
    arena_bytes: int
    reordered: bool
    order: str
    bound: int
    gap: float
    proved: bool
    strategy: str
    arena_bound: int
    arena_gap: float
    arena_proved: bool
    program_order_bytes: int
    program_order_proved: bool
    buffer_sharing_bytes: int
    live_max_bytes: int
    seconds: float


@dataclass(frozen=True)
class ParallelRow:
    """Parallel-safe sharing in program order against memonger's dag or share_grad mode."""
    net: str
    memonger_bytes: Optional[int]
    memonger_algorithm: str
    parallel_safe_bytes: int
    bound: int
    gap: float
    proved: bool
    critical_path_before: int
    critical_path_after: int
    seconds: float


@dataclass(frozen=True)
class PackingRow:
    """One packing set within its capacity; `seconds` are of processors."""
    problem: str
    buffers: int
    capacity_bytes: int
    height_bytes: int
    bound: int
    fits: bool
    strategy: str
    seconds: float


@dataclass(frozen=True)
class ScaleRow:
    """A fast strategy on random ranges; `bytes_over_bound` is a ratio."""
    strategy: str
    ranges: int
    seconds: float
    bytes_over_bound: float


def plan_net(source: MemongerNet, seconds: float) -> Tuple[NetRow, Dict[str, Any]]:
    """Order, storages and offsets for one net: its row and its checked plan."""
    net, document = source.net, source.document
    started = time.monotonic()
    in_program_order = assigned(source, given(net), seconds)
    chosen = best_order(net, sharing_bound, ORDER_ROUNDS)
    ours = assigned(source, chosen.order, seconds)
    if in_program_order.total_bytes <= ours.total_bytes:
        ours, chosen = in_program_order, OrderResult(tuple(given(net)), "given", chosen.cost)
    blobs, ranges = live_ranges(net, chosen.order)
    packing = pack(ranges, net.sizes[blobs], seconds=seconds)
    elapsed = time.monotonic() - started
    plan = {
        "order": list(chosen.order),
        "storage": named(source, blobs, ours.storages),
        "offset": named(source, blobs, packing.offsets),
        "arena_bytes": packing.height
    }
    counted = check_plan(document, plan)
    if counted != ours.total_bytes:
        raise AssertionError(f"{source.name}: the plan has {counted} bytes, we said "
                             f"{ours.total_bytes}")
    memonger = source.memonger()
    bounds = document["lower_bounds"]
    return NetRow(source.name, memonger[0] if memonger else 0, memonger[1] if memonger else "",
                  ours.total_bytes, packing.height, chosen.name != "given", chosen.name, ours.bound,
                  ours.gap, ours.proved, ours.strategy, packing.bound, packing.gap, packing.proved,
                  in_program_order.total_bytes, in_program_order.proved,
                  bounds["buffer_sharing_bytes"], bounds["live_max_bytes"], elapsed), plan


def assigned(source: MemongerNet, order: Any, seconds: float) -> Assignment:
    """The portfolio's assignment under `order`."""
    blobs, ranges = live_ranges(source.net, order)
    return assign(ranges, source.net.sizes[blobs], seconds=seconds)


def named(source: MemongerNet, blobs: np.ndarray, values: np.ndarray) -> Dict[str, int]:
    """{blob name: value} for int64 (n,) `values` of `blobs`."""
    return {source.blobs[b]: int(value) for b, value in zip(blobs.tolist(), values.tolist())}


def plan_parallel(source: MemongerNet, seconds: float) -> ParallelRow:
    """Parallel-safe sharing of one net in program order."""
    net = source.net
    started = time.monotonic()
    blobs, ranges = live_ranges(net)
    ours = assign(ranges, net.sizes[blobs], parallel_safe(net), seconds, parallel_safe_bound(net))
    elapsed = time.monotonic() - started
    alone = np.arange(len(net.sizes))
    shared = alone + len(net.sizes)
    shared[blobs] = ours.storages
    memonger = source.memonger("inference_dag") or source.memonger("share_grad")
    return ParallelRow(source.name, memonger[0] if memonger else None,
                       memonger[1] if memonger else "", ours.total_bytes, ours.bound, ours.gap,
                       ours.proved, critical_path(net, given(net), alone),
                       critical_path(net, given(net), shared), elapsed)


def read_instances(folder: Path) -> List[Instance]:
    """The CSV files of a folder; the capacity is the number before the suffix (A.1048576.csv)."""
    found = []
    for path in sorted(folder.glob("*.*.csv")):
        with path.open(newline="") as stream:
            problem = read_problem(stream)
        name, capacity = path.name.split(".")[-3:-1]
        found.append(Instance(name, problem.ranges, problem.sizes, int(capacity)))
    return found


def pack_instance(instance: Instance, seconds: float) -> PackingRow:
    """One problem within its capacity, checked; `seconds` are of processors."""
    try:
        packing = pack(instance.ranges,
                       instance.sizes,
                       capacity=instance.capacity,
                       seconds=seconds,
                       clock=time.process_time)
    except CapacityError as error:
        packing = error.best
    check_offsets(instance.ranges, instance.sizes, packing.offsets, packing.height)
    return PackingRow(instance.name, len(instance.sizes), instance.capacity, packing.height,
                      packing.bound, packing.height <= instance.capacity, packing.strategy,
                      packing.seconds)


def kernel_seconds() -> float:
    """Seconds of processors until the kernels are loaded, and compiled where numba has not kept them yet."""
    started = time.process_time()
    pack_instance(cut(np.random.RandomState(0), 100, 50, 1000), seconds=0.0)
    return time.process_time() - started + loading_seconds(time.process_time)


def packing_summary(rows: List[Dict[str, Any]], loading: float) -> List[Dict[str, Any]]:
    """One line for each kind of instance (what the name ends in), and one for all."""
    kinds = {row["problem"].split(".")[-1]: [] for row in rows}
    for row in rows:
        kinds[row["problem"].split(".")[-1]].append(row)
    lines = []
    for kind, group in (*kinds.items(), ("all", rows)):
        seconds = [row["seconds"] for row in group]
        lines.append({
            "kind": kind,
            "instances": len(group),
            "packed": sum(row["fits"] for row in group),
            "median CPU seconds": float(np.median(seconds)),
            "most CPU seconds": max(seconds),
            "kernels loaded in": loading
        })
    return lines


def check_offsets(ranges: np.ndarray, sizes: np.ndarray, offsets: np.ndarray, height: int) -> None:
    """Raise AssertionError where two values alive together share a byte, or stick out; O(n^2)."""
    for i in range(len(sizes)):
        together = (ranges[:i, 0] <= ranges[i, 1]) & (ranges[:i, 1] >= ranges[i, 0])
        apart = (offsets[:i] + sizes[:i] <= offsets[i]) | (offsets[i] + sizes[i] <= offsets[:i])
        if not np.all(apart | ~together | (sizes[:i] == 0) | (sizes[i] == 0)):
            raise AssertionError(f"value {i} overlaps another one")
        if offsets[i] < 0 or offsets[i] + sizes[i] > height:
            raise AssertionError(f"value {i} is outside the arena")


def random_ranges(count: int) -> Tuple[np.ndarray, np.ndarray]:
    """`count` values over as many ops, of all sizes, most short-lived, one in fifty long-lived."""
    generator = np.random.RandomState(1)
    first = np.sort(generator.randint(0, count, count))
    length = np.where(
        generator.rand(count) < 0.02, generator.randint(1, count // 10, count),
        generator.geometric(0.1, count))
    sizes = (2.0**generator.uniform(4, 24, count)).astype(np.int64)
    return np.stack([first, first + length], axis=1), sizes


def scale_rows(count: int) -> List[ScaleRow]:
    """Every fast strategy, the whole portfolio, and packing at one scale."""
    ranges, sizes = random_ranges(count)
    rows, bound = [], sharing_bound(ranges, sizes)
    for name, strategy in affordable(count, False).items():
        started = time.monotonic()
        total = total_bytes(strategy(ranges, sizes, None), sizes)
        rows.append(ScaleRow(name, count, time.monotonic() - started, total / bound))
    everything = assign(ranges, sizes)
    rows.append(ScaleRow("assign", count, everything.seconds, everything.total_bytes / bound))
    packing = pack(ranges, sizes)
    rows.append(
        ScaleRow("pack", count, packing.seconds, packing.height / live_max_bytes(ranges, sizes)))
    return rows


def scale_growth(rows: List[ScaleRow]) -> List[Dict[str, Any]]:
    """One line a strategy: seconds at each scale and the exponent of their growth."""
    lines = []
    for small, large in zip(rows[:len(rows) // 2], rows[len(rows) // 2:]):
        steps = np.log(large.seconds / max(small.seconds, 1e-9))
        lines.append({
            "strategy": small.strategy,
            f"seconds at {small.ranges}": small.seconds,
            f"seconds at {large.ranges}": large.seconds,
            "growth": f"n^{steps / np.log(large.ranges / small.ranges):.2f}",
            "over bound": large.bytes_over_bound
        })
    return lines


def shown(value: Any, column: str) -> str:
    """A cell: bytes in MiB, gaps in percent, seconds in hundredths."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    if isinstance(value, int) and column.endswith(("bytes", "bound")):
        return f"{value / MIB:.4f}"
    if isinstance(value, float):
        return f"{100 * value:.3f}%" if column.endswith("gap") else f"{value:.3f}"
    return str(value)


def table(title: str, rows: List[Dict[str, Any]], columns: Tuple[str, ...] = ()) -> Table:
    """A rich table of `columns` (all by default) of the rows."""
    names = columns or tuple(rows[0])
    result = Table(title=title)
    for name in names:
        result.add_column(name, justify="right" if name != names[0] else "left")
    for row in rows:
        result.add_row(*[shown(row[name], name) for name in names])
    return result


NET_COLUMNS = ("net", "memonger_bytes", "assigned_bytes", "arena_bytes", "reordered", "bound",
               "gap", "proved", "arena_bound", "arena_gap", "arena_proved", "seconds")


@click.command()
@click.option("--nets",
              type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Folder of Caffe2 net files.")
@click.option("--packing",
              type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Folder of packing sets NAME.CAPACITY.csv.")
@click.option("--variants",
              default=0,
              help="That many variants, by --seed, of the sets of --packing, capacity known.")
@click.option("--seed", default=0, show_default=True, help="Of the variants.")
@click.option("--parallel", is_flag=True, help="Parallel-safe sharing of the nets, too.")
@click.option("--scale", is_flag=True, help="Speed at 20,000 and 100,000 live ranges.")
@click.option("--plans",
              type=click.Path(file_okay=False, path_type=Path),
              help="Write each net's plan to NAME.json in this folder.")
@click.option("--seconds", default=20.0, show_default=True, help="Time box of an exact search.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of tables.")
def main(nets: Optional[Path], packing: Optional[Path], variants: int, seed: int, parallel: bool,
         scale: bool, plans: Optional[Path], seconds: float, as_json: bool) -> None:
    """Assignment and packing on recorded and random problems; MiB are 2**20 bytes."""
    if nets is None and packing is None and not scale and not variants:
        raise click.UsageError("nothing to measure: give --nets, --packing, --variants or --scale")
    if nets is None and (parallel or plans):
        raise click.UsageError("--parallel and --plans need --nets")
    report: Dict[str, List[Dict[str, Any]]] = {}
    try:
        sources = load_all(nets) if nets else []
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if sources:
        report["nets"] = measure_nets(sources, plans, seconds)
    if parallel:
        report["parallel"] = [asdict(plan_parallel(source, seconds)) for source in sources]
    if packing or variants:
        report.update(measure_packing(packing, variants, seed, seconds))
    if scale:
        report["scale"] = scale_growth([row for count in SCALES for row in scale_rows(count)])
    show(report, as_json)


def measure_nets(sources: List[MemongerNet], plans: Optional[Path],
                 seconds: float) -> List[Dict[str, Any]]:
    """The rows of all nets; writes the plans where asked."""
    rows = []
    for source in sources:
        row, plan = plan_net(source, seconds)
        rows.append(asdict(row))
        if plans:
            plans.mkdir(parents=True, exist_ok=True)
            (plans / f"{source.name}.json").write_text(json.dumps(plan) + "\n")
    return rows


def measure_packing(folder: Optional[Path], count: int, seed: int,
                    seconds: float) -> Dict[str, List[Dict[str, Any]]]:
    """The tables of the sets in `folder`, or of `count` variants of them, each on its own and by kind."""
    loading = kernel_seconds()
    instances = read_instances(folder) if folder else []
    if not count:
        return {"packing": [asdict(pack_instance(each, seconds)) for each in instances]}
    rows = [asdict(pack_instance(each, seconds)) for each in variants_of(instances, count, seed)]
    return {"variants": rows, "by kind": packing_summary(rows, loading)}


def show(report: Dict[str, List[Dict[str, Any]]], as_json: bool) -> None:
    """Print the report to standard output."""
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    for title, rows in report.items():
        if rows:
            console.print(table(title, rows, NET_COLUMNS if title == "nets" else ()))


if __name__ == "__main__":
    main()
