"""Training by fleet on two CPU workers over gloo, as fleet builds it, by Paddle's recompute, and by ours: `python -m benchmarks.jobs`.

Each figure is of a job of its own, whose workers have done nothing before: the most that tensors take above what rests, in the first
step and in later ones, what the process grows by since startup, and processor seconds of a later step. Losses and state of a job that
was rewritten have to be those of the untouched one, byte for byte, on each worker.
"""
from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.workers import FOUND, lines_of, started

WORKERS, STEPS, SECONDS = 2, 5, 600.0
MIB = 2.0**20
SHARDED = {
    'sharding': True,
    'sharding_configs': {
        'sharding_segment_strategy': 'segment_broadcast_MB',
        'segment_broadcast_MB': 1.0,
        'sharding_degree': WORKERS,
        'stage': 2
    }
}


@dataclass(frozen=True)
class Job:
    """What fleet is asked for.

    Attributes:
        network: a key of benchmarks.job_worker.NETWORKS.
        strategy: what is set of fleet's strategy besides its defaults.
        recompute: Paddle's, at the network's checkpoints.
        optimized: by memory_optimize, with `max_overhead` if it is given.
        collection: whether the executor collects.
    """

    network: str
    strategy: Dict[str, Any] = field(default_factory=dict)
    recompute: bool = False
    optimized: bool = False
    max_overhead: Optional[float] = None
    collection: bool = True


class Case(NamedTuple):
    """A line of the table: jobs of one kind, of which the first says what bytes the others have to give."""
    name: str
    jobs: Sequence[Tuple[str, Job]]


def _both(network: str, **facts: Any) -> List[Tuple[str, Job]]:
    return [('untouched', Job(network, **facts)), ('ours', Job(network, optimized=True, **facts))]


CASES = (
    Case("ResNet-18, fleet's defaults", _both('resnet18')),
    Case("transformer, fleet's defaults", _both('transformer')),
    Case('ResNet-18, collection off', _both('resnet18', collection=False)),
    Case("ResNet-18, at the time of Paddle's recompute", [
        *_both('resnet18', strategy={'fuse_all_reduce_ops': False}, max_overhead=0.2),
        ("Paddle's recompute",
         Job('resnet18', strategy={'fuse_all_reduce_ops': False}, recompute=True)),
    ]),
    Case('ResNet-18, sharding', _both('resnet18', strategy=SHARDED)),
    Case("ResNet-18, sharding and Paddle's recompute",
         _both('resnet18', strategy=SHARDED, recompute=True)),
)  # yapf: disable


class JobError(Exception):
    """A worker did not end, or said nothing."""


def run(job: Job, folder: Path) -> List[Dict[str, Any]]:
    """What each worker found.

    Raises:
        JobError: one found nothing.
    """
    work = [['-m', 'benchmarks.job_worker', json.dumps(asdict(job))]] * WORKERS
    said = [lines_of(each, SECONDS) for each in started(work, folder, [{}] * WORKERS)]
    found = [[line for line in lines if line.startswith(FOUND)] for lines in said]
    for rank, lines in enumerate(found):
        if not lines:
            raise JobError(f'worker {rank} found nothing: {said[rank][-3:]}')
    return [json.loads(lines[-1][len(FOUND):]) for lines in found]


def unequal(expected: Sequence[Dict[str, Any]], found: Sequence[Dict[str, Any]]) -> List[str]:
    """What differs, by worker."""
    return [
        f'worker {rank}: other {what}' for rank, (a, b) in enumerate(zip(expected, found))
        for what in ('losses', 'state') if a[what] != b[what]
    ]


def _row(name: str, how: str, found: Sequence[Dict[str, Any]], wrong: Sequence[str]) -> List[str]:
    mib = lambda each: f'{each / MIB:.2f}'
    sides = lambda what, shown: ' / '.join(shown(each[what]) for each in found)
    least = lambda seconds: f'{min(seconds[1:]):.2f}'
    return [
        name, how, sides('first', mib), sides('later', mib), sides('sure', lambda b: mib(b) if b else '-'),
        sides('grown', lambda b: f'{b / MIB:.0f}'), sides('cpu_seconds', least), '; '.join(wrong) or 'equal'
    ]  # yapf: disable


@click.command()
@click.argument('names', nargs=-1)
@click.option('--list', 'listed', is_flag=True, help='Name the lines and stop.')
def main(names: Tuple[str, ...], listed: bool) -> None:
    """Launch the jobs of NAMES, or of all lines."""
    unknown = set(names) - {case.name for case in CASES}
    if listed or unknown:
        click.echo('\n'.join(case.name for case in CASES))
        if unknown:
            raise click.ClickException('no line is called {}'.format(', '.join(sorted(unknown))))
        return
    made = Table(title='MiB above resting, worker 0 / worker 1; seconds: the least of later steps')
    for head in ('job', 'how', 'first', 'later, most', 'sure', 'process', 'CPU s', 'bytes'):
        made.add_column(head)
    whole = True
    for case in CASES if not names else (case for case in CASES if case.name in names):
        expected: List[Dict[str, Any]] = []
        for how, job in case.jobs:
            with tempfile.TemporaryDirectory() as folder:
                found = run(job, Path(folder))
            expected = expected or found
            wrong = unequal(expected, found)
            # Paddle's recompute updates running means once more.
            whole = whole and not (wrong and job.optimized)
            made.add_row(*_row(case.name, how, found, wrong))
            click.echo(' | '.join(_row(case.name, how, found, wrong)))
    Console(width=170).print(made)
    if not whole:
        raise click.ClickException('not all results are equal to the last bit')


if __name__ == '__main__':
    main()
