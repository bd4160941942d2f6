"""Programs of fleet's for workers that meet over gloo, on CPUs. Imports nothing of ours: what workers do before is Paddle's alone."""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from typing import Any, Callable, Dict, Iterator, Tuple

import numpy as np
import paddle
from paddle import static
from paddle.base import core
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_optimizers import common, sharding_optimizer
from paddle.incubate.optimizer import pipeline

# Ops that synchronize streams have kernels for devices only.
_STREAMS = ('c_sync_calc_stream', 'c_sync_comm_stream')
_UNIFIED = 'FLAGS_dynamic_static_unified_comm'
Programs = Tuple[static.Program, static.Program, Any]  # main, startup, loss


def without_devices() -> None:
    """Lets fleet build programs where Paddle has no kernels for devices: gloo's ring stands already, and no port is waited for."""
    common.CollectiveHelper._init_communicator = lambda *_, **__: None
    common.wait_server_ready = sharding_optimizer.wait_server_ready = lambda _: None
    flags = paddle.get_flags
    # Sharding asks for a flag that only builds for devices have.
    paddle.get_flags = lambda names: {_UNIFIED: False} if names == _UNIFIED else flags(names)


@contextlib.contextmanager
def in_a_folder_of_its_own() -> Iterator[None]:
    """Where fleet may leave files: sharding writes what it made of a program into the folder that it is called in."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def built(width: int,
          network: Callable[[Any], Any],
          fused: bool = True,
          **strategy_options: Any) -> Programs:
    """`network` of rows of `width` numbers, trained by Momentum.

    Args:
        fused: fleet sums gradients by the buffer.
        strategy_options: what is set of fleet's strategy besides.
    """

    def loss() -> Tuple[Any, Dict[str, Any]]:
        return paddle.mean(paddle.square(network(static.data('x', [-1, width], 'float32')))), {}

    return minimized(loss, 0.05, fuse_all_reduce_ops=fused, **strategy_options)


def minimized(loss_of: Callable[[], Tuple[Any, Dict[str, Any]]], rate: float,
              **strategy_options: Any) -> Programs:
    """A loss, trained by Momentum.

    Args:
        loss_of: writes it, and says what is to be set of fleet's strategy on account of it.
        strategy_options: what is set besides.
    """
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    strategy = fleet.DistributedStrategy()
    strategy.without_graph_optimization = True  # the program runs as it is: nothing compiles it once more
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss, of_loss = loss_of()
        for name, value in {**strategy_options, **of_loss}.items():
            setattr(strategy, name, value)
        optimizer = fleet.distributed_optimizer(paddle.optimizer.Momentum(rate, 0.9), strategy)
        with in_a_folder_of_its_own():
            optimizer.minimize(loss)
    without_streams(main)
    without_streams(startup)
    return main, startup, loss


def without_streams(program: static.Program) -> None:
    """Takes out what CPUs have no kernels for, and no need."""
    block = program.global_block()
    for at in reversed([i for i, op in enumerate(block.ops) if op.type in _STREAMS]):
        block._remove_op(at)


def trained(programs: Programs, rank: int, shape: Tuple[int, int], steps: int) -> Dict[str, Any]:
    """What users see of some steps from the start on: losses and a digest of the state, as text, and of how many variables it is;
    and the peak of all runs of this process so far, in bytes above resting. Each worker has batches of `shape` of its own.

    Raises:
        ValueError: the program has no state.
    """
    main, startup, loss = programs
    executor, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    draw, losses = np.random.RandomState(rank), []
    with static.scope_guard(scope):
        executor.run(startup)
        resting = core.host_memory_stat_current_value('Allocated', 0)
        for _ in range(steps):
            batch = draw.uniform(-1, 1, shape).astype('float32')
            losses.append(
                executor.run(main, feed={'x': batch}, fetch_list=[loss])[0].tobytes().hex())
        peak = core.host_memory_stat_peak_value('Allocated', 0) - resting
        state, names = state_of(main, scope)
    return {'losses': losses, 'state': state, 'names': names, 'peak': peak}


def state_of(main: static.Program, scope: Any) -> Tuple[str, int]:
    """A digest of the state of `main`, as text, and of how many variables it is; raises ValueError if it has none."""
    names = sorted(v.name for v in main.list_vars() if v.persistable and scope.find_var(v.name))
    if not names:
        raise ValueError('a program without state')
    state = hashlib.sha256(b''.join(
        np.array(scope.find_var(name).get_tensor()).tobytes() for name in names))
    return state.hexdigest(), len(names)


def digest(main: static.Program) -> str:
    """Of what is done in which order, but for where the user wrote it."""
    ops = [(op.type, op.input_arg_names, op.output_arg_names) for op in main.global_block().ops]
    return hashlib.sha256(json.dumps(ops).encode()).hexdigest()


class _Devices:
    """Paddle's core, as a build for devices is."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    @staticmethod
    def is_compiled_with_cuda() -> bool:
        return True

    def CUDAPlace(self, _: int) -> Any:
        return self._core.CPUPlace()


def pipelines_without_devices() -> None:
    """Lets fleet cut programs into sections, too."""
    pipeline.core = _Devices(core)
