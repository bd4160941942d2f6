"""What the measuring process does."""
from __future__ import annotations

from pathlib import Path
from typing import Any, List, Optional, Tuple

import paddle
from paddle import static

from benchmarks.measure import Peaks, digest, optimize, process_bytes, state_digest
from benchmarks.spec import EXECUTORS, Prediction, Spec
from benchmarks.wild.figures import Outcome, Phase
from benchmarks.wild.registry import builder
from benchmarks.wild.script import Script

DEFAULT_STEPS, ORDERED_STEPS = 3, 1
SEED = 7
_CLEAR = Path('/proc/self/clear_refs')
# Writing it there sets the highest resident size back to the present one.
_RESET_HIGHEST = '5'

Runs = Tuple[List[List[int]], Tuple[Tuple[str, ...], ...],
             str]  # peaks by step and program, values, state


class _Growth:
    """Bytes that the process grew by at most."""

    def start(self) -> None:
        """From now on."""
        _CLEAR.write_text(_RESET_HIGHEST)
        self._before = process_bytes('VmHWM')

    def bytes(self) -> int:
        """So far."""
        return process_bytes('VmHWM') - self._before


def _run(script: Script, executor_mode: str, steps: int, growth: _Growth) -> Runs:
    flags = {name: value == '1' for name, value in EXECUTORS[executor_mode].items()}
    paddle.set_flags(flags)
    paddle.seed(SEED)
    executor, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    with static.scope_guard(scope):
        for case in script.cases:
            executor.run(case.startup)
        resting, growth_peaks, values = Peaks(), [], []
        growth.start()
        for step in range(steps):
            peaks, fetched = _step(script, executor, resting, step)
            growth_peaks.append(peaks)
            values.append(fetched)
            script.after_step(executor, step)
        state = ' '.join(state_digest(case.main, scope) for case in script.cases)
    scope._remove_from_pool()
    return growth_peaks, tuple(values), state


def _step(script: Script, executor: Any, peaks: Peaks,
          step: int) -> Tuple[List[int], Tuple[str, ...]]:
    found, fetched = [], []
    for case in script.cases:
        feed = case.feed(step)
        peaks.start_run()
        values = executor.run(case.main, feed=feed, fetch_list=list(case.fetch))
        found.append(peaks.above_resting())
        fetched += [digest(each) for each in values]
        del values, feed
    return found, tuple(fetched)


def measure(name: str, optimized: bool) -> Outcome:
    """The script in this process: the default executor first, then one that keeps the program's order."""
    script = builder(name)()
    said: List[Optional[Prediction]] = [None] * len(script.cases)
    if optimized:
        said = [optimize(case, Spec(name, optimized=True)) for case in script.cases]
    growth, later_growth = _Growth(), _Growth()
    default, values, state = _run(script, 'default', DEFAULT_STEPS, growth)
    grown = growth.bytes()
    ordered, other_values, other_state = _run(script, 'ordered', ORDERED_STEPS, later_growth)
    phases = tuple(
        Phase(ordered=ordered[0][i],
              first=default[0][i],
              later=min(step[i] for step in default[1:]),
              predicted=None if each is None else each.needed_bytes,
              changed=each is not None and each.changed) for i, each in enumerate(said))
    return Outcome(phases, grown, values + other_values, (state, other_state), script.foreseeable)
