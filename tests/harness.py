"""Runs static programs, plain and optimised, and compares every byte that a user could see.

A scenario is a function without arguments that returns a `Case`. `check(build)` is the whole test:
it builds the case twice, optimises one of the two, runs both in every executor mode and compares.
"""
from __future__ import annotations

import contextlib
import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

# Before the first import of Paddle: see conftest.py.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import paddle  # noqa: E402

from benchmarks.apart import apart  # noqa: E402
from tests import settled  # noqa: E402
from tests.quicker import Prepared, build_quicker  # noqa: E402
from transpiler.backends.scopes import fresh_scope  # noqa: E402

build_quicker()

SEED = 20180628

Feed = Callable[[int], Dict[str, Any]]

# ---------------------------------------------------------------------------------------------------
# Executor modes


@dataclass(frozen=True)
class Mode:
    """How Paddle's executor is told to run: collection of dead variables, order, in-place kernels."""
    collect: bool = True
    order: str = "default"
    inplace: bool = False

    def flags(self) -> Dict[str, Any]:
        return {
            "FLAGS_eager_delete_tensor_gb": 0.0 if self.collect else -1.0,
            "FLAGS_new_executor_serial_run": self.order == "serial",
            "FLAGS_new_executor_sequential_run": self.order == "sequential",
            "FLAGS_new_executor_use_inplace": self.inplace,
        }

    def __str__(self) -> str:
        collection = "collecting" if self.collect else "holding"
        return f"{collection}-{self.order}{'-inplace' if self.inplace else ''}"


ORDERS = ("default", "serial", "sequential")
ALL_MODES = tuple(
    Mode(collect, order, inplace)
    for collect, order, inplace in product((True, False), ORDERS, (False, True)))
DEFAULT_MODE = Mode()
# The two extremes: what users get, and the runtime that holds all until the end.
BASIC_MODES = (DEFAULT_MODE, Mode(collect=False))
# From the second run on, FLAGS_new_executor_use_inplace crashes any program with sub-blocks.
WITHOUT_INPLACE = tuple(mode for mode in ALL_MODES if not mode.inplace)


@contextmanager
def executor_mode(mode: Mode) -> Iterator[None]:
    """Executors built inside run in this mode. The flags are the process's, so they are put back."""
    flags = mode.flags()
    before = paddle.get_flags(list(flags))
    paddle.set_flags(flags)
    try:
        yield
    finally:
        paddle.set_flags(before)


# ---------------------------------------------------------------------------------------------------
# Cases


@dataclass(frozen=True)
class Case:
    """A program that can be run: what to feed at step k, and which names to fetch at every step.

    `fresh_executor` gives every step an executor of its own; see scenarios/dynamic_rnn.py for why.
    """
    main: paddle.static.Program
    startup: paddle.static.Program
    feed: Feed
    fetch: Sequence[str]
    fresh_executor: bool = False

    def modes(self) -> Sequence[Mode]:
        """Those in which Paddle runs the plain program without crashing."""
        return ALL_MODES if self.main.num_blocks == 1 else WITHOUT_INPLACE


Build = Callable[[], Case]
Optimise = Callable[[Case], Any]


@contextmanager
def new_programs(seed: int = SEED) -> Iterator[Tuple[paddle.static.Program, paddle.static.Program]]:
    """Static mode, two empty programs, and names that start from zero: two builds agree on all names."""
    paddle.enable_static()
    paddle.seed(seed)
    main, startup = paddle.static.Program(), paddle.static.Program()
    # A seed in the op itself keeps random ops independent of the order in which they run.
    main.random_seed = startup.random_seed = seed
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        yield main, startup


# ---------------------------------------------------------------------------------------------------
# Running


@dataclass(frozen=True)
class Snapshot:
    """A tensor's value as a user sees it; arrays of tensors are a tuple of snapshots."""
    dtype: str
    shape: Tuple[int, ...]
    lod: Tuple[Tuple[int, ...], ...]
    data: bytes

    def array(self) -> np.ndarray:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


Value = Any  # Snapshot, or a tuple of Snapshot for a tensor array


@dataclass(frozen=True)
class Outcome:
    """What a run showed: each fetched value at each step, and every persistable after the last."""
    fetched: Tuple[Dict[str, Value], ...]
    state: Dict[str, Value]

    def scalars(self, name: str) -> List[float]:
        return [float(step[name].array().reshape(-1)[0]) for step in self.fetched]


