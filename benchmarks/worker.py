"""One worker of a job of `benchmarks.workers`: a program of fleet's, as it is and rewritten. Prints what it found, as JSON."""
from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any, Dict, Optional, Tuple

import numpy as np
import paddle
from paddle import static
from paddle.base import core
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_optimizers import common

from benchmarks.spec import EXECUTORS
from benchmarks.workers import FOUND, ROWS, Setting
from transpiler import MemoryBudgetError, calibrate, memory_optimize
from transpiler.agreement import OtherStoppedError

STEPS, WIDTH, LAYERS = 3, 128, 8
# Ops that synchronize streams have kernels for devices only.
_STREAMS = ('c_sync_calc_stream', 'c_sync_comm_stream')
Programs = Tuple[static.Program, static.Program, Any]


def _build(fused: bool) -> Programs:
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    strategy = fleet.DistributedStrategy()
    strategy.without_graph_optimization = True  # the program runs as it is: nothing compiles it once more
    strategy.fuse_all_reduce_ops = fused
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        hidden = static.data('x', [-1, WIDTH], 'float32')
        for _ in range(LAYERS):
            hidden = paddle.nn.functional.relu(paddle.sin(static.nn.fc(hidden, WIDTH)))
        loss = paddle.mean(paddle.square(hidden))
        optimizer = fleet.distributed_optimizer(paddle.optimizer.Momentum(0.05, 0.9), strategy)
        optimizer.minimize(loss)
    for program in (main, startup):
        block = program.global_block()
        for at in reversed([i for i, op in enumerate(block.ops) if op.type in _STREAMS]):
            block._remove_op(at)
    return main, startup, loss


def _run(programs: Programs, rank: int) -> Dict[str, Any]:
    main, startup, loss = programs
    executor, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    draw, losses = np.random.RandomState(rank), []
    with static.scope_guard(scope):
        executor.run(startup)
        for _ in range(STEPS):
            batch = draw.uniform(-1, 1, (min(ROWS), WIDTH)).astype('float32')
            losses.append(
                executor.run(main, feed={'x': batch}, fetch_list=[loss])[0].tobytes().hex())
        names = sorted(v.name for v in main.list_vars() if v.persistable and scope.find_var(v.name))
        arrays = [np.array(scope.find_var(name).get_tensor()) for name in names]
    if not arrays:
        raise AssertionError('a program without state')
    state = hashlib.sha256(b''.join(each.tobytes() for each in arrays))
    return {'losses': losses, 'state': state.hexdigest()}


def _budget(setting: Setting) -> Optional[int]:
    if setting.share is None:
        return None
    main, _, loss = _build(setting.fused)
    report = memory_optimize(main, fetch_list=[loss], batch_size=setting.planned_rows)
    return report.resting_bytes + int(setting.share * report.peak_bytes_before)


def _digest(main: static.Program) -> str:
    """Of what is done in which order, but for where the user wrote it."""
    ops = [(op.type, op.input_arg_names, op.output_arg_names) for op in main.global_block().ops]
    return hashlib.sha256(json.dumps(ops).encode()).hexdigest()


def _work(rank: int, setting: Setting) -> Dict[str, Any]:
    paddle.set_flags({name: value == '1' for name, value in EXECUTORS[setting.executor].items()})
    paddle.set_flags({'FLAGS_eager_delete_tensor_gb': 0.0 if setting.collection else -1.0})
    common.CollectiveHelper._init_communicator = lambda *_, **__: None
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
        'program': _digest(programs[0]),
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
