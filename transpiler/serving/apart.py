"""What is measured of a program, in a process of its own: one process makes one measurement.

Paddle can neither reset its peak in all of its versions nor forget what it cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np
from paddle.base import core

from transpiler.errors import InvalidProgramError

CACHE_OF_ONE = 'cache_of_one'
# What `predictor settings` of that name do to a paddle.inference.Config.
SWITCHES: Mapping[str, Callable[[Any], None]] = MappingProxyType({
    'no_ir': lambda config: config.switch_ir_optim(False),
    'no_onednn': lambda config: config.disable_mkldnn(),
    'memory_optim': lambda config: config.enable_memory_optim(),
    'new_executor': lambda config: config.enable_new_executor(),
    CACHE_OF_ONE: lambda config: config.set_mkldnn_cache_capacity(1),
})

_FLOAT_BYTES = 4
_RESET = 'host_memory_stat_reset_peak_value'  # Paddle 3's
# The collector is done when the bytes held have not changed for so many looks in a row.
_QUIET_LOOKS, _LOOK_SECONDS, _MOST_LOOKS = 5, 0.002, 200
_ROOT = Path(__file__).resolve().parents[2]  # the folder that has the package


@dataclass(frozen=True)
class RunSpec:
    """What to run: a program, an .npz of inputs, names to fetch, predictor settings, number of runs."""

    program: str
    feed: str
    fetch: List[str] = field(default_factory=list)
    settings: List[str] = field(default_factory=list)
    runs: int = 3


@dataclass(frozen=True)
class RunResult:
    """Peaks are bytes above `resting_bytes`, one a run; `digests` of all that was fetched, one a run."""

    resting_bytes: int
    peak_bytes: List[int]
    held_bytes: int
    digests: List[str]
    state: str

    @property
    def results(self) -> Tuple[List[str], str]:
        return self.digests, self.state


def answer_apart(module: str,
                 question: Dict[str, Any],
                 program: str,
                 environment: Mapping[str, str] = MappingProxyType({})) -> Any:
    """What `module` prints as JSON when it is run in a fresh process, of one thread, that is given `question`.

    `environment` is added to its own. Its folder is an empty one: `-m` takes modules from there first, and the folder of a model may hold anything.

    Raises:
        InvalidProgramError: it fails; `program` is what it was to run.
    """
    given = os.environ.get('PYTHONPATH', '').split(os.pathsep)
    found = [str(_ROOT), *(os.path.abspath(p) for p in given if p)]
    variables = {
        **os.environ, 'OMP_NUM_THREADS': '1',
        'GLOG_minloglevel': '3',
        'PYTHONPATH': os.pathsep.join(found),
        **environment
    }
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run([sys.executable, '-m', module],
                              input=json.dumps(question),
                              stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE,
                              universal_newlines=True,
                              cwd=empty,
                              env=variables,
                              check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if 'Error' in line]
        reason = lines[-1] if lines else f'the process ended with {done.returncode}'
        raise InvalidProgramError(f'{program} does not run: {reason}')
    return json.loads(done.stdout.splitlines()[-1])


def answer(run: Callable[[Any], Any]) -> None:
    """The side of `answer_apart` in the other process: what `run` makes of the question is printed. What operators print on the way goes
    where errors go."""
    with os.fdopen(os.dup(1), 'w') as stream:
        os.dup2(2, 1)
        stream.write(json.dumps(run(json.load(sys.stdin))) + '\n')


def predictor_of(location: Sequence[str], settings: Sequence[str]) -> Any:
    """Loads a program, by what Paddle Inference is told to load; `settings` are names of SWITCHES."""
    from paddle import inference
    config = inference.Config(*location)
    config.disable_glog_info()
    for setting in settings:
        SWITCHES[setting](config)
    return inference.create_predictor(config)


def served_once(predictor: Any, feed: Mapping[str, np.ndarray]) -> List[np.ndarray]:
    """What it gives for these inputs, in the order of its outputs."""
    for name in predictor.get_input_names():
        predictor.get_input_handle(name).copy_from_cpu(feed[name])
    predictor.run()
    return [predictor.get_output_handle(n).copy_to_cpu() for n in predictor.get_output_names()]


def arrays_in(path: str) -> Dict[str, np.ndarray]:
    """All arrays of an `.npz` file, by name; whatever numpy raises if it is none."""
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def status(key: str) -> int:
    """Bytes of this process, by a key of /proc/self/status."""
    with open('/proc/self/status') as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key + ':')) * 1024


def forget_highest() -> None:
    """From now on VmHWM is the highest since now: loading may have needed more than there is."""
    with contextlib.suppress(OSError), open('/proc/self/clear_refs', 'w') as file:
        file.write('5')


def current_bytes() -> int:
    """Bytes that live tensors hold now."""
    return core.host_memory_stat_current_value('Allocated', 0)


def peak_bytes() -> int:
    """The most bytes that were ever held; Paddle 2.6 has no way to reset it."""
    return core.host_memory_stat_peak_value('Allocated', 0)


def settled_bytes(quiet_looks: int = _QUIET_LOOKS) -> int:
    """Bytes that tensors hold once the executor's collector, a thread of its own, has caught up: as many looks in a row show no
    others."""
    held, quiet = current_bytes(), 0
    for _ in range(_MOST_LOOKS):
        time.sleep(_LOOK_SECONDS)
        now = current_bytes()
        held, quiet = now, quiet + 1 if now == held else 0
        if quiet == quiet_looks:
            break
    return held


class Peaks:
    """The peak of each run, although Paddle 2.6's counter only rises.

    Before a run, untouched tensors fill the gap between what is held and the highest peak so far: the run's own peak then shows as
    the counter's rise. Their pages are never written, so they cost address space only.

    The counter rises only when a thread holds more than that thread ever did, and tensors fill the gap of the thread that asks alone.
    Paddle 3, whose ops run in several, can set the peaks of all back to what is held, so that there is no gap.
    """

    def __init__(self) -> None:
        self.resting = settled_bytes()
        self.seen: List[int] = []
        self._ballast: List[Any] = []
        self._ballast_bytes = 0

    def around(self, run: Callable[[], List[np.ndarray]]) -> List[np.ndarray]:
        """What `run` gives; its peak is the last of `seen`."""
        self.start_run()
        outputs = run()
        self.seen.append(self.above_resting())
        return outputs

    def start_run(self) -> None:
        """Makes what is held the highest peak so far."""
        held = settled_bytes()
        if hasattr(core, _RESET):
            getattr(core, _RESET)('Allocated', 0)
        gap = (peak_bytes() - held) // _FLOAT_BYTES
        if gap <= 0:
            return
        tensor = empty_tensor()
        tensor._set_dims([gap])
        tensor._alloc_float(core.CPUPlace())
        self._ballast.append(tensor)
        self._ballast_bytes += _FLOAT_BYTES * gap

    def above_resting(self, seen: int = 0) -> int:
        """Bytes above resting that the run reached; `seen` are those that somebody saw held."""
        return max(peak_bytes(), seen) - self._ballast_bytes - self.resting

    def above_least_rest(self) -> List[int]:
        """`seen`, above what is held now if that is less than was held in the beginning: what is freed late was taken for resting."""
        less = -min(0, self.held())
        return [each + less for each in self.seen]

    def held(self) -> int:
        """Bytes above resting that are held now."""
        return settled_bytes() - self._ballast_bytes - self.resting


def empty_tensor() -> Any:
    """Paddle 3 calls it another name."""
    return (core.LoDTensor if hasattr(core, 'LoDTensor') else core.DenseTensor)()


def digest(arrays: List[np.ndarray]) -> str:
    """The same for the same bytes, types and shapes."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f'{array.dtype} {array.shape}\n'.encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]
