"""One saved program, run and measured in a process of its own.

`python -m transpiler.serving.running` reads a RunSpec as JSON from stdin and prints a RunResult as JSON: Paddle
can neither reset its peak nor forget what it cached, so one process makes one measurement.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np
import paddle
from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.errors import InvalidProgramError, SavedFileError
from transpiler.serving.apart import SWITCHES, Peaks, RunResult, RunSpec, answer_apart, digest
from transpiler.serving.files import SavedProgram, read_program
from transpiler.serving.parameters import fits
from transpiler.serving.pickled_arrays import read_arrays

# Ways of running a predictor, by what is set on its Config. `default` sets nothing.
SETTINGS: Tuple[Tuple[str, ...],
                ...] = ((), ('no_ir',), ('no_onednn',), ('memory_optim',), ('new_executor',),
                        ('no_ir', 'memory_optim'), ('no_onednn', 'memory_optim'),
                        ('no_ir', 'new_executor'), ('no_onednn', 'new_executor'), ('memory_optim',
                                                                                   'new_executor'),
                        ('no_ir', 'no_onednn'), ('no_ir', 'no_onednn', 'memory_optim'))


def run_apart(spec: RunSpec, environment: Mapping[str, str] = MappingProxyType({})) -> RunResult:
    """Runs `spec` in a fresh process that has `environment` too; raises InvalidProgramError with its last line if it fails."""
    question = {**asdict(spec), 'program': os.path.abspath(spec.program)}
    return RunResult(
        **answer_apart('transpiler.serving.running', question, spec.program, environment))


def run(spec: RunSpec) -> RunResult:
    """Runs `spec` in this process."""
    saved = read_program(spec.program)
    with np.load(spec.feed) as arrays:
        feed = {name: arrays[name] for name in arrays.files}
    start = _predictor if saved.for_inference else _executor
    step, state = start(saved, spec, feed)
    peaks = Peaks()
    digests = [digest(peaks.around(step)) for _ in range(spec.runs)]
    return RunResult(peaks.resting, peaks.seen, peaks.held(), digests, state())


def predictor_of(saved: SavedProgram, settings: Sequence[str]) -> Any:
    """Loads it; `settings` are names of settings.SWITCHES."""
    from paddle import inference
    config = inference.Config(*saved.location)
    config.disable_glog_info()
    for setting in settings:
        SWITCHES[setting](config)
    return inference.create_predictor(config)


def _predictor(saved: SavedProgram, spec: RunSpec, feed: Dict[str, np.ndarray]) -> Tuple:
    predictor = predictor_of(saved, spec.settings)

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
    names = _fill_state(saved, scope, read_state(saved))

    def step() -> List[np.ndarray]:
        with paddle.static.scope_guard(scope):
            return executor.run(program, feed=feed, fetch_list=list(spec.fetch))

    def state() -> str:
        return digest([np.array(scope.find_var(n).get_tensor()) for n in names])

    return step, state


def read_state(saved: SavedProgram) -> Dict[str, np.ndarray]:
    """What the `.pdparams` of a training program holds of its parameters; nothing if there is none.

    Raises:
        SavedFileError: the file is damaged, holds more than arrays, or belongs to another program.
    """
    path = saved.companions.get('.pdparams')
    if path is None:
        return {}
    arrays, found = read_arrays(path), {}
    for variable in saved.parameters:
        if variable.name in arrays:
            array, tensor = arrays[variable.name], variable.type.lod_tensor.tensor
            same_type = array.dtype == _numpy_type(tensor.data_type)
            if not same_type or not fits(array.shape, tensor.dims):
                raise SavedFileError(
                    f'{path}: has {array.dtype} {list(array.shape)} where {variable.name!r} is '
                    f'{_numpy_type(tensor.data_type)} {list(tensor.dims)}; not the parameters of '
                    'this program')
            found[variable.name] = array
    return found


def _fill_state(saved: SavedProgram, scope: Any, given: Dict[str, np.ndarray]) -> List[str]:
    """Every persistable tensor with its saved value, or with small positive numbers drawn by its name."""
    for variable in saved.parameters:
        value = given.get(variable.name)
        value = _drawn(variable) if value is None else value
        scope.var(variable.name).get_tensor().set(value, paddle.CPUPlace())
    return sorted(v.name for v in saved.parameters)


def _drawn(variable: framework_pb2.VarDesc) -> np.ndarray:
    tensor = variable.type.lod_tensor.tensor
    shape = [max(1, d) for d in tensor.dims]
    dtype = _numpy_type(tensor.data_type)
    if np.dtype(dtype).kind in 'iub':
        return np.ones(shape, dtype)
    seed = int(hashlib.sha256(variable.name.encode()).hexdigest()[:8], 16)
    return np.random.RandomState(seed).uniform(0.01, 0.1, shape).astype(dtype)


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


if __name__ == '__main__':
    print(json.dumps(asdict(run(RunSpec(**json.load(sys.stdin))))))
