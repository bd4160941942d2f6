"""One worker of a job of `benchmarks.jobs`. Prints what it found, as JSON."""
from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np
import paddle
from paddle import nn, static
from paddle.distributed import fleet
from paddle.nn import functional as F

from benchmarks.fleet import Programs, minimized, state_of, without_devices
from benchmarks.jobs import STEPS, Job
from benchmarks.workers import FOUND

SIDE, CLASSES = 64, 10
VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 500, 64, 128, 4, 4
Feed = Dict[str, np.ndarray]


class Network(NamedTuple):
    """The loss with what may be kept for a recomputation, and a batch."""
    built: Callable[[], Tuple[Any, List[Any]]]
    batch: Callable[[np.random.RandomState], Feed]
    rows: int


def _resnet18() -> Tuple[Any, List[Any]]:
    image, label = static.data('x', [-1, 3, SIDE, SIDE]), static.data('y', [-1, 1], 'int64')
    network = paddle.vision.models.resnet18(num_classes=CLASSES)
    hidden = network.maxpool(network.relu(network.bn1(network.conv1(image))))
    between = [hidden]
    for stage in (network.layer1, network.layer2, network.layer3, network.layer4):
        for block in stage:
            hidden = block(hidden)
            between.append(hidden)
    scores = network.fc(paddle.flatten(network.avgpool(hidden), 1))
    return F.cross_entropy(scores, label), between[:-1]


def _transformer() -> Tuple[Any, List[Any]]:
    words, following = (
        static.data(name, [-1, LENGTH, *more], 'int64') for name, more in (('x', ()), ('y', (1,))))
    hidden, between = nn.Embedding(VOCABULARY, WIDTH)(words), []
    for _ in range(LAYERS):
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1, activation='gelu')
        hidden = layer(hidden)
        between.append(hidden)
    return F.cross_entropy(nn.Linear(WIDTH, VOCABULARY)(hidden), following), between[:-1]


def _images(draw: np.random.RandomState) -> Feed:
    return {
        'x': draw.rand(8, 3, SIDE, SIDE).astype('float32'),
        'y': draw.randint(0, CLASSES, [8, 1])
    }


def _sentences(draw: np.random.RandomState) -> Feed:
    return {
        'x': draw.randint(0, VOCABULARY, [16, LENGTH]),
        'y': draw.randint(0, VOCABULARY, [16, LENGTH, 1])
    }


NETWORKS = {
    'resnet18': Network(_resnet18, _images, 8),
    'transformer': Network(_transformer, _sentences, 16)
}


def _build(job: Job) -> Programs:

    def loss() -> Tuple[Any, Dict[str, Any]]:
        made, between = NETWORKS[job.network].built()
        if not job.recompute:
            return made, {}
        names = [each.name for each in between]
        return made, {'recompute': True, 'recompute_configs': {'checkpoints': names}}

    return minimized(loss, 0.01, **job.strategy)


def _start(job: Job) -> None:
    paddle.set_flags({'FLAGS_eager_delete_tensor_gb': 0.0 if job.collection else -1.0})
    without_devices()
    paddle.enable_static()
    paddle.distributed.init_parallel_env()
    fleet.init(is_collective=True)


def work(rank: int, job: Job) -> Dict[str, Any]:
    """What this worker found: losses and a digest of the state, as text; bytes above resting, and seconds of each step."""
    _start(job)
    main, startup, loss = _build(job)
    sure = 0
    from transpiler.serving.apart import Peaks, status
    if job.optimized:
        from transpiler import memory_optimize
        more = {} if job.max_overhead is None else {'max_overhead': job.max_overhead}
        report = memory_optimize(main,
                                 fetch_list=[loss],
                                 batch_size=NETWORKS[job.network].rows,
                                 **more)
        sure = report.sure_bytes
    executor, scope, draw = static.Executor(
        paddle.CPUPlace()), static.Scope(), np.random.RandomState(rank)
    losses, seconds = [], []
    with static.scope_guard(scope):
        executor.run(startup)
        peaks, resident = Peaks(), status('VmRSS')
        for _ in range(STEPS):
            batch = NETWORKS[job.network].batch(draw)
            peaks.start_run()
            began = time.process_time()
            found, = executor.run(main, feed=batch, fetch_list=[loss])
            seconds.append(time.process_time() - began)
            peaks.seen.append(peaks.above_resting())
            losses.append(found.tobytes().hex())
        grown = status('VmHWM') - resident
        state, _ = state_of(main, scope)
    return {
        'losses': losses,
        'state': state,
        'first': peaks.seen[0],
        'later': max(peaks.seen[1:]),
        'sure': sure,
        'grown': grown,
        'cpu_seconds': seconds
    }


if __name__ == '__main__':
    print(FOUND +
          json.dumps(work(int(os.environ['PADDLE_TRAINER_ID']), Job(**json.loads(sys.argv[1])))))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads would wait for each other
