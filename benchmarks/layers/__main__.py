"""The command: `python -m benchmarks.layers [NETWORK...]` trains networks in every way there is to need less memory."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import click
from rich.console import Console
from rich.progress import track

from benchmarks.layers.networks import NETWORKS
from benchmarks.layers.trainer import WAYS, environment

MIB = 2.0**20
PLAIN = 'to_static'
Row = Dict[str, Any]
_HEAD = ('network', 'way', 'peak, MiB', 'kept, MiB', 'process, MiB', 'wall, ms', 'CPU, ms',
         'CPU of to_static', 'losses, states')


class _Trainer:
    """A process that trains; see `trainer`."""

    def __init__(self, network: str, way: str, full_graph: str, watched: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, '-m', 'benchmarks.layers.trainer', network, way, full_graph, watched],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **environment(way)
            })

    def ask(self, what: str) -> Dict[str, Any]:
        self._process.stdin.write(what + '\n')
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('>'):
                return json.loads(line[1:])
        raise click.ClickException(f'{" ".join(self._process.args[2:])} ended: '
                                   f'status {self._process.wait()}')

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextlib.contextmanager
def _training(network: str, way: str, full_graph: str, watched: str) -> Iterator[_Trainer]:
    trainer = _Trainer(network, way, full_graph, watched)
    try:
        yield trainer
    finally:
        trainer.close()


def _peaks(network: str, way: str, full_graph: str, steps: int) -> Row:
    """The least of several steps, in a process of their own."""
    with _training(network, way, full_graph, 'watched') as trainer:
        seen = [trainer.ask('step') for _ in range(steps)]
    return {key: min(each[key] for each in seen) for key in ('peak', 'kept')}


def timed(network: str, ways: Tuple[str, ...], full_graph: str, equal: int,
          steps: int) -> List[Row]:
    """One process for each way, each a step in turn. Those that must be equal come first, and the process is looked at after."""
    with contextlib.ExitStack() as stack:
        trainers = [
            stack.enter_context(_training(network, way, full_graph, 'timed')) for way in ways
        ]
        seen: List[List[Dict[str, Any]]] = [[] for _ in ways]
        ends: List[Dict[str, Any]] = []
        for step in range(equal + steps):
            if step == equal:
                ends = [each.ask('end') for each in trainers]
            for trainer, all_seen in zip(trainers, seen):
                all_seen.append(trainer.ask('step'))
    return [{
        **end, 'losses': [each['loss'] for each in all_seen[:equal]],
        **{
            kind: [each[kind] for each in all_seen[equal:]] for kind in ('wall', 'cpu')
        }
    } for end, all_seen in zip(ends, seen)]


def measured(network: str, ways: Tuple[str, ...], full_graph: str, equal: int,
             steps: int) -> List[Row]:
    """A row for each way."""
    rows = timed(network, ways, full_graph, equal, steps)
    return [{
        'network': network,
        'way': way,
        **row,
        **_peaks(network, way, full_graph, 4)
    } for way, row in zip(ways, rows)]


def table(rows: List[Row]) -> str:
    """In Markdown."""
    plain = {each['network']: each for each in rows if each['way'] == PLAIN}
    lines = [_HEAD, ('---',) * len(_HEAD)]
    lines += [_cells(each, plain.get(each['network'])) for each in rows]
    return '\n'.join('| {} |'.format(' | '.join(cells)) for cells in lines)


def _cells(row: Row, plain: Optional[Row]) -> Tuple[str, ...]:
    share = '-' if plain is None else ' / '.join(
        f'{100 * (least(row["cpu"]) / least(plain["cpu"]) - 1):+.0f} %' for least in (min, median))
    return (row['network'], row['way'], f'{row["peak"] / MIB:.1f}', f'{row["kept"] / MIB:.1f}',
            f'{row["grown"] / MIB:.0f}', _time(row['wall']), _time(row['cpu']), share,
            _verdict(row, plain))


def _time(seen: List[float]) -> str:
    return f'{min(seen):.0f} / {median(seen):.0f}'


def _verdict(row: Row, plain: Optional[Row]) -> str:
    if plain is None:
        return '-'
    differ = [
        what for what, key in (('losses', 'losses'), ('states', 'state')) if row[key] != plain[key]
    ]
    return f'{" and ".join(differ)} differ' if differ else 'equal'


def failures(rows: List[Row]) -> List[str]:
    """What of ours differs from what Paddle makes static."""
    plain: Mapping[str, Row] = {each['network']: each for each in rows if each['way'] == PLAIN}
    return [
        f'{each["network"]}: {_verdict(each, plain.get(each["network"]))} ({each["way"]})'
        for each in rows
        if each['way'].startswith('ours') and 'differ' in _verdict(each, plain.get(each['network']))
    ]


@click.command()
@click.argument('networks', nargs=-1, type=click.Choice(tuple(NETWORKS)))
@click.option('--way', 'ways', multiple=True, type=click.Choice(tuple(WAYS)), help='All if none.')
@click.option('--sot', 'full_graph', flag_value='sot', help='Paddle finds stretches in bytecode.')
@click.option('--ast',
              'full_graph',
              flag_value='ast',
              default='ast',
              help='Whole layers (default).')
@click.option('--equal-steps', 'equal', type=click.IntRange(min=2), default=10, show_default=True)
@click.option('--steps',
              type=click.IntRange(min=1),
              default=10,
              show_default=True,
              help='Timed after these, one of each way in turn.')
@click.option('--json', 'out', type=click.Path(dir_okay=False, path_type=Path), help='Figures.')
def main(networks: Tuple[str, ...], ways: Tuple[str, ...], full_graph: str, equal: int, steps: int,
         out: Optional[Path]) -> None:
    """Train NETWORKS, all but the first if none is named, with the installed Paddle, in fresh processes of one thread. Peak and kept (after
    forward) are bytes of Paddle's allocator above resting, which has the parameters; process is VmHWM above what was resident
    when the layer was made. Times: least / median. Fails if a loss, parameter or statistic of ours differs from to_static's.
    """
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    rows: List[Row] = []
    for network in track(networks or tuple(NETWORKS)[1:],
                         console=Console(stderr=True),
                         transient=True):
        rows += measured(network, ways or tuple(WAYS), full_graph, equal, steps)
    print(f'Paddle {rows[0]["paddle"]}, {full_graph}, batch 8, SGD\n\n{table(rows)}')
    if out is not None:
        out.write_text(json.dumps(rows, indent=1) + '\n')
    if failures(rows):
        raise click.ClickException('; '.join(failures(rows)))


if __name__ == '__main__':
    main()
