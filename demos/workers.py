"""Data parallel training by fleet, before and after memory_optimize, on one machine without a GPU:

    python -m paddle.distributed.launch --nproc_per_node 2 --backend gloo demos/workers.py

Each worker trains ResNet-18 for five steps as optimized, then as fleet has built it. Worker 0 prints for each of them the most that
all tensors took above the parameters, by Paddle's allocator, and whether losses and parameters are the same to the last bit.
Paddle 2.6.
"""
from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Tuple

import numpy as np
import paddle
from paddle import distributed, static
from paddle.base import core
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_optimizers import common

from transpiler import memory_optimize

BATCH, SIDE, STEPS = 8, 64, 5
MIB = float(1 << 20)
# On devices, these wait for streams; on CPUs there are none.
STREAM_OPS = ('c_sync_calc_stream', 'c_sync_comm_stream')
Programs = Tuple[static.Program, static.Program, Any]


def meet() -> None:
    """Static fleet on CPUs: gloo's ring is made here, as the ops by which fleet would make one are for devices alone."""
    common.CollectiveHelper._init_communicator = lambda *_, **__: None
    paddle.enable_static()
    distributed.init_parallel_env()
    fleet.init(is_collective=True)
    # Worker 0 has served the meeting on the port on which the store will be, for some seconds longer than it took; who connects
    # to that server as to a store waits for ever. So all wait here until worker 0 goes on.
    program = static.Program()
    with static.program_guard(program):
        distributed.barrier()
    static.Executor(paddle.CPUPlace()).run(program)


def build() -> Programs:
    """As fleet's users do it, with its default strategy."""
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    strategy = fleet.DistributedStrategy()
    strategy.without_graph_optimization = True  # or fleet compiles it once more, for devices
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        image = static.data('image', [-1, 3, SIDE, SIDE])
        label = static.data('label', [-1, 1], 'int64')
        scores = paddle.vision.models.resnet18(num_classes=10)(image)
        loss = paddle.nn.functional.cross_entropy(scores, label)
        optimizer = fleet.distributed_optimizer(paddle.optimizer.Momentum(0.01), strategy)
        optimizer.minimize(loss)
    for block in (main.global_block(), startup.global_block()):
        for at in reversed([i for i, op in enumerate(block.ops) if op.type in STREAM_OPS]):
            block._remove_op(at)
    return main, startup, loss


def train(programs: Programs) -> Tuple[float, str]:
    """The most of all runs so far in this process, in MiB, and what came out."""
    main, startup, loss = programs
    random = np.random.RandomState(distributed.get_rank())
    executor, scope, found = static.Executor(paddle.CPUPlace()), static.Scope(), hashlib.sha256()
    with static.scope_guard(scope):
        executor.run(startup)
        resting = core.host_memory_stat_current_value('Allocated', 0)
        for _ in range(STEPS):
            feed = {
                'image': random.rand(BATCH, 3, SIDE, SIDE).astype('float32'),
                'label': random.randint(0, 10, [BATCH, 1])
            }
            found.update(executor.run(main, feed=feed, fetch_list=[loss])[0].tobytes())
        peak = core.host_memory_stat_peak_value('Allocated', 0) - resting
        for parameter in main.all_parameters():
            found.update(np.array(scope.find_var(parameter.name).get_tensor()).tobytes())
    return peak / MIB, found.hexdigest()


def main() -> None:
    meet()
    optimized = build()
    memory_optimize(optimized[0], fetch_list=[optimized[2]], batch_size=BATCH,
                    shared=True)  # this line is all
    after, state = train(optimized)  # first: Paddle's peak cannot be reset, and the other is higher
    before, expected = train(build())
    store, rank = core.create_or_get_global_tcp_store(), distributed.get_rank()
    store.set(f'demo/{rank}',
              json.dumps({
                  'before': before,
                  'after': after,
                  'same': state == expected
              }))
    for each in range(distributed.get_world_size() if rank == 0 else 0):
        found: Dict[str, Any] = json.loads(bytes(store.get(f'demo/{each}')))
        same = 'the same bytes' if found['same'] else 'OTHER RESULTS'
        print(
            f"worker {each}: {found['before']:.1f} MiB above the parameters before, {found['after']:.1f} after, {same}",
            flush=True)


if __name__ == '__main__':
    main()
