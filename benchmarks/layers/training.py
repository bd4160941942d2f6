"""Trains a network in several ways, each in a process of its own, one step of each in turn."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, Iterator, List, Tuple

import click

from benchmarks.layers.trainer import MODES, environment

Row = Dict[str, Any]
WATCHED = 3  # steps, after those that are compared: the least peak of them is told
WARMING = 2  # steps that are not timed: in them Paddle makes its programs, and memory is first touched


@dataclass(frozen=True)
class Way:
    """How a network is trained to need less memory, and what Paddle traces; see `trainer`."""

    name: str
    mode: str


def ways(names: Tuple[str, ...], modes: Tuple[str, ...]) -> Tuple[Way, ...]:
    """`names` in each of `modes` in which they are measured; what Paddle does not trace comes first."""
    return tuple(Way(name, mode) for mode in ('', *modes) for name in names if mode in MODES[name])


class _Trainer:
    """A process that trains; see `trainer`."""

    def __init__(self, python: str, network: str, way: Way) -> None:
        self._process = subprocess.Popen(
            [python, '-m', 'benchmarks.layers.trainer', network, way.name, way.mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **environment(way.name)
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
def _training(python: str, network: str, way: Way) -> Iterator[_Trainer]:
    trainer = _Trainer(python, network, way)
    try:
        yield trainer
    finally:
        trainer.close()


def measured(python: str, network: str, asked: Tuple[Way, ...], steps: int) -> List[Row]:
    """A row for each way. All train `steps` steps, which are compared; then the processes are looked at, and further steps
    watched."""
    loads = [os.getloadavg()[0]]
    with contextlib.ExitStack() as stack:
        trainers = [stack.enter_context(_training(python, network, way)) for way in asked]
        seen: List[List[Dict[str, Any]]] = [[] for _ in asked]
        for _ in range(steps):
            for trainer, all_seen in zip(trainers, seen):
                all_seen.append(trainer.ask('step'))
            loads.append(os.getloadavg()[0])
        ends = [trainer.ask('end') for trainer in trainers]
        peaks = [_watched(trainer) for trainer in trainers]
    loads.append(os.getloadavg()[0])
    told = {'python': python, 'network': network, 'loads': (min(loads), max(loads)),
            'date': datetime.now(timezone.utc).strftime('%Y-%m-%d')}  # yapf: disable
    return [{
        **told, 'way': way.name,
        'mode': way.mode,
        **end,
        **peak, 'losses': [each['loss'] for each in all_seen],
        **{
            kind: [each[kind] for each in all_seen[WARMING:]] for kind in ('wall', 'cpu')
        }
    } for way, all_seen, end, peak in zip(asked, seen, ends, peaks)]


def _watched(trainer: _Trainer) -> Dict[str, int]:
    """The least of several steps."""
    trainer.ask('watch')
    seen = [trainer.ask('step') for _ in range(WATCHED)]
    return {key: min(each[key] for each in seen) for key in ('peak', 'kept')}
