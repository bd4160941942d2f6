"""One saved program of Paddle 3, run and measured in a process of its own.

`python -m transpiler.serving.pir.running` reads a RunSpec as JSON from stdin and prints a RunResult as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any, List, Tuple

import numpy as np

from transpiler.serving.apart import SWITCHES, Peaks, RunResult, RunSpec, answer_apart, digest
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
    with np.load(spec.feed) as arrays:
        feed = {name: arrays[name] for name in arrays.files}
    predictor = _predictor_of(spec)

    def step() -> List[np.ndarray]:
        for name in predictor.get_input_names():
            predictor.get_input_handle(name).copy_from_cpu(feed[name])
        predictor.run()
        return [predictor.get_output_handle(n).copy_to_cpu() for n in predictor.get_output_names()]

    peaks = Peaks()
    digests = [digest(peaks.around(step)) for _ in range(spec.runs)]
    return RunResult(peaks.resting, peaks.seen, peaks.held(), digests, '')


def _predictor_of(spec: RunSpec) -> Any:
    from paddle import inference
    config = inference.Config(*read_model(spec.program).location)
    config.disable_glog_info()
    for setting in spec.settings:
        SWITCHES[setting](config)
    return inference.create_predictor(config)


if __name__ == '__main__':
    print(json.dumps(asdict(run(RunSpec(**json.load(sys.stdin))))))
