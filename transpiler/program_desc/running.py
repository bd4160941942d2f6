"""One saved program, run and measured in a process of its own.

`python -m transpiler.program_desc.running` reads a RunSpec as JSON from stdin and prints a RunResult as JSON: Paddle
can neither reset its peak nor forget what it cached, so one process makes one measurement.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import paddle
from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.errors import InvalidProgramError
from transpiler.program_desc.files import SavedProgram, read_program

# Ways of running a predictor, by what is set on its Config. `default` sets nothing.
SETTINGS: Tuple[Tuple[str, ...],
                ...] = ((), ('no_ir',), ('no_onednn',), ('memory_optim',), ('new_executor',),
                        ('no_ir', 'memory_optim'), ('no_onednn', 'memory_optim'),
                        ('no_ir', 'new_executor'), ('no_onednn', 'new_executor'), ('memory_optim',
                                                                                   'new_executor'),
                        ('no_ir', 'no_onednn'), ('no_ir', 'no_onednn', 'memory_optim'))
_FLOAT_BYTES = 4


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


def run_apart(spec: RunSpec) -> RunResult:
    """Runs `spec` in a fresh process; raises InvalidProgramError with its last line if it fails."""
    return RunResult(**answer_apart('transpiler.program_desc.running', asdict(spec), spec.program))


def answer_apart(module: str, question: Dict[str, Any], program: str) -> Any:
    """What `module` prints as JSON when it is run in a fresh process, of one thread, that is given `question`.

    Raises:
        InvalidProgramError: it fails; `program` is what it was to run.
    """
    environment = {**os.environ, 'OMP_NUM_THREADS': '1', 'GLOG_minloglevel': '3'}
    done = subprocess.run([sys.executable, '-m', module],
                          input=json.dumps(question),
                          stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE,
                          universal_newlines=True,
                          env=environment,
                          check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if 'Error' in line]
        reason = lines[-1] if lines else f'the process ended with {done.returncode}'
        raise InvalidProgramError(f'{program} does not run: {reason}')
    return json.loads(done.stdout.splitlines()[-1])


class _Peaks:
    """The peak of each run, although Paddle's counter only rises: untouched memory fills the gap to it first."""

    def __init__(self) -> None:
        self.resting = _current()
        self.seen: List[int] = []
        self._ballast: List[Any] = []

    def around(self, run: Callable[[], List[np.ndarray]]) -> List[np.ndarray]:
        gap = (_peak() - _current()) // _FLOAT_BYTES
        if gap > 0:
            tensor = core.LoDTensor()
            tensor._set_dims([gap])
            tensor._alloc_float(core.CPUPlace())
            self._ballast.append(tensor)
        outputs = run()
        self.seen.append(_peak() - self._filled() - self.resting)
        return outputs

    def held(self) -> int:
        return _current() - self._filled() - self.resting

    def _filled(self) -> int:
        return sum(_FLOAT_BYTES * int(np.prod(t.shape())) for t in self._ballast)


def _current() -> int:
    return core.host_memory_stat_current_value('Allocated', 0)


def _peak() -> int:
    return core.host_memory_stat_peak_value('Allocated', 0)


def run(spec: RunSpec) -> RunResult:
    """Runs `spec` in this process."""
    saved = read_program(spec.program)
    with np.load(spec.feed) as arrays:
        feed = {name: arrays[name] for name in arrays.files}
    start = _predictor if saved.for_inference else _executor
    step, state = start(saved, spec, feed)
    peaks = _Peaks()
    digests = [digest(peaks.around(step)) for _ in range(spec.runs)]
    return RunResult(peaks.resting, peaks.seen, peaks.held(), digests, state())


