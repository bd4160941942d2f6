"""One saved program, run and measured in a process of its own.

`python -m transpiler.serving.running` reads a RunSpec as JSON from stdin and prints a RunResult as JSON: Paddle
can neither reset its peak nor forget what it cached, so one process makes one measurement.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np
import paddle
from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.backends.scopes import passing_scope
from transpiler.errors import InvalidProgramError, SavedFileError
from transpiler.serving.apart import (Peaks, RunResult, RunSpec, answer, answer_apart, arrays_in,
                                      digest, predictor_of, served_once)
from transpiler.serving.files import SavedProgram, read_program
from transpiler.serving.given import drawn, numpy_type
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
    start = _predictor if saved.for_inference else _executor
    with passing_scope() as scope:
        step, state = start(saved, spec, arrays_in(spec.feed), scope)
        peaks = Peaks()
        digests = [digest(peaks.around(step)) for _ in range(spec.runs)]
        return RunResult(peaks.resting, peaks.seen, peaks.held(), digests, state())


def _predictor(saved: SavedProgram, spec: RunSpec, feed: Dict[str, np.ndarray],
               scope: Any) -> Tuple:
    del scope  # it has its own
    predictor = predictor_of(saved.location, spec.settings)
    return lambda: served_once(predictor, feed), lambda: ''


def _executor(saved: SavedProgram, spec: RunSpec, feed: Dict[str, np.ndarray], scope: Any) -> Tuple:
    paddle.enable_static()
    paddle.seed(0)
    program = paddle.static.Program.parse_from_string(saved.serialized)
    executor = paddle.static.Executor(paddle.CPUPlace())
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
    """Inputs of these sizes, drawn.

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
        feed[name] = drawn(random, _short(described.tensor.data_type), sizes[name])
    return feed


def _numpy_type(data_type: int) -> str:
    return numpy_type(_short(data_type))


def _short(data_type: int) -> str:
    name: str = core.VarDesc.VarType(data_type).name
    return name


if __name__ == '__main__':
    answer(lambda said: asdict(run(RunSpec(**said))))
