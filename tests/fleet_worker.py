"""One of two workers that train a program of fleet's over gloo, on CPUs: rewritten first, then as it is. Prints, as JSON, what
users see of each, and the peaks of all runs so far, in bytes above resting."""
from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any, Dict, List, Tuple

import numpy as np
import paddle
from paddle import static
from paddle.base import core
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_optimizers import common
from paddle.distributed.passes import PassManager, new_pass

STEPS, ROWS, WIDTH, LAYERS = 3, 32, 768, 12
WORKERS = int(os.environ["PADDLE_TRAINERS_NUM"])
# Ops that synchronize streams have kernels for devices only.
_STREAMS = ("c_sync_calc_stream", "c_sync_comm_stream")


def _start() -> None:
    """Gloo's ring stands before a program is built: the ops that would make it are for devices only. Between what is printed, all
    that happens is Paddle's and the machine's: nothing of ours is imported yet."""
    common.CollectiveHelper._init_communicator = lambda *_, **__: None
    paddle.enable_static()
    print("MEETING", flush=True)
    paddle.distributed.init_parallel_env()
    fleet.init(is_collective=True)
    print("MET", flush=True)


def _build() -> Tuple[static.Program, static.Program, Any]:
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    strategy = fleet.DistributedStrategy()
    strategy.without_graph_optimization = True  # the program runs as it is: nothing compiles it once more
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        hidden = static.data("x", [-1, WIDTH], "float32")
        for _ in range(LAYERS):
            hidden = static.nn.fc(hidden, WIDTH, activation="tanh")
        loss = paddle.mean(paddle.square(hidden))
        optimizer = fleet.distributed_optimizer(paddle.optimizer.Momentum(0.05, 0.9), strategy)
        optimizer.minimize(loss)
    for program in (main, startup):
        block = program.global_block()
        for at in reversed([i for i, op in enumerate(block.ops) if op.type in _STREAMS]):
            block._remove_op(at)
    return main, startup, loss


def _run(main: static.Program, startup: static.Program, loss: Any, rank: int) -> Dict[str, Any]:
    executor, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    with static.scope_guard(scope):
        executor.run(startup)
        resting = core.host_memory_stat_current_value("Allocated", 0)
        rng, losses = np.random.RandomState(rank), []
        for _ in range(STEPS):
            batch = rng.uniform(-1, 1, (ROWS, WIDTH)).astype("float32")
            losses.append(
                executor.run(main, feed={"x": batch}, fetch_list=[loss])[0].tobytes().hex())
        peak = core.host_memory_stat_peak_value("Allocated", 0) - resting
        names = sorted(v.name for v in main.list_vars() if v.persistable and scope.find_var(v.name))
        state = hashlib.sha256(b"".join(
            np.array(scope.find_var(name).get_tensor()).tobytes() for name in names))
    return {"losses": losses, "state": state.hexdigest(), "names": len(names), "peak": peak}


def _digest(main: static.Program) -> str:
    """Of what is done in which order, but for where the user wrote it."""
    ops = [(op.type, op.input_arg_names, op.output_arg_names) for op in main.global_block().ops]
    return hashlib.sha256(json.dumps(ops).encode()).hexdigest()


def _kinds(main: static.Program) -> List[Tuple[str, int, List[str]]]:
    """Collectives, with what they are of: under the names that were there before they said that they are released."""
    from transpiler.backends.paddle2.naming import RELEASED
    return [(op.type, op.attr("ring_id"), [name.split(RELEASED)[0]
                                           for name in op.input_arg_names])
            for op in main.global_block().ops
            if op.type.startswith("c_")]


def _workspace(kind: str) -> int:
    """Bytes that the kernel of a collective takes besides its operand and its result."""
    main, elements = static.Program(), 1 << 16
    with static.program_guard(main):
        block = main.global_block()
        gathers = kind == "c_allgather"
        x, y = (block.create_var(name=name, dtype="float32", shape=[size], persistable=True)
                for name, size in ((f"{kind}.x", elements), (f"{kind}.y", elements * WORKERS)))
        block.append_op(type=kind,
                        inputs={"X": x},
                        outputs={"Out": y if gathers else x},
                        attrs={
                            "ring_id": 0,
                            "use_calc_stream": True,
                            "nranks": WORKERS
                        } if gathers else {
                            "ring_id": 0,
                            "use_calc_stream": True
                        })
    for each in (x, y):
        array = np.ones(each.shape, "float32")
        static.global_scope().var(each.name).get_tensor().set(array, paddle.CPUPlace())
    ballast = core.LoDTensor()  # up to the peak of all that has run before
    least = core.host_memory_stat_peak_value("Allocated", 0) - core.host_memory_stat_current_value(
        "Allocated", 0)
    ballast._set_dims([least // 4 + 1])
    ballast._alloc_float(core.CPUPlace())
    before = core.host_memory_stat_peak_value("Allocated", 0)
    static.Executor(paddle.CPUPlace()).run(main)
    return core.host_memory_stat_peak_value("Allocated", 0) - before


def _work(rank: int) -> Dict[str, Any]:
    _start()
    from transpiler import distributed
    from transpiler.backends.paddle2.workspaces import COLLECTIVES
    main, startup, loss = _build()
    collectives = _kinds(main)
    own = {"batch_size": ROWS * (1 + 4 * rank), "max_overhead": 0.1 + rank}  # worker 0's count
    ours = new_pass(distributed.NAME, {"fetch_list": [loss], "shared": True, **own})
    report = PassManager([ours]).apply([main], [startup]).get_attr(distributed.REPORT)
    optimized = _run(main, startup, loss, rank)
    said = {
        "changed": report.changed,
        "dims": report.dims,
        "program": _digest(main),
        "unknown": report.unknown_workspaces,
        "predicted": report.peak_bytes_after,
        "sure": report.sure_bytes,
        "collectives": len(collectives),
        "kept": _kinds(main) == collectives
    }
    untouched = _run(*_build(), rank)
    taken = {kind: _workspace(kind) for kind in sorted(COLLECTIVES)}
    return {"said": said, "optimized": optimized, "untouched": untouched, "workspaces": taken}


if __name__ == "__main__":
    found = json.dumps(_work(int(os.environ["PADDLE_TRAINER_ID"])))
    print("FOUND " + found)
    sys.stdout.flush()
    os._exit(0)  # gloo's threads would wait for each other
