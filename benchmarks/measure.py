"""What the measuring process does.

One process makes one measurement, since resting bytes, random state and executor caches all
outlive a program.
"""
from __future__ import annotations

import contextlib
import hashlib
import inspect
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np
import paddle
from paddle import static
from paddle.base import core

from benchmarks.programs import Case, Options, build
from benchmarks.spec import Prediction, Result, Spec
from transpiler.serving.apart import Peaks, current_bytes, status as process_bytes

# Fetched values up to this many bytes are reported whole, larger ones as their digest.
WHOLE_BYTES = 64
# Of Paddle 3: what declares parameters and states, and where their names are.
STATES = {"builtin.parameter": "parameter_name", "pd_op.data": "name"}


class Watcher:
    """Looks at the bytes held as often as it can while a run goes on, in a thread of its own.

    Paddle's counter notices a peak only on a thread that itself never held as much before. In the default mode, whose
    threads allocate in turns and sometimes free, it misses some. What is seen here was truly there, but short peaks are
    missed as well: the higher of the two is the better figure. The looking takes time from the run.
    """

    def __init__(self) -> None:
        self._highest = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._done.set()
        self._thread.join()

    @property
    def highest(self) -> int:
        """The most bytes that were seen."""
        return self._highest

    def _look(self) -> None:
        while not self._done.is_set():
            self._highest = max(self._highest, current_bytes())


def digest(value: np.ndarray) -> str:
    """A fetched value's bytes in hex, or the digest of a large one."""
    raw = np.ascontiguousarray(value).tobytes()
    return raw.hex() if len(raw) <= WHOLE_BYTES else "sha256:" + hashlib.sha256(raw).hexdigest()


def state_names(program: Any) -> List[str]:
    """Of parameters, optimizer state and statistics, in the order of their names; on Paddle 3, which counts on in names from
    program to program, of their declarations, in loops and branches, too."""
    if hasattr(program, "desc"):
        return sorted({
            each.name
            for each in program.list_vars()
            if each.persistable and each.desc.type() == core.VarDesc.VarType.LOD_TENSOR
        })
    declared = [op for op in _ops_of(program.global_block()) if op.name() in STATES]
    names = (op.attrs()[STATES[op.name()]] for op in declared if op.result(0).persistable)
    return list(dict.fromkeys(names))


def _ops_of(block: Any) -> Iterator[Any]:
    """Of Paddle 3, with those of the blocks in it, in the order of the program."""
    for op in block.ops:
        yield op
        for inner in op.blocks():
            yield from _ops_of(inner)


def state_digest(program: Any, scope: Any) -> str:
    """The sha256 of all that `state_names` names."""
    total = hashlib.sha256()
    for name in state_names(program):
        variable = scope.find_var(name)
        if variable is None or not variable.get_tensor()._is_initialized():
            continue
        value = np.array(variable.get_tensor())
        total.update("{} {} {}\n".format(name, value.dtype, value.shape).encode())
        total.update(value.tobytes())
    return total.hexdigest()


def optimize(case: Case, spec: Spec) -> Prediction:
    """Run memory_optimize, or release_memory, on the case with the hints that it takes."""
    import transpiler
    rewrite = transpiler.release_memory if spec.released else transpiler.memory_optimize
    hints: Dict[str, Any] = {
        "fetch_list": list(case.fetch),
        "batch_size": case.batch_size,
        "level": spec.level
    }
    if case.trip_count is not None:
        hints["trip_count"] = case.trip_count
    if spec.recompute is not None:
        hints["recompute"] = False if spec.recompute == "off" else spec.recompute
    hints.update((name, getattr(spec, name))
                 for name in ("max_overhead", "budget")
                 if getattr(spec, name) is not None)
    known = inspect.signature(rewrite).parameters
    started, cpu_before = time.perf_counter(), time.process_time()
    report = rewrite(case.main, **{key: hints[key] for key in hints if key in known})
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_before
    again = report.recompute
    return Prediction(
        changed=bool(report.changed),
        peak_bytes_before=int(report.peak_bytes_before),
        peak_bytes_after=int(report.peak_bytes_after),
        lower_bound_bytes=int(report.lower_bound_bytes),
        planning_seconds=seconds,
        needed_bytes=int(report.needed_bytes),
        sure_bytes=int(report.sure_bytes),
        budget_bytes=int(report.budget_bytes),
        resting_bytes=int(report.resting_bytes),
        planning_cpu_seconds=cpu,
        clones=again.clones if again else 0,
        overhead=again.extra_seconds / again.step_seconds if again else 0.0,
        curve=tuple(
            (peak, extra / again.step_seconds) for peak, extra in again.curve) if again else ())


def run(case: Case, spec: Spec, prediction: Optional[Prediction]) -> Result:
    """Start up, run the steps and watch."""
    executor, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    runs: List[Tuple[int, float, float, Tuple[str, ...]]] = []
    with static.scope_guard(scope):
        executor.run(case.startup)
        peaks = Peaks()
        for step in range(spec.steps):
            feed = case.feed(step)
            if case.fresh_executor:
                executor = static.Executor(paddle.CPUPlace())
            peaks.start_run()
            with Watcher() if spec.watched else contextlib.nullcontext() as watcher:
                wall, cpu = time.perf_counter(), time.process_time()
                values = executor.run(case.main, feed=feed, fetch_list=list(case.fetch))
                seconds, cpu = time.perf_counter() - wall, time.process_time() - cpu
            peak = peaks.above_resting(watcher.highest if watcher is not None else 0)
            runs.append((peak, seconds, cpu, tuple(digest(each) for each in values)))
            del values
        return Result(spec=spec,
                      ops=sum(len(block.ops) for block in case.main.blocks),
                      resting_bytes=peaks.resting,
                      peak_bytes=tuple(each[0] for each in runs),
                      held_bytes=peaks.held(),
                      max_rss_bytes=process_bytes("VmHWM"),
                      step_seconds=tuple(each[1] for each in runs),
                      step_cpu_seconds=tuple(each[2] for each in runs),
                      fetched=tuple(each[3] for each in runs),
                      state_sha256=state_digest(case.main, scope),
                      prediction=prediction,
                      training=case.training)


def measure(spec: Spec) -> Result:
    """Build, optimise if asked, and run, in this process."""
    case = build(spec.program, Options(**dict(spec.options)))
    # The plan draws no random number and neither may building: the run's dice start here.
    prediction = optimize(case, spec) if spec.optimized else None
    paddle.seed(dict(spec.options).get("seed", Options().seed))
    return run(case, spec, prediction)


def grown(spec: Spec) -> Tuple[int, int]:
    """Bytes that the process, which has done nothing else, had at its highest above what it had after startup, and how much more
    anonymous memory it has after the last run. Nothing is looked at meanwhile: what fills the gap to the highest peak (see
    Peaks) lies where tensors would."""
    case = build(spec.program, Options(**dict(spec.options)))
    if spec.optimized:
        optimize(case, spec)
    executor = static.Executor(paddle.CPUPlace())
    executor.run(case.startup)
    started, anonymous = process_bytes("VmRSS"), process_bytes("RssAnon")
    for step in range(spec.steps):
        if case.fresh_executor:
            executor = static.Executor(paddle.CPUPlace())
        executor.run(case.main, feed=case.feed(step), fetch_list=list(case.fetch))
    return process_bytes("VmHWM") - started, process_bytes("RssAnon") - anonymous
