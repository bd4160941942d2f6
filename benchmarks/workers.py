"""Jobs of several workers, each called with hints, modes, budgets, hash seeds and a calibration of its own:
`python -m benchmarks.workers`.

A launch is whole if every worker ended in time, all planned for the same sizes, and each got, byte for byte, what the untouched
program gives it, and the state that all others have; or if all refused the budget, because one cannot keep it.
"""
from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import click

from benchmarks.spec import EXECUTORS

HERE = Path(__file__).resolve().parent.parent
FOUND = 'FOUND '
# Hints, of rows; shares of what the untouched program needs, without what rests, that a budget leaves.
ROWS, SHARES = (64, 128, 256), (None, 0.75, 1.25, 1.75)


@dataclass(frozen=True)
class Setting:
    """How one worker calls memory_optimize, and in which process.

    `share` is of what the untouched program needs at the hint of worker 0; `fused` and `planned_rows` are those of the job.
    """

    rows: int
    share: Optional[float]
    collection: bool
    executor: str
    hash_seed: int
    calibrated: bool
    max_overhead: float
    fused: bool
    planned_rows: int


def drawn(seed: int, workers: int) -> List[Setting]:
    """What the workers of one job are called with."""
    draw = random.Random(seed)
    fused, planned = draw.random() < 0.5, draw.choice(ROWS)
    return [
        Setting(rows=planned if rank == 0 else draw.choice(ROWS),
                share=draw.choice(SHARES),
                collection=draw.random() < 0.5,
                executor=draw.choice(sorted(EXECUTORS)),
                hash_seed=draw.randrange(1, 1000),
                calibrated=draw.random() < 0.5,
                max_overhead=draw.choice((0.0, 0.1, 1.0)),
                fused=fused,
                planned_rows=planned) for rank in range(workers)
    ]


