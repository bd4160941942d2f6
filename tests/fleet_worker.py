"""One of two workers that train a program of fleet's over gloo, on CPUs: rewritten first, then as it is. Prints, as JSON, what
users see of each, and the peaks of all runs so far, in bytes above resting."""
from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from functools import partial
from typing import Any, Dict, List, Tuple

import numpy as np
import paddle
from paddle import static
from paddle.base import core
from paddle.distributed import fleet
from paddle.distributed.passes import PassManager, new_pass

from benchmarks.fleet import Programs, built, digest, trained, without_devices
from tests.meeting import meet

STEPS, ROWS, WIDTH, LAYERS = 3, 32, 768, 12
WORKERS = int(os.environ["PADDLE_TRAINERS_NUM"])


def _start() -> None:
    """Gloo's ring stands before a program is built: the ops that would make it are for devices only. Between what is printed, all
    that happens is Paddle's and the machine's: nothing of ours is imported yet."""
    without_devices()
    meet(lambda: fleet.init(is_collective=True))


def _network(hidden: Any) -> Any:
    for _ in range(LAYERS):
        hidden = static.nn.fc(hidden, WIDTH, activation="tanh")
    return hidden


def _run(programs: Programs, rank: int) -> Dict[str, Any]:
    return trained(programs, rank, (ROWS, WIDTH), STEPS)


def _kinds(main: static.Program) -> List[Tuple[str, int, List[str]]]:
    """Collectives, with what they are of: under the names that were there before they said that they are released."""
    from transpiler.backends.paddle2.naming import RELEASED
    return [(op.type, op.attr("ring_id"), [name.split(RELEASED)[0]
                                           for name in op.input_arg_names])
            for op in main.global_block().ops
            if op.type.startswith("c_")]


def _measured(rank: int) -> Dict[str, Any]:
    """What a third pair of programs says of itself, and what is refused before anything runs: on all workers alike, or one would
    wait in a collective for ever."""
    main, startup, loss = built(WIDTH, _network)
    from transpiler import TranspilerError, memory_optimize
    call = partial(memory_optimize, main, fetch_list=[loss], batch_size=ROWS, shared=True)
    feed = {"x": np.full([ROWS, WIDTH], 1.0 + rank, "float32")}
    refused = []
    with static.scope_guard(static.Scope()), static.program_guard(main, startup):
        static.Executor(paddle.CPUPlace()).run(startup)
        for wrong in ({
                "verify_runs": 1 + rank
        }, {
                "verify_runs": 1,
                "verify_feed": {
                    "xy"[rank]: feed["x"]
                }
        }):
            try:
                call(**{"verify_feed": feed, **wrong})
            except TranspilerError as error:
                refused.append(str(error))
        found = call(verify_runs=2, verify_feed=feed).measured
    return {"refused": refused, **asdict(found)}


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
    programs = main, startup, loss = built(WIDTH, _network)
    collectives = _kinds(main)
    own = {"batch_size": ROWS * (1 + 4 * rank), "max_overhead": 0.1 + rank}  # worker 0's count
    ours = new_pass(distributed.NAME, {"fetch_list": [loss], "shared": True, **own})
    report = PassManager([ours]).apply([main], [startup]).get_attr(distributed.REPORT)
    optimized = _run(programs, rank)
    said = {
        "changed": report.changed,
        "dims": report.dims,
        "program": digest(main),
        "unknown": report.unknown_workspaces,
        "predicted": report.peak_bytes_after,
        "sure": report.sure_bytes,
        "collectives": len(collectives),
        "kept": _kinds(main) == collectives
    }
    untouched = _run(built(WIDTH, _network), rank)
    said["measured"] = _measured(rank)
    taken = {kind: _workspace(kind) for kind in sorted(COLLECTIVES)}
    return {"said": said, "optimized": optimized, "untouched": untouched, "workspaces": taken}


if __name__ == "__main__":
    found = json.dumps(_work(int(os.environ["PADDLE_TRAINER_ID"])))
    print("FOUND " + found)
    sys.stdout.flush()
    os._exit(0)  # gloo's threads would wait for each other