def snapshot(value: Any) -> Value:
    if isinstance(value, (list, paddle.base.core.LoDTensorArray)):
        return tuple(snapshot(each) for each in value)
    array = np.array(value)
    lod = tuple(tuple(level) for level in value.lod()) if hasattr(value, "lod") else ()
    return Snapshot(str(array.dtype), array.shape, lod, array.tobytes())


def run_case(case: Case,
             program: Optional[paddle.static.Program] = None,
             steps: int = 5,
             mode: Mode = DEFAULT_MODE,
             feed: Optional[Feed] = None,
             fetch: Optional[Sequence[str]] = None) -> Outcome:
    """Initialises and runs a case from nothing: the outcome depends on the program and mode only."""
    program = program or case.main
    names = list(case.fetch if fetch is None else fetch)
    paddle.enable_static()
    paddle.seed(SEED)
    with prepared().used(), executor_mode(mode), fresh_scope() as scope:
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        fetched = []
        for step in range(steps):
            if case.fresh_executor:
                executor = paddle.static.Executor(paddle.CPUPlace())
            _set_learning_rate(program, step)
            values = executor.run(program,
                                  feed=(feed or case.feed)(step),
                                  fetch_list=names,
                                  return_numpy=False)
            fetched.append({name: snapshot(value) for name, value in zip(names, values)})
        return Outcome(tuple(fetched), _state(case.main, scope))


@lru_cache(maxsize=1)
def prepared() -> Prepared:
    """For all runs of this process: most programs run in many modes, and are prepared alike for each."""
    return Prepared()


def _set_learning_rate(program: paddle.static.Program, step: int) -> None:
    scheduler = getattr(program, "lr_scheduler", None)
    if scheduler is not None:
        scheduler.step(step)


def _state(program: paddle.static.Program, scope: Any) -> Dict[str, Value]:
    tensors = {}
    for var in program.list_vars():
        held = scope.find_var(var.name) if _is_state(var) else None
        if held is not None and held.get_tensor()._is_initialized():
            tensors[var.name] = snapshot(held.get_tensor())
    return tensors


def _is_state(var: Any) -> bool:
    return var.persistable and var.type == paddle.base.core.VarDesc.VarType.LOD_TENSOR


# ---------------------------------------------------------------------------------------------------
# Comparing


def assert_same_bytes(plain: Outcome, optimised: Outcome, where: str = "") -> None:
    """Fails with the first value, step and element in which the two runs differ."""
    assert len(plain.fetched) == len(optimised.fetched), f"{where}: numbers of steps differ"
    for step, (left, right) in enumerate(zip(plain.fetched, optimised.fetched)):
        _assert_same_values(left, right, f"{where} fetched at step {step}")
    _assert_same_values(plain.state, optimised.state, f"{where} persistable after the last step")


def _assert_same_values(plain: Mapping[str, Value], optimised: Mapping[str, Value],
                        where: str) -> None:
    missing = sorted(set(plain) ^ set(optimised))
    assert not missing, f"{where}: only one of the runs has {missing}"
    for name, value in plain.items():
        problem = difference(value, optimised[name])
        assert problem is None, f"{where}: {name}: {problem}"


def difference(plain: Value, optimised: Value) -> Optional[str]:
    """None for equal values, else the first thing in which they differ."""
    if isinstance(plain, tuple) or isinstance(optimised, tuple):
        return _array_difference(plain, optimised)
    for field in ("dtype", "shape", "lod"):
        left, right = getattr(plain, field), getattr(optimised, field)
        if left != right:
            return f"{field} is {left} plain, {right} optimised"
    if plain.data == optimised.data:
        return None
    return _first_element(plain, optimised)


def _array_difference(plain: Value, optimised: Value) -> Optional[str]:
    if not (isinstance(plain, tuple) and isinstance(optimised, tuple)):
        return "a tensor array in one run, a tensor in the other"
    if len(plain) != len(optimised):
        return f"{len(plain)} tensors plain, {len(optimised)} optimised"
    for index, (left, right) in enumerate(zip(plain, optimised)):
        problem = difference(left, right)
        if problem is not None:
            return f"tensor {index} of the array: {problem}"
    return None


def _first_element(plain: Snapshot, optimised: Snapshot) -> str:
    size = np.dtype(plain.dtype).itemsize
    left = np.frombuffer(plain.data, np.uint8).reshape(-1, size)
    right = np.frombuffer(optimised.data, np.uint8).reshape(-1, size)
    unequal = np.flatnonzero((left != right).any(axis=1))
    index = np.unravel_index(unequal[0], plain.shape or (1,))
    values = [value.array().reshape(-1)[unequal[0]] for value in (plain, optimised)]
    at = tuple(int(i) for i in index)
    return (f"{len(unequal)} of {len(left)} elements differ, first {at}: "
            f"{values[0]!r} plain, {values[1]!r} optimised")


