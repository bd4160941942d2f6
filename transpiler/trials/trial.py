"""What `memory_optimize(verify_runs=N)` does: the program as it is and as it would become are run before anything is applied."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import paddle

from transpiler.arguments import Trial
from transpiler.backends.base import Imported, LiveBackend, Packed
from transpiler.backends.settings import flags
from transpiler.errors import (InvalidArgumentError, InvalidProgramError, UnknownVariableError,
                               VerificationError)
from transpiler.flow import Decision
from transpiler.heap import Kept
from transpiler.ir import Graph
from transpiler.plain import did_you_mean, quoted
from transpiler.report import MeasuredReport, RunsReport
from transpiler.trials.running import Ran, RunSpec, Tensors, difference, run_apart, run_here, tensor_in

_MOST_LISTED = 5
_APART = (
    '. verify_runs runs it in a process of its own, with what the program, the scope and verify_feed hold: what this process has registered '
    '(functions in Python, operators of your own) is not there. Without verify_runs nothing is run')
_SHORT_OF_VALUES = (
    'verify_runs: parameter or state {} has no value in the scope, and the default startup program does not make it: run the startup program of this '
    'program first, in the scope that is in force here')
_NO_SECTION = 'verify_runs: the sections of a pipeline run together, one on each worker; leave verify_runs out'
_NOT_ALONE = (
    'verify_runs: {} talks to the other workers of the job, which would not come: give shared=True on all of them, and they measure together; '
    'or leave verify_runs out, and compare on the workers (demos/workers.py does)')
_NOT_HERE = (
    'verify_runs: runs are on the CPU, and the workers of this job, to whom {} talks, meet on {}; leave verify_runs out, and '
    'compare on the workers (demos/workers.py does)')
_DIFFERENT = (
    'verify_runs: the rewritten program gives other bytes than the program as it was ({}). The program is unchanged. Please report '
    'this as a bug, with the program')
_UNSTEADY = (
    'The untouched program gives other bytes each time it is run, so its results say nothing of the rewritten one\'s.'
)

# Whether that is so on any of the workers that measure together: each waits for all.
Together = Callable[[bool], bool]


def alone(said: bool) -> bool:
    """There is no other."""
    return said


def measure(backend: LiveBackend,
            target: Any,
            decision: Decision,
            trial: Trial,
            kept: Optional[Kept],
            together: Together = alone) -> MeasuredReport:
    """Runs `target`, and what `decision` would make of it if that is anything; changes neither, nor the scope.

    Args:
        kept: how the heap is kept for the rewritten one, if it is, and if that runs in a process of its own.
        together: of workers that share the call: each runs the same programs as often, or one would wait in a collective.

    Raises:
        VerificationError: they give different bytes.
        InvalidProgramError: one does not run.
        InvalidArgumentError: a feed does not fit the inputs, or a parameter has no value.
    """
    imported, written = decision.imported, decision.written
    if imported.under_way:
        raise InvalidArgumentError(_NO_SECTION)
    collective = _collective(imported, together)
    names = sorted(v.name for v in imported.graph.values if v.fetched)
    with tempfile.TemporaryDirectory() as folder:
        here = bool(collective) or not backend.packs(target)
        trials = _Trials(backend, imported.graph, trial, Path(folder), names, here)
        trials.save_feeds(imported.inputs)
        trials.save_state(bool(collective))
        together(False)  # nobody runs before all can
        untouched = trials.untouched(target)
        optimized = trials.rewritten(imported, written, kept) if written else None
        if collective and optimized is None:
            trials.untouched(target)  # others may have changed theirs
        different = _difference(untouched, optimized, names) if optimized else ''
        note = _UNSTEADY if different else ''
        if together(bool(different)):
            again = trials.untouched(target)
            if different and not _difference(untouched, again, names):
                raise VerificationError(_DIFFERENT.format(different))
        return MeasuredReport(trial.runs, runs_report(untouched), optimized and
                              runs_report(optimized), not different, len(trials.names), note)


def _collective(imported: Imported, together: Together) -> str:
    """An op that waits for other workers; '' if there is none. Raises InvalidArgumentError where nobody would come, or
    not to this processor."""
    op = next((op for op in imported.graph.walk() if op.facts.collective), None)
    if op is None:
        return ''
    if together is alone:
        raise InvalidArgumentError(_NOT_ALONE.format(op.kind))
    if imported.closed:
        raise InvalidArgumentError(f'verify_runs: {imported.closed}; leave verify_runs out')
    device = paddle.get_device()
    if device != 'cpu':
        raise InvalidArgumentError(_NOT_HERE.format(op.kind, device))
    return op.kind


class _Trials:
    """What all runs have in common, in files of `folder`; all are `here`, in this process, or each in its own."""

    def __init__(self, backend: LiveBackend, graph: Graph, trial: Trial, folder: Path,
                 fetched: Sequence[str], here: bool) -> None:
        self._backend, self._graph, self._trial, self._folder = backend, graph, trial, folder
        self._fetched, self._here = fetched, here
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

    def save_state(self, all_there: bool) -> None:
        """What the scope has; the default startup program makes what it does not have, unless `all_there` has to be: raises
        InvalidArgumentError then."""
        scope = paddle.static.global_scope()
        held = {name: tensor_in(scope, name) for name in self.names}
        values = {name: value for name, value in held.items() if value is not None}
        if len(values) < len(held) and all_there:
            raise InvalidArgumentError(
                _SHORT_OF_VALUES.format(quoted(sorted(held.keys() - values.keys()), 1)))
        if len(values) < len(held):
            startup = paddle.static.default_startup_program()
            self._startup = self._write('startup', self._backend.pack(startup))
        self._state = _saved(self._folder / 'state.npz', values, 'verify_runs')

    def untouched(self, target: Any) -> Ran:
        what, backend = 'the program as it is', self._backend
        if self._here:
            return self._run_here(backend.copied(target, self._fetched), what)
        return self._run_apart(backend.pack(target, self._fetched), what, None)

    def rewritten(self, imported: Imported, written: Any, kept: Optional[Kept]) -> Ran:
        what, backend = 'the rewritten program', self._backend
        if self._here:
            return self._run_here(backend.copied_written(imported, written, self._fetched), what)
        return self._run_apart(backend.pack_written(imported, written, self._fetched), what, kept)

    def _run_apart(self, packed: Packed, what: str, kept: Optional[Kept]) -> Ran:
        spec = replace(self._spec(kept),
                       program=self._write('program', packed),
                       handles=packed.handles)
        try:
            return _with_values(run_apart(spec, what))
        except InvalidProgramError as error:
            raise InvalidProgramError(f'verify_runs: {error}{_APART}') from error

    def _run_here(self, copied: Tuple[Any, List[Any]], what: str) -> Ran:
        try:
            return _with_values(run_here(self._backend, *copied, self._spec(None), what))
        except InvalidProgramError as error:
            raise InvalidProgramError(f'verify_runs: {error}') from error

    def _spec(self, kept: Optional[Kept]) -> RunSpec:
        return RunSpec('', [], self._startup, self._state, self.names, self._feeds, flags(),
                       self._trial.runs, kept)

    def _write(self, name: str, packed: Packed) -> str:
        path = self._folder / name
        path.write_bytes(packed.contents)
        return str(path)


def _with_values(ran: Ran) -> Ran:
    """Raises InvalidArgumentError if some parameters had none."""
    if ran.missing:
        raise InvalidArgumentError(_SHORT_OF_VALUES.format(quoted(ran.missing, 1)))
    return ran


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
    fetched = f'what is fetched ({quoted(names, _MOST_LISTED)})'
    return difference(untouched, other, fetched, 'parameters and states')


def runs_report(ran: Ran) -> RunsReport:
    """What a report says of it."""
    return RunsReport(ran.first_peak_bytes, min(ran.later_peak_bytes, default=ran.first_peak_bytes),
                      ran.growth_bytes, min(ran.cpu_seconds[1:] or ran.cpu_seconds))
