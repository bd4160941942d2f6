"""One of two workers, as the launcher starts them, that asks for an agreement as soon as fleet has begun: prints, as JSON, the hints
that it planned with, and what the program gives before and after."""
from __future__ import annotations

import json
import os
import sys
from typing import Any, List, Tuple

import numpy as np
import paddle
from paddle import static
from paddle.distributed import fleet

from transpiler import memory_optimize

ROWS, WIDTH = 4, 16


def _build() -> Tuple[static.Program, static.Program, Any]:
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        hidden = static.data("x", [-1, WIDTH], "float32")
        for _ in range(4):
            hidden = static.nn.fc(hidden, WIDTH, activation="tanh")
        loss = paddle.mean(hidden)
        paddle.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss


def _run(main: static.Program, startup: static.Program, loss: Any) -> List[str]:
    executor, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    batch = np.random.RandomState(3).rand(ROWS, WIDTH).astype("float32")
    with static.scope_guard(scope):
        executor.run(startup)
        return [
            executor.run(main, feed={"x": batch}, fetch_list=[loss])[0].tobytes().hex()
            for _ in range(3)
        ]


def _work(rank: int) -> None:
    paddle.enable_static()
    programs = _build(
    )  # before they meet: nothing of ours stands between the meeting and the agreement
    paddle.distributed.init_parallel_env()
    fleet.init(is_collective=True)
    print("MET", flush=True)
    report = memory_optimize(programs[0],
                             fetch_list=[programs[2]],
                             batch_size=ROWS * (1 + rank),
                             shared=True)
    found = {"rows": report.dims, "optimized": _run(*programs), "untouched": _run(*_build())}
    print("FOUND " + json.dumps(found))


if __name__ == "__main__":
    _work(int(os.environ["PADDLE_TRAINER_ID"]))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads would wait for each other
