"""One saved program of Paddle 3, run and measured in a process of its own.

`python -m transpiler.serving.pir.running` reads a RunSpec as JSON from stdin and prints a RunResult as JSON.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Tuple

from transpiler.serving.apart import (Peaks, RunResult, RunSpec, answer, answer_apart, arrays_in,
                                      digest, predictor_of, served_once)
from transpiler.serving.pir.files import read_model

# Ways of running a predictor. `enable_memory_optim` without the new executor fails in Paddle 3, whatever the program.
SETTINGS: Tuple[Tuple[str, ...],
                ...] = ((), ('no_ir',), ('no_onednn',), ('new_executor',), ('memory_optim', 'new_executor'),
                        ('no_ir', 'no_onednn'), ('no_ir', 'memory_optim', 'new_executor'),
                        ('no_onednn', 'memory_optim', 'new_executor'))  # yapf: disable


def run_apart(spec: RunSpec) -> RunResult:
    """Runs `spec` in a fresh process; raises InvalidProgramError with its last line if it fails."""
    question = {**asdict(spec), 'program': os.path.abspath(spec.program)}
    return RunResult(**answer_apart('transpiler.serving.pir.running', question, spec.program))


def run(spec: RunSpec) -> RunResult:
    """Runs `spec` in this process."""
    feed = arrays_in(spec.feed)
    predictor = predictor_of(read_model(spec.program).location, spec.settings)
    peaks = Peaks()
    digests = [digest(peaks.around(lambda: served_once(predictor, feed))) for _ in range(spec.runs)]
    return RunResult(peaks.resting, peaks.seen, peaks.held(), digests, '')


if __name__ == '__main__':
    answer(lambda said: asdict(run(RunSpec(**said))))
