"""One program, with the values that its parameters have, run and measured: in a process of its own, or here.

`python -m transpiler.trials.running` reads a RunSpec as JSON from stdin and prints a Ran as JSON.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

import numpy as np
import paddle
from paddle.base import core

from transpiler.backends.base import LiveBackend, Packed
from transpiler.backends.installed import live_programs
from transpiler.backends.scopes import fresh_scope
from transpiler.backends.settings import collects_garbage, flags
from transpiler.errors import InvalidProgramError
from transpiler.heap import Kept, give_back, keeper_for
from transpiler.serving.apart import (Peaks, answer, answer_apart, arrays_in, digest, empty_tensor,
                                      forget_highest, status)

_SEED = 0


@dataclass(frozen=True)
class Tensors:
    """Tensors in an `.npz` file, where the one of `names[i]` is `arr_i`; `lods` by name, of those that have one."""

    path: str
    names: List[str]
    lods: Dict[str, List[List[int]]]

    def read(self) -> Dict[str, Any]:
        """Arrays, and tensors where there is LoD."""
        arrays = arrays_in(self.path)
        found = {name: arrays[f'arr_{i}'] for i, name in enumerate(self.names)}
        return {**found, **{name: _with_lod(found[name], lod) for name, lod in self.lods.items()}}


@dataclass(frozen=True)
class RunSpec:
    """What to run, `runs` times, with the feeds in turn. Programs are files ('' for one at hand); handles are what `Packed` says.

    `startup` ('' for none) makes what `state` does not have. `kept`: how the heap is kept, if it is.
    """

    program: str
    handles: List[Any]
    startup: str
    state: Tensors
    names: List[str]
    feeds: List[Tensors]
    flags: Dict[str, Any]
    runs: int
    kept: Optional[Kept]


@dataclass(frozen=True)
class Ran:
    """Bytes above resting of the first run, and of each of as many runs as came after it; bytes that the process grew by in the runs, if it was
    there for them alone; processor seconds of each run; digests of what each run gave and of all parameters and states after the
    last. Nothing ran if there are parameters and states `missing`."""

    first_peak_bytes: int = 0
    later_peak_bytes: List[int] = field(default_factory=list)
    growth_bytes: Optional[int] = None
    cpu_seconds: List[float] = field(default_factory=list)
    digests: List[str] = field(default_factory=list)
    state: str = ''
    missing: List[str] = field(default_factory=list)


def difference(untouched: Ran, other: Ran, results: str, states: str) -> str:
    """In what two differ, which call what they give so; '' if in nothing."""
    for at, (one, two) in enumerate(zip(untouched.digests, other.digests), 1):
        if one != two:
            return f'{results} of run {at}'
    return '' if untouched.state == other.state else f'{states} after the last run'


def run_apart(spec: RunSpec, what: str) -> Ran:
    """Runs in a fresh process; raises InvalidProgramError with its last line if it fails, saying that it was `what` which did."""
    return Ran(**answer_apart('transpiler.trials.running', asdict(spec), what))


def run_here(backend: LiveBackend, program: Any, fetches: List[Any], spec: RunSpec,
             what: str) -> Ran:
    """Runs `program` in this process, in a scope of its own; random numbers go on afterwards as if nothing had run.

    Raises:
        InvalidProgramError: it, which is `what`, does not run.
    """
    with dice_kept():
        try:
            ran = _started_and_run(backend, program, fetches, spec)
        except Exception as error:  # what Paddle throws
            raise InvalidProgramError(f'{what} does not run: {last_line(error)}') from error
    return replace(ran, growth_bytes=None)


@contextlib.contextmanager
def dice_kept() -> Iterator[None]:
    """Random numbers after it are those that would have come without it."""
    dice = paddle.get_rng_state()
    try:
        yield
    finally:
        paddle.set_rng_state(dice)


def last_line(error: Exception) -> str:
    """What went wrong, of all that Paddle says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def run(spec: RunSpec) -> Ran:
    """Runs in this process, which is there for it alone."""
    paddle.enable_static()
    _set_flags(spec.flags)
    backend = live_programs(paddle.static.Program())
    program, fetches = _unpacked(backend, spec.program, spec.handles)
    if spec.kept:
        keeper = keeper_for(spec.kept, collects_garbage)
        if not isinstance(keeper, str):
            backend.keep(program, keeper)
    return _started_and_run(backend, program, fetches, spec)


