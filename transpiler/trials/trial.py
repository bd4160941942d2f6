"""What `memory_optimize(verify_runs=N)` does: the program as it is and as it would become are run before anything is applied."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, FrozenSet, List, Mapping, Sequence

import numpy as np
import paddle

from transpiler.arguments import Trial
from transpiler.backends.base import LiveBackend, Packed
from transpiler.backends.settings import flags
from transpiler.errors import (InvalidArgumentError, InvalidProgramError, UnknownVariableError,
                               VerificationError)
from transpiler.flow import Decision
from transpiler.ir import Graph
from transpiler.plain import did_you_mean, quoted
from transpiler.report import MeasuredReport, RunsReport
from transpiler.trials.running import Ran, RunSpec, Tensors, run_apart, tensor_in

_MOST_LISTED = 5
_APART = (
    '. verify_runs runs it in a process of its own, with what the program, the scope and verify_feed hold: what this process has registered '
    '(functions in Python, operators of your own) is not there. Without verify_runs nothing is run')
_SHORT_OF_VALUES = (
    'verify_runs: parameter or state {} has no value in the scope, and the default startup program does not make it: run the startup program of this '
    'program first, in the scope that is in force here')
_DIFFERENT = (
    'verify_runs: the rewritten program gives other bytes than the program as it was ({}). The program is unchanged. Please report '
    'this as a bug, with the program')
_UNSTEADY = (
    'The untouched program gives other bytes from process to process, so its results say nothing of the rewritten one\'s.'
)


def measure(backend: LiveBackend, target: Any, decision: Decision, trial: Trial,
            kept_bytes: int) -> MeasuredReport:
    """Runs `target`, and what `decision` would make of it if that is anything; changes neither, nor the scope.

    Args:
        kept_bytes: for the rewritten one the heap is kept small, as for tensors of so many bytes at once; not for 0.

    Raises:
        VerificationError: they give different bytes.
        InvalidProgramError: one does not run.
        InvalidArgumentError: a feed does not fit the inputs, or a parameter has no value.
    """
    imported, written = decision.imported, decision.written
    _check_alone(imported.graph)
    names = sorted(v.name for v in imported.graph.values if v.fetched)
    with tempfile.TemporaryDirectory() as folder:
        trials = _Trials(backend, imported.graph, trial, Path(folder))
        trials.save_feeds(imported.inputs)
        trials.save_state()
        untouched = trials.run(backend.pack(target, names), 'the program as it is', 0)
        if written is None:
            return MeasuredReport(trial.runs, _runs(untouched))
        packed = backend.pack_written(imported, written, names)
        optimized = trials.run(packed, 'the rewritten program', kept_bytes)
        note = ''
        different = _difference(untouched, optimized, names)
        if different:
            again = trials.run(backend.pack(target, names), 'the program as it is', 0)
            if not _difference(untouched, again, names):
                raise VerificationError(_DIFFERENT.format(different))
            note = _UNSTEADY
        return MeasuredReport(trial.runs, _runs(untouched), _runs(optimized), not different,
                              len(trials.names), note)


def _check_alone(graph: Graph) -> None:
    """Raises InvalidArgumentError for a program that would wait for other workers."""
    op = next((op for op in graph.walk() if op.facts.collective), None)
    if op is not None:
        raise InvalidArgumentError(
            f'verify_runs: {op.kind} talks to the other workers of the job, which a process of its own has not: '
            'leave verify_runs out, and compare on the workers (demos/workers.py does)')


class _Trials:
    """What all runs have in common, in files of `folder`."""

    def __init__(self, backend: LiveBackend, graph: Graph, trial: Trial, folder: Path) -> None:
        self._backend, self._graph, self._trial, self._folder = backend, graph, trial, folder
        self.names = sorted({v.name for v in graph.values if v.persistable and v.size is not None})
        self._feeds: List[Tensors] = []
        self._state = Tensors('', [], {})
        self._startup = ''

    def save_feeds(self, inputs: FrozenSet[str]) -> None:
        read = {self._graph.values[v].name for op in self._graph.walk() for v in op.reads()}
        needed = inputs & read
        for at, feed in enumerate(self._trial.feeds or ({},)):
            _check_feed(feed, inputs, needed)
            self._feeds.append(_saved(self._folder / f'feed_{at}.npz', feed, 'verify_feed'))

    def save_state(self) -> None:
        """What the scope has; the default startup program makes what it does not have."""
        scope = paddle.static.global_scope()
        held = {name: tensor_in(scope, name) for name in self.names}
        values = {name: value for name, value in held.items() if value is not None}
        if len(values) < len(held):
            startup = paddle.static.default_startup_program()
            self._startup = self._write('startup', self._backend.pack(startup))
        self._state = _saved(self._folder / 'state.npz', values, 'verify_runs')

    def run(self, packed: Packed, what: str, kept_bytes: int) -> Ran:
        spec = RunSpec(self._write('program', packed), packed.handles, self._startup, self._state,
                       self.names, self._feeds, flags(), self._trial.runs, kept_bytes)
        try:
            ran = run_apart(spec, what)
        except InvalidProgramError as error:
            raise InvalidProgramError(f'verify_runs: {error}{_APART}') from error
        if ran.missing:
            raise InvalidArgumentError(_SHORT_OF_VALUES.format(quoted(ran.missing, 1)))
        return ran

    def _write(self, name: str, packed: Packed) -> str:
        path = self._folder / name
        path.write_bytes(packed.contents)
        return str(path)


def _check_feed(feed: Mapping[str, Any], inputs: FrozenSet[str], needed: FrozenSet[str]) -> None:
    for name in feed:
        if name not in inputs:
            raise UnknownVariableError(
                f'verify_feed: the program has no input {name!r}; its inputs are '
                f'{quoted(inputs, _MOST_LISTED)}.{did_you_mean(str(name), inputs)}')
    if needed - feed.keys():
        raise InvalidArgumentError(
            f'verify_feed: no value for input {quoted(needed - feed.keys(), _MOST_LISTED)}: give all of them, '
            "as verify_feed={'x': array, ...}")


def _saved(path: Path, tensors: Mapping[str, Any], argument: str) -> Tensors:
    """Arrays go by number: names may be what no file is called."""
    np.savez(path, *(_array(name, value, argument) for name, value in tensors.items()))
    lods = {name: value.lod() for name, value in tensors.items() if hasattr(value, 'lod')}
    return Tensors(str(path), list(tensors), {name: lod for name, lod in lods.items() if lod})


def _array(name: str, value: Any, argument: str) -> np.ndarray:
    """Raises InvalidArgumentError for rows of different lengths, texts and the like."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidArgumentError(f'{argument}: {name!r} is no array of numbers') from error
    if array.dtype.hasobject or array.dtype.kind in 'SUmM':
        raise InvalidArgumentError(f'{argument}: {name!r} is no array of numbers')
    return array


def _difference(untouched: Ran, other: Ran, names: Sequence[str]) -> str:
    """In what results differ; '' if in nothing."""
    runs = [
        at for at, pair in enumerate(zip(untouched.digests, other.digests), 1) if len({*pair}) > 1
    ]
    if runs:
        return f'what is fetched in run {runs[0]}: {quoted(names, _MOST_LISTED)}'
    return '' if untouched.state == other.state else 'parameters and states after the last run'


def _runs(ran: Ran) -> RunsReport:
    return RunsReport(ran.first_peak_bytes, min(ran.later_peak_bytes, default=ran.first_peak_bytes),
                      ran.growth_bytes, min(ran.cpu_seconds[1:] or ran.cpu_seconds))
