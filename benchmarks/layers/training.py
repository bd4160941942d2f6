"""Trains a network in several ways, each in a process of its own, one step of each in turn."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterator, List, Tuple

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


class _Ended(Exception):
    """A trainer ended before it was told to."""


class _Trainer:
    """A process that trains; see `trainer`. One that ends answers nothing from then on."""

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
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(what + '\n')
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('>'):
                return json.loads(line[1:])
        raise _Ended(f'ends with status {self._process.wait()}')

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
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


class _Trained:
    """What one way has shown so far; nothing more once its process has ended."""

    def __init__(self, way: Way, trainer: _Trainer) -> None:
        self._way, self._trainer = way, trainer
        self._steps: List[Dict[str, Any]] = []
        self._more: Dict[str, Any] = {'failure': ''}

    def step(self) -> None:
        self._unless_ended(lambda: self._steps.append(self._trainer.ask('step')))

    def end(self) -> None:
        """What is left after all steps that are compared."""
        self._unless_ended(lambda: self._more.update(self._trainer.ask('end')))

    def watch(self) -> None:
        """The least of several further steps."""
        self._unless_ended(self._watch)

    def row(self) -> Row:
        return {
            'way': self._way.name,
            'mode': self._way.mode,
            **self._more, 'losses': [each['loss'] for each in self._steps],
            **{
                kind: [each[kind] for each in self._steps[WARMING:]] for kind in ('wall', 'cpu')
            }
        }

    def _unless_ended(self, act: Callable[[], Any]) -> None:
        if self._more['failure']:
            return
        try:
            act()
        except _Ended as ended:
            self._more['failure'] = str(ended)

    def _watch(self) -> None:
        self._trainer.ask('watch')
        seen = [self._trainer.ask('step') for _ in range(WATCHED)]
        self._more.update((key, min(each[key] for each in seen)) for key in ('peak', 'kept'))


def measured(python: str, network: str, asked: Tuple[Way, ...], steps: int) -> List[Row]:
    """A row for each way. All train `steps` steps, which are compared; then the processes are looked at, and further steps
    watched."""
    loads = [os.getloadavg()[0]]
    with contextlib.ExitStack() as stack:
        found = [
            _Trained(way, stack.enter_context(_training(python, network, way))) for way in asked
        ]
        for _ in range(steps):
            for each in found:
                each.step()
            loads.append(os.getloadavg()[0])
        for each in found:
            each.end()
        for each in found:
            each.watch()
    loads.append(os.getloadavg()[0])
    rows = [each.row() for each in found]
    known = [row['paddle'] for row in rows if 'paddle' in row]
    told = {'python': python, 'network': network, 'loads': (min(loads), max(loads)),
            'paddle': known[0] if known else '?',
            'date': datetime.now(timezone.utc).strftime('%Y-%m-%d')}  # yapf: disable
    return [{**row, **told} for row in rows]