def _started_and_run(backend: LiveBackend, program: Any, fetches: List[Any], spec: RunSpec) -> Ran:
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        missing = _start(backend, executor, spec)
        if missing:
            return Ran(missing=missing)
        feeds = [feed.read() for feed in spec.feeds] or [{}]

        def step(number: int) -> List[np.ndarray]:
            found = executor.run(program,
                                 feed=feeds[number % len(feeds)],
                                 fetch_list=fetches,
                                 return_numpy=False)
            return [array for each in found for array in _contents(each)]

        return _measured(step, spec)


def _contents(fetched: Any) -> Iterator[np.ndarray]:
    """The elements of a tensor, and its LoD if it has one; of an array of tensors, those of each."""
    tensors = [fetched] if hasattr(fetched, 'lod') else fetched
    for tensor in tensors:
        yield np.array(tensor)
        yield from (np.array(level) for level in tensor.lod())


def _measured(step: Callable[[int], List[np.ndarray]], spec: RunSpec) -> Ran:
    """All runs; then as many again but the first for their peaks: what fills the gap to the highest peak so far lies where tensors would,
    and what the process grew by has to be read before."""
    give_back()  # what reading has left
    forget_highest()
    peaks, resident = Peaks(), status('VmRSS')
    digests: List[str] = []
    seconds: List[float] = []
    for number in range(spec.runs):
        started = time.process_time()
        results = step(number) if number else peaks.around(lambda: step(0))
        seconds.append(time.process_time() - started)
        digests.append(digest(results))
        del results
    grown = status('VmHWM') - resident
    scope = paddle.static.global_scope()
    state = digest([np.array(scope.find_var(name).get_tensor()) for name in spec.names])
    for number in range(1, spec.runs):
        peaks.around(lambda at=number: step(at))  # type: ignore[misc]
    first, *later = peaks.above_least_rest()
    return Ran(first, later, grown, seconds, digests, state)


def _start(backend: LiveBackend, executor: Any, spec: RunSpec) -> List[str]:
    """Parameters and states get their values, then the dice start anew; gives the names of those that got none."""
    paddle.seed(_SEED)
    if spec.startup:
        executor.run(_unpacked(backend, spec.startup, [])[0])
    scope = paddle.static.global_scope()
    for name, value in spec.state.read().items():
        scope.var(name).get_tensor().set(np.asarray(value), paddle.CPUPlace())
    paddle.seed(_SEED)
    return [name for name in spec.names if tensor_in(scope, name) is None]


def tensor_in(scope: Any, name: str) -> Any:
    """None if there is none, or one that nobody has written."""
    variable = scope.find_var(name)
    if variable is None:
        return None
    tensor = variable.get_tensor()
    return tensor if tensor._is_initialized() else None


def _unpacked(backend: LiveBackend, path: str, handles: Sequence[Any]) -> Any:
    with open(path, 'rb') as stream:
        return backend.unpack(Packed(stream.read(), list(handles)))


def _set_flags(wanted: Mapping[str, Any]) -> None:
    """Those of the other process that are others here."""
    here = flags()
    paddle.set_flags({k: v for k, v in wanted.items() if here.get(k, v) != v})


def _with_lod(array: np.ndarray, lod: List[List[int]]) -> Any:
    tensor = empty_tensor()
    tensor.set(array, core.CPUPlace())
    tensor.set_lod(lod)
    return tensor


def _spec(said: Dict[str, Any]) -> RunSpec:
    return RunSpec(
        **{
            **said, 'state': Tensors(**said['state']),
            'feeds': [Tensors(**each) for each in said['feeds']],
            'kept': said['kept'] and Kept(*said['kept'])
        })


if __name__ == '__main__':
    answer(lambda said: asdict(run(_spec(said))))
