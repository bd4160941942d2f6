"""Plans made without a hint beside those made with the right one: `python -m benchmarks.hints [PROGRAM...]`.

Every benchmark program is planned without `batch_size`, and with it for several batches, its trips hinted; programs with loops whose
trips are not known also without `trip_count`, their batch hinted. Peaks are the judge's: the plan's timeline at that size. Nothing runs.
"""
from __future__ import annotations

import gc
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import click
from rich.table import Table

from benchmarks.guard import RUNTIMES, programs
from benchmarks.output import show, write
from benchmarks.programs import PROGRAMS, Case, build

WIDTH = 140
SIZES: Tuple[int, ...] = (8, 32, 64, 256)
BATCH, TRIPS = 'batch', 'trips'
_Hint = Union[None, int, Mapping[Any, int]]


@dataclass(frozen=True)
class Row:
    """One program on one runtime, `hint` left out. Bytes above resting, and extra time as a share of the step, by size of what is hinted:
    `without` of the one plan without it, `hinted` of that made for each size. CPU seconds of planning likewise."""
    program: str
    runtime: str
    hint: str
    without: Dict[int, int]
    hinted: Dict[int, int]
    untouched: Dict[int, int]
    overhead: Dict[int, float]
    seconds: float
    hinted_seconds: float

    @property
    def ratios(self) -> Dict[int, float]:
        """Of the peaks without the hint to those with it, by size."""
        return {size: self.without[size] / max(1, peak) for size, peak in self.hinted.items()}

    @property
    def worst(self) -> float:
        """The largest of them."""
        return max(self.ratios.values())

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), 'ratios': self.ratios}


def _scaled(hint: Any, size: int) -> Any:
    """`hint` of a case, made `size`: where it goes by names or numbers, the least of them, and the others in proportion."""
    if not isinstance(hint, Mapping):
        return size
    least = min(hint.values())
    return {key: max(1, value * size // least) for key, value in hint.items()}


class _Planner:
    """Decides about one program, whatever the hints."""

    def __init__(self, case: Case, runtime: str) -> None:
        from transpiler.backends.installed import live_programs
        from transpiler.request import Request
        self._case, self._backend = case, live_programs(case.main)
        self._request = Request(list(case.fetch), runtime=runtime)

    def decided(self, batch_size: _Hint, trip_count: _Hint) -> Tuple[Any, float]:
        """The decision, and the CPU seconds that it took."""
        from transpiler.flow import decide
        from transpiler.planning import PlanOptions
        asked = replace(self._request, batch_size=batch_size, trip_count=trip_count)
        asked = asked.in_names(self._backend, self._case.main).checked()
        gc.collect()
        started = time.process_time()
        found = decide(self._backend, self._case.main, asked, PlanOptions(segments=None))
        return found, time.process_time() - started


def row(name: str, case: Case, runtime: str, hint: str, sizes: Sequence[int]) -> Optional[Row]:
    """What leaving `hint` out costs; None where the program has nothing open that it is a hint for."""
    planner = _Planner(case, runtime)
    asked = {
        size: ((_scaled(case.batch_size, size), case.trip_count) if hint == BATCH else
               (case.batch_size, _scaled(case.trip_count, size))) for size in sizes
    }
    left_out = (None, case.trip_count) if hint == BATCH else (case.batch_size, None)
    without, seconds = planner.decided(*left_out)
    if not without.report.assumed:
        return None
    made = {size: planner.decided(*hints) for size, hints in asked.items()}
    peaks: Dict[str, Dict[int, int]] = {'without': {}, 'hinted': {}, 'untouched': {}}
    for size, (decision, _) in made.items():
        peaks['without'][size] = without.plan.after.at(decision.dims).peak_bytes
        peaks['hinted'][size] = decision.plan.after.peak_bytes
        peaks['untouched'][size] = decision.plan.before.peak_bytes
    return Row(name,
               runtime,
               hint,
               **peaks,
               overhead=_overheads(without.plan, made),
               seconds=seconds,
               hinted_seconds=max(spent for _, spent in made.values()))


def _overheads(plan: Any, made: Mapping[int, Tuple[Any, float]]) -> Dict[int, float]:
    from transpiler.planning.overhead import overhead
    from transpiler.planning import PlanOptions
    return {
        size: overhead(plan,
                       PlanOptions().cost, decision.dims) for size, (decision, _) in made.items()
    }


def rows(names: Sequence[str], hints: Sequence[str], sizes: Sequence[int]) -> Iterator[Row]:
    """Of all programs that leave something open, training and inference, on both runtimes."""
    for name, options in programs(names):
        case = build(name.split('/')[0], options)
        for hint in hints:
            if hint == TRIPS and case.trip_count is None:
                continue
            for runtime in RUNTIMES:
                found = row(name, case, runtime, hint, sizes)
                if found is not None:
                    yield found


def table(found: Sequence[Row]) -> Table:
    """One line a program and runtime."""
    result = Table(
        title='The peak of the plan without a hint, as a multiple of that with the right one')
    for column in ('program', 'runtime', 'left out'):
        result.add_column(column)
    sizes = list(found[0].hinted) if found else []
    for column in (*map(str, sizes), 'worst', 'most extra time', 'planning CPU s', 'with a hint'):
        result.add_column(column, justify='right')
    for each in found:
        result.add_row(each.program, each.runtime, each.hint,
                       *(f'{each.ratios[size]:.3f}' for size in sizes), f'{each.worst:.3f}',
                       f'{max(each.overhead.values()):+.1%}', f'{each.seconds:.2f}',
                       f'{each.hinted_seconds:.2f}')
    return result


@click.command()
@click.argument('names', nargs=-1)
@click.option('--size',
              'sizes',
              multiple=True,
              type=click.IntRange(min=1),
              default=SIZES,
              show_default=True)
@click.option('--hint',
              'hints',
              multiple=True,
              type=click.Choice((BATCH, TRIPS)),
              default=(BATCH, TRIPS),
              show_default=True,
              help='What is left out.')
@click.option('--allowed',
              type=click.FloatRange(min=1),
              help='Fail if a ratio is above this, or a peak above that of the untouched program.')
@click.option('--json', 'out', type=click.Path(dir_okay=False, path_type=Path))
def main(names: Tuple[str, ...], sizes: Tuple[int, ...], hints: Tuple[str, ...],
         allowed: Optional[float], out: Optional[Path]) -> None:
    """Plan the programs NAMES (all without) with and without hints."""
    found: List[Row] = []
    for each in rows(names or tuple(PROGRAMS), hints, sizes):
        found.append(each)
        click.echo(
            f'{each.program} {each.runtime}, no {each.hint}: {each.worst:.3f}, {each.seconds:.2f} s '
            f'({each.hinted_seconds:.2f} s with it)',
            err=True)
    show(table(found), WIDTH)
    write((each.to_dict() for each in found), out)
    if found:
        click.echo(f'The worst of {len(found)}: {max(each.worst for each in found):.3f}')
    bad = [
        f'{each.program} {each.runtime}, no {each.hint}' for each in found if allowed and
        (each.worst > allowed or any(each.without[s] > each.untouched[s] for s in each.without))
    ]
    if bad:
        raise click.ClickException('worse than allowed: ' + '; '.join(bad))


if __name__ == '__main__':
    main()