def optimise_in_place(case: Case) -> Any:
    """What `check` does to a case unless told otherwise."""
    # Late, so that harness and plain programs can be used where the package cannot be imported.
    from transpiler import memory_optimize
    return memory_optimize(case.main, fetch_list=list(case.fetch))


def check(build: Build,
          optimise: Optional[Optimise] = None,
          modes: Optional[Sequence[Mode]] = None,
          steps: int = 5) -> Any:
    """Plain and optimised give equal bytes in every mode of the case. Returns what `optimise` returned."""
    optimised = build()
    modes = modes or optimised.modes()
    report = (optimise or optimise_in_place)(optimised)
    for mode in modes:
        assert_same_bytes(untouched(build, steps, mode),
                          run_case(optimised, steps=steps, mode=mode),
                          where=f"[{mode}]")
    return report


def untouched(build: Build, steps: int = 5, mode: Mode = DEFAULT_MODE) -> Outcome:
    """A run of the plain program, which repeats to the byte: test_scenarios.py. Of modes that show the same one copy is kept."""
    seen = _seen(build, steps)
    if mode not in seen:
        shown = run_case(_plain(build), steps=steps, mode=mode)
        seen[mode] = next((each for each in seen.values() if each == shown), shown)
    return seen[mode]


# Tests that optimise the same program in different ways follow each other.
@lru_cache(maxsize=2)
def _seen(build: Build, steps: int) -> Dict[Mode, Outcome]:  # pylint: disable=unused-argument
    """What runs of the plain program have shown so far, by mode; `untouched` fills it."""
    return {}


@lru_cache(maxsize=1)
def _plain(build: Build) -> Case:
    return build()


def fingerprint(program: paddle.static.Program) -> bytes:
    """Equal exactly when nothing in the program's description changed."""
    return program.desc.serialize_to_string()


# ---------------------------------------------------------------------------------------------------
# Measuring

_MOST_MEASURED = 20


@dataclass(frozen=True)
class Peak:
    """Bytes allocated: by what rests between steps, and the highest of the first and of all steps."""
    resting: int
    first: int
    later: int

    def above_resting(self) -> int:
        return max(self.first, self.later) - self.resting

    def first_above_resting(self) -> int:
        return self.first - self.resting


def measure_peak(builder: str,
                 optimise: bool,
                 mode: Mode = DEFAULT_MODE,
                 steps: int = 4,
                 options: Optional[Dict[str, Any]] = None,
                 collector_first: bool = False) -> Peak:
    """The peak of the builder "package.module:function", in a process of its own. `collector_first`: see `settled`.

    Paddle's peak cannot be reset, and counts threads that have ended wrongly, so one measurement is one
    process with one executor.
    """
    return apart(_measure_here, builder, optimise, mode, steps, options or {}, collector_first)


def least_peak(builder: str,
               enough: float,
               optimise: bool = True,
               of: Callable[[Peak], int] = Peak.above_resting,
               **measured: Any) -> Peak:
    """The lowest of some measurements, the first that is at most `enough` if one is: on a busy machine the executor's collector,
    a thread, is late now and then, which makes a peak higher and never lower."""
    found: List[Peak] = []
    while not found or (of(found[-1]) > enough and len(found) < _MOST_MEASURED):
        found.append(measure_peak(builder, optimise, **measured))
    return min(found, key=of)


def _measure_here(builder: str, optimise: bool, mode: Mode, steps: int, options: Dict[str, Any],
                  collector_first: bool) -> Peak:
    module, function = builder.split(":")
    case: Case = getattr(import_module(module), function)()
    with executor_mode(mode):
        if optimise:
            from transpiler import memory_optimize
            memory_optimize(case.main, fetch_list=list(case.fetch), **options)
        with settled.collector_first() if collector_first else contextlib.nullcontext():
            return _peak_of(case, steps)


def _peak_of(case: Case, steps: int) -> Peak:
    core = paddle.base.core
    paddle.seed(SEED)
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        resting = core.host_memory_stat_current_value("Allocated", 0)
        peaks = []
        for step in range(steps):
            executor.run(case.main, feed=case.feed(step), fetch_list=list(case.fetch))
            peaks.append(core.host_memory_stat_peak_value("Allocated", 0))
    return Peak(resting=resting, first=peaks[0], later=peaks[-1])
