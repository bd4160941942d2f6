"""One of two workers that train by Paddle's auto-parallel Engine over gloo, on CPUs; with our pass among its fused ones if `optimized`
is said. Prints, as JSON, what users see of it."""
from __future__ import annotations

import hashlib
import json
import os
import sys
from types import SimpleNamespace
from typing import Any, Dict, Tuple

import numpy as np
import paddle
from paddle import static
from paddle.base import core
from paddle.distributed.auto_parallel.static import process_group
from paddle.distributed.fleet import auto

from benchmarks.fleet import digest
from tests.meeting import meet

STEPS, ROWS, WIDTH, LAYERS = 4, 64, 128, 6


class _Batches(paddle.io.Dataset):

    def __init__(self) -> None:
        draw = np.random.RandomState(5)
        self._x, self._y = (
            draw.uniform(-1, 1, (STEPS * ROWS, size)).astype("float32") for size in (WIDTH, 1))

    def __getitem__(self, index: int) -> Tuple[np.ndarray, np.ndarray]:
        return self._x[index], self._y[index]

    def __len__(self) -> int:
        return STEPS * ROWS


def _without_devices() -> None:
    """Gloo's one ring stands; the Engine would make its own, of devices, and asks them how large a cluster it is."""
    process_group.ProcessGroup.instantiate = lambda _: None
    device = SimpleNamespace(name="V100", total_memory=16 << 30, major=7, minor=0)
    paddle.device.cuda.get_device_properties = lambda *_: device


def _engine(optimized: bool) -> auto.Engine:
    strategy = auto.Strategy()
    strategy.auto_mode = "semi"
    if optimized:
        from transpiler import distributed
        strategy.fused_passes.enable = True
        strategy.fused_passes.fused_passes_list = [distributed.NAME]
    paddle.seed(3)
    layers = [
        each for _ in range(LAYERS) for each in (paddle.nn.Linear(WIDTH, WIDTH), paddle.nn.Tanh())
    ]
    network = paddle.nn.Sequential(*layers, paddle.nn.Linear(WIDTH, 1))
    optimizer = paddle.optimizer.Momentum(0.01, parameters=network.parameters())
    return auto.Engine(network, paddle.nn.MSELoss(), optimizer, strategy=strategy)


def _work(optimized: bool) -> Dict[str, Any]:
    meet()
    _without_devices()
    engine = _engine(optimized)
    history = engine.fit(_Batches(), batch_size=ROWS, steps_per_epoch=STEPS, verbose=0)
    losses = [np.asarray(loss).tobytes().hex() for loss in history.history["loss"]]
    main, scope = engine.main_program, static.global_scope()
    names = sorted(v.name for v in main.list_vars() if v.persistable and
                   v.type == core.VarDesc.VarType.LOD_TENSOR and scope.find_var(v.name) is not None)
    state = b"".join(np.array(scope.find_var(name).get_tensor()).tobytes() for name in names)
    ops = main.global_block().ops
    return {
        "losses": losses,
        "names": names,
        "state": hashlib.sha256(state).hexdigest(),
        "collectives": sum(op.type == "c_allreduce_sum" for op in ops),
        "program": digest(main)
    }


if __name__ == "__main__":
    print("FOUND " + json.dumps(_work("optimized" in sys.argv[1:])))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads would wait for each other