def _predictor(saved: SavedProgram, spec: RunSpec, feed: Dict[str, np.ndarray]) -> Tuple:
    from paddle import inference
    config = inference.Config(*saved.location)
    config.disable_glog_info()
    switches = {
        'no_ir': lambda: config.switch_ir_optim(False),
        'no_onednn': config.disable_mkldnn,
        'memory_optim': config.enable_memory_optim,
        'new_executor': config.enable_new_executor,
    }
    for setting in spec.settings:
        switches[setting]()
    predictor = inference.create_predictor(config)

    def step() -> List[np.ndarray]:
        for name in predictor.get_input_names():
            predictor.get_input_handle(name).copy_from_cpu(feed[name])
        predictor.run()
        return [predictor.get_output_handle(n).copy_to_cpu() for n in predictor.get_output_names()]

    return step, lambda: ''


def _executor(saved: SavedProgram, spec: RunSpec, feed: Dict[str, np.ndarray]) -> Tuple:
    paddle.enable_static()
    paddle.seed(0)
    program = paddle.static.Program.parse_from_string(saved.serialized)
    scope, executor = paddle.static.Scope(), paddle.static.Executor(paddle.CPUPlace())
    given = paddle.load(str(
        saved.companions['.pdparams'])) if '.pdparams' in saved.companions else {}
    names = _fill_state(saved, scope, given)

    def step() -> List[np.ndarray]:
        with paddle.static.scope_guard(scope):
            return executor.run(program, feed=feed, fetch_list=list(spec.fetch))

    def state() -> str:
        return digest([np.array(scope.find_var(n).get_tensor()) for n in names])

    return step, state


def _fill_state(saved: SavedProgram, scope: Any, given: Dict[str, Any]) -> List[str]:
    """Every persistable tensor with its saved value, or with small positive numbers drawn by its name."""
    names = []
    for variable in saved.message.blocks[0].vars:
        if not variable.persistable or variable.type.type != framework_pb2.VarType.LOD_TENSOR:
            continue
        tensor = variable.type.lod_tensor.tensor
        shape = [max(1, d) for d in tensor.dims]
        dtype = _numpy_type(tensor.data_type)
        seed = int(hashlib.sha256(variable.name.encode()).hexdigest()[:8], 16)
        drawn = np.random.RandomState(seed).uniform(0.01, 0.1, shape)
        value = np.ones(shape, dtype) if np.dtype(dtype).kind in 'iub' else drawn.astype(dtype)
        value = np.array(given.get(variable.name, value))
        scope.var(variable.name).get_tensor().set(value, paddle.CPUPlace())
        names.append(variable.name)
    return sorted(names)


def make_feed(saved: SavedProgram,
              names: List[str],
              sizes: Dict[str, Tuple[int, ...]],
              seed: int = 0) -> Dict[str, np.ndarray]:
    """Inputs that any program accepts: normal numbers, and 0 or 1 where whole numbers are asked for.

    Raises:
        InvalidProgramError: an input with LoD, which has no shape to draw from.
    """
    random = np.random.RandomState(seed)
    variables = {v.name: v for v in saved.message.blocks[0].vars}
    feed = {}
    for name in names:
        described = variables[name].type.lod_tensor
        if described.lod_level:
            raise InvalidProgramError(f'input {name!r} has LoD; give inputs with --feed')
        dtype = _numpy_type(described.tensor.data_type)
        whole = np.dtype(dtype).kind in 'iub'
        value = random.randint(0, 2, sizes[name]) if whole else random.randn(*sizes[name])
        feed[name] = value.astype(dtype)
    return feed


def _numpy_type(data_type: int) -> Any:
    name = core.VarDesc.VarType(data_type).name
    return {
        'FP32': 'float32',
        'FP64': 'float64',
        'FP16': 'float16',
        'BF16': 'uint16'
    }.get(name, name.lower())


def digest(arrays: List[np.ndarray]) -> str:
    """The same for the same bytes, types and shapes."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f'{array.dtype} {array.shape}\n'.encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]


if __name__ == '__main__':
    print(json.dumps(asdict(run(RunSpec(**json.load(sys.stdin))))))
