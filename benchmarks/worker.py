"""One worker of a job of `benchmarks.workers`: a program of fleet's, as it is and rewritten. Prints what it found, as JSON."""
from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, Optional

import paddle
from paddle import static
from paddle.base import core
from paddle.distributed import fleet

from benchmarks.fleet import Programs, built, digest, trained, without_devices
from benchmarks.spec import EXECUTORS
from benchmarks.workers import FOUND, ROWS, Setting
from transpiler import MemoryBudgetError, calibrate, memory_optimize
from transpiler.agreement import OtherStoppedError

STEPS, WIDTH, LAYERS = 3, 128, 8


def _network(hidden: Any) -> Any:
    for _ in range(LAYERS):
        hidden = paddle.nn.functional.relu(paddle.sin(static.nn.fc(hidden, WIDTH)))
    return hidden


def _build(fused: bool) -> Programs:
    return built(WIDTH, _network, fused)


def _run(programs: Programs, rank: int) -> Dict[str, Any]:
    return trained(programs, rank, (min(ROWS), WIDTH), STEPS)


def _budget(setting: Setting) -> Optional[int]:
    if setting.share is None:
        return None
    main, _, loss = _build(setting.fused)
    report = memory_optimize(main, fetch_list=[loss], batch_size=setting.planned_rows)
    return report.resting_bytes + int(setting.share * report.peak_bytes_before)


def _work(rank: int, setting: Setting) -> Dict[str, Any]:
    paddle.set_flags({name: value == '1' for name, value in EXECUTORS[setting.executor].items()})
    paddle.set_flags({'FLAGS_eager_delete_tensor_gb': 0.0 if setting.collection else -1.0})
    without_devices()
    paddle.enable_static()
    if setting.calibrated:
        calibrate()
    paddle.distributed.init_parallel_env()
    fleet.init(is_collective=True)
    budget, programs = _budget(setting), _build(setting.fused)
    try:
        report = memory_optimize(programs[0],
                                 fetch_list=[programs[2]],
                                 batch_size=setting.rows,
                                 budget=budget,
                                 max_overhead=setting.max_overhead,
                                 shared=True)
    except (MemoryBudgetError, OtherStoppedError) as error:
        return {'refused': type(error).__name__}
    optimized = _run(programs, rank)
    # To calibrate takes more than the program does, and Paddle's peak cannot be reset.
    most = None if setting.calibrated else core.host_memory_stat_peak_value('Allocated', 0)
    return {
        'dims': report.dims,
        'program': digest(programs[0]),
        'budget': budget,
        'most': most,
        'optimized': optimized,
        'untouched': _run(_build(setting.fused), rank)
    }


if __name__ == '__main__':
    found = _work(int(os.environ['PADDLE_TRAINER_ID']), Setting(**json.loads(sys.argv[1])))
    print(FOUND + json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads would wait for each other