def free_ports(count: int) -> List[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(('127.0.0.1', 0))
        return [each.getsockname()[1] for each in sockets]


def environment(rank: int, master: int, ports: Sequence[int]) -> Dict[str, str]:
    """What Paddle's launcher tells a worker that meets the others over gloo."""
    endpoints = [f'127.0.0.1:{port}' for port in ports]
    return {
        **os.environ, 'PADDLE_TRAINERS_NUM': str(len(ports)),
        'PADDLE_TRAINER_ID': str(rank),
        'PADDLE_TRAINER_ENDPOINTS': ','.join(endpoints),
        'PADDLE_CURRENT_ENDPOINT': endpoints[rank],
        'PADDLE_MASTER': f'127.0.0.1:{master}',
        'PADDLE_DISTRI_BACKEND': 'gloo',
        'PYTHONPATH': os.pathsep.join([str(HERE), os.environ.get('PYTHONPATH', '')])
    }


def lines_of(worker: 'subprocess.Popen[str]', seconds: float) -> List[str]:
    """What one said that ended, or was ended after that time."""
    try:
        said, _ = worker.communicate(timeout=max(0.1, seconds))
    except subprocess.TimeoutExpired:
        worker.kill()
        said, _ = worker.communicate()
    return said.splitlines()


def started(arguments: Sequence[Sequence[str]], folder: Path,
            more: Sequence[Mapping[str, str]]) -> "List[subprocess.Popen[str]]":
    """The workers of one job, which run in `folder`, as fleet writes where it runs.

    Args:
        arguments: of Python, for each.
        more: what the environment of each has besides.
    """
    master, *ports = free_ports(1 + len(arguments))
    return [
        subprocess.Popen([sys.executable, *each],
                         env={
                             **environment(rank, master, ports),
                             **own
                         },
                         cwd=folder,
                         stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT,
                         text=True) for rank, (each, own) in enumerate(zip(arguments, more))
    ]


def launched(settings: Sequence[Setting], folder: Path, seconds: float) -> List[List[str]]:
    """The lines of each worker of one job."""
    arguments = [['-m', 'benchmarks.worker', json.dumps(asdict(each))] for each in settings]
    running = started(arguments, folder, [{
        'PYTHONHASHSEED': str(each.hash_seed),
        'XDG_CACHE_HOME': str(folder / f'cache{rank}')
    } for rank, each in enumerate(settings)])
    until = monotonic() + seconds
    return [lines_of(each, until - monotonic()) for each in running]


def faults(settings: Sequence[Setting], said: Sequence[Sequence[str]]) -> List[str]:
    """What is wrong with a job; nothing if it is whole."""
    found: Dict[int, Dict[str, Any]] = {
        rank: json.loads(line[len(FOUND):])
        for rank, lines in enumerate(said) for line in lines if line.startswith(FOUND)
    }
    silent = [rank for rank in range(len(settings)) if rank not in found]
    if silent:
        return [f'worker {rank} found nothing: {list(said[rank][-3:])}' for rank in silent]
    if any('refused' in each for each in found.values()):
        return [f'worker {rank} goes on' for rank, each in found.items() if 'refused' not in each]
    wrong = [
        f'worker {rank}: other {what}' for rank, each in found.items()
        for what in ('losses', 'state') if each['optimized'][what] != each['untouched'][what]
    ]
    wrong += [
        f'worker {rank}: {what} of its own' for rank, each in found.items()
        for what, own, first in (('state', each['optimized']['state'],
                                  found[0]['optimized']['state']), ('sizes', each['dims'], {
                                      'N': settings[0].rows
                                  })) if own != first
    ]
    return wrong + _unlike(settings, found) + _over_budget(found)


def _over_budget(found: Mapping[int, Dict[str, Any]]) -> List[str]:
    """The smallest budget is that of all."""
    least = min((each['budget'] for each in found.values() if each['budget'] is not None),
                default=None)
    return [
        f"worker {rank}: {each['most']} bytes of {least}" for rank, each in found.items()
        if least is not None and each['most'] is not None and each['most'] > least
    ]


def _unlike(settings: Sequence[Setting], found: Mapping[int, Dict[str, Any]]) -> List[str]:
    """Workers of one runtime have one plan."""
    programs: Dict[bool, Tuple[int, str]] = {}
    for rank, each in found.items():
        programs.setdefault(settings[rank].collection, (rank, each['program']))
    return [
        f'worker {rank}: another program than worker {programs[settings[rank].collection][0]}'
        for rank, each in found.items()
        if each['program'] != programs[settings[rank].collection][1]
    ]


@click.command()
@click.option('--launches', type=click.IntRange(1), default=50, show_default=True)
@click.option('--workers', type=click.IntRange(2), default=4, show_default=True)
@click.option('--seed', type=int, default=0, show_default=True, help='Of the first launch.')
@click.option('--seconds',
              type=click.IntRange(1),
              default=240,
              show_default=True,
              help='After so many, what still runs of a launch is ended.')
def main(launches: int, workers: int, seed: int, seconds: int) -> None:
    """Launch jobs of WORKERS workers that differ in all that they may differ in, and count those that are whole."""
    whole = refused = 0
    for each in range(seed, seed + launches):
        began, settings = monotonic(), drawn(each, workers)
        with tempfile.TemporaryDirectory() as folder:
            said = launched(settings, Path(folder), seconds)
        wrong, alike = faults(settings,
                              said), any('"refused"' in line for lines in said for line in lines)
        whole, refused = whole + (not wrong), refused + (alike and not wrong)
        click.echo(f"seed {each}: {'; '.join(wrong) or ('refused by all' if alike else 'whole')} "
                   f'({monotonic() - began:.0f} s)')
    click.echo(
        f'{whole} of {launches} launches of {workers} workers were whole, {refused} of them as '
        'all refused the budget')
    sys.exit(whole < launches)


if __name__ == '__main__':
    main()
