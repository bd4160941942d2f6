"""One of two workers that train a program that fleet shards, over gloo, on CPUs: rewritten first, then as it is. Prints, as JSON, what
users see of each, and what is known of the worker's own parameters."""
from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List, Tuple

import numpy as np
import paddle
from paddle import static
from paddle.distributed import fleet

from benchmarks.fleet import Programs, built, trained, without_devices
from tests.meeting import meet

STEPS, LAYERS = 3, 8
WORKERS = int(os.environ["PADDLE_TRAINERS_NUM"])
SHARDED = {
    "sharding": True,
    "sharding_configs": {
        "sharding_segment_strategy": "segment_broadcast_MB",
        "segment_broadcast_MB": 0.25,
        "sharding_degree": WORKERS,
        "stage": 2
    }
}


def _layers(hidden: Any) -> Any:
    for _ in range(LAYERS):
        hidden = paddle.nn.functional.relu(paddle.sin(static.nn.fc(hidden, 192)))
    return hidden


def _resnet18(x: Any) -> Any:
    return paddle.vision.models.resnet18(num_classes=10)(x.reshape([-1, 3, 64, 64]))


# With the rows of a batch, and the numbers in one.
NETWORKS = {"layers": (_layers, 1024, 192), "resnet18": (_resnet18, 8, 3 * 64 * 64)}
NETWORK, ROWS, WIDTH = NETWORKS[sys.argv[1]]


def _build() -> Programs:
    return built(WIDTH, NETWORK, fused=False, **SHARDED)


def _broadcasts(main: static.Program) -> List[Tuple[str, int]]:
    return [(op.input("X")[0], op.attr("root"))
            for op in main.global_block().ops
            if op.type == "c_broadcast"]


def _sent(root: int, value: float) -> float:
    """What a variable holds that had `value` on this worker, once `root` has sent its own to all."""
    main = static.Program()
    block = main.global_block()
    x = block.create_var(name=f"sent.{root}", dtype="float32", shape=[64], persistable=True)
    block.append_op(type="c_broadcast",
                    inputs={"X": x},
                    outputs={"Out": x},
                    attrs={
                        "ring_id": 1,
                        "root": root,
                        "use_calc_stream": True
                    })
    tensor = static.global_scope().var(x.name).get_tensor()
    tensor.set(np.full([64], value, "float32"), paddle.CPUPlace())
    static.Executor(paddle.CPUPlace()).run(main)
    held = set(np.array(tensor).tolist())
    assert len(held) == 1
    return held.pop()


def _planned(rank_is_known: bool) -> Tuple[Programs, Any, List[str]]:
    """A program that was rewritten, the report, and the variables that a broadcast was known to leave as they are."""
    from transpiler import memory_optimize
    from transpiler.backends.paddle2 import programs
    known = programs.rank_over_gloo
    programs.rank_over_gloo = known if rank_is_known else lambda: None
    main, startup, loss = _build()
    graph = programs.LivePrograms().read(main, frozenset([loss.name]), frozenset()).graph
    left = [
        graph.values[op.results[at]].name
        for op in graph.region_ops(0)
        for at in op.left_as_it_is()
    ]
    report = memory_optimize(main, fetch_list=[loss], batch_size=ROWS)
    programs.rank_over_gloo = known
    return (main, startup, loss), report, left


def _work(rank: int) -> Dict[str, Any]:
    without_devices()
    meet(lambda: fleet.init(is_collective=True))
    sent = _broadcasts(_build()[0])
    programs, report, left = _planned(rank_is_known=True)
    optimized = trained(programs, rank, (ROWS, WIDTH), STEPS)
    _, unknown, none_left = _planned(rank_is_known=False)
    return {
        "sent": sent,
        "left": left,
        "left_where_unknown": none_left,
        "changed": report.changed,
        "predicted": report.peak_bytes_after,
        "predicted_where_unknown": unknown.peak_bytes_after,
        "sure": report.sure_bytes,
        "received": [_sent(root, rank + 1.5) for root in range(WORKERS)],
        "optimized": optimized,
        "untouched": trained(_build(), rank, (ROWS, WIDTH), STEPS)
    }


if __name__ == "__main__":
    print("FOUND " + json.dumps(_work(int(os.environ["PADDLE_TRAINER_ID"]))))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads would wait for each other
