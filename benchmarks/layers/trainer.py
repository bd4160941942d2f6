"""The process that trains one network in one way: `python -m benchmarks.layers.trainer NETWORK WAY MODE`.

It answers each line of its input with a line of JSON: `step` trains one step, `end` says what is left, and from `watch` on steps
are watched in place of timed.
"""
from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from functools import partial
from types import MappingProxyType
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import paddle
from paddle.distributed.fleet.utils import recompute

from benchmarks.layers.networks import NETWORKS, Network
from benchmarks.measure import Peaks, Watcher, process_bytes
from transpiler.serving.apart import settled_bytes

SEED = 7
AUTO_RECOMPUTE = MappingProxyType({'FLAGS_enable_auto_recompute': '1', 'FLAGS_prim_all': 'true'})
Step = Callable[[Any, Any], Any]


def _static(made: Any, network: Network, full_graph: bool) -> Step:
    del network
    return paddle.jit.to_static(made, full_graph=full_graph)


def _by_hand(made: Any, network: Network, full_graph: bool) -> Step:
    del full_graph
    for block in network.blocks(made):
        block.forward = partial(recompute, block.forward)
    return made


def _ours(made: Any, network: Network, full_graph: bool, how: str) -> Step:
    from transpiler import memory_optimize
    step = _static(made, network, full_graph)
    memory_optimize(made, recompute=how)
    return step


WAYS: Mapping[str, Callable[[Any, Network, bool], Step]] = MappingProxyType({
    'eager': lambda made, network, full_graph: made,
    'fleet.utils.recompute': _by_hand,
    'to_static': _static,
    'enable_auto_recompute': _static,
    'ours, auto': partial(_ours, how='auto'),
    'ours, max': partial(_ours, how='max'),
})

# What Paddle traces in each way that is measured; '' is nothing, 'ast' whole layers, 'sot' stretches that it finds in bytecode.
MODES: Mapping[str, Tuple[str, ...]] = MappingProxyType({
    **dict.fromkeys(WAYS, ('ast', 'sot')),
    **dict.fromkeys(('eager', 'fleet.utils.recompute'), ('',)), 'enable_auto_recompute': ('ast',)
})


def environment(way: str) -> Dict[str, str]:
    """What must be set before Paddle is imported."""
    return dict(AUTO_RECOMPUTE) if way == 'enable_auto_recompute' else {}


class Trainer:
    """Trains, and measures each step: its time, or once it watches the peak, for which tensors are held that no user would."""

    def __init__(self, network: Network, way: str, full_graph: bool) -> None:
        paddle.seed(SEED)
        self._network, self._made = network, network.make()
        self._optimizer = paddle.optimizer.SGD(0.01, parameters=self._made.parameters())
        self._step = WAYS[way](self._made, network, full_graph)
        self._peaks: Optional[Peaks] = None
        self._at = 0
        self._started = process_bytes('VmRSS')
        paddle.seed(SEED)

    def step(self) -> Dict[str, Any]:
        """Milliseconds, and bytes above resting, which includes the parameters."""
        batch = [paddle.to_tensor(each) for each in self._network.batch(self._at)]
        self._at += 1
        if self._peaks is not None:
            return self._watched(batch)
        wall, cpu = time.perf_counter(), time.process_time()
        loss = self._forward(batch)
        self._backward(loss)
        return {
            'wall': (time.perf_counter() - wall) * 1e3,
            'cpu': (time.process_time() - cpu) * 1e3,
            'loss': loss.numpy().tobytes().hex()
        }

    def watch(self) -> Dict[str, Any]:
        """Steps are watched from now on; what holds tensors for that would be the process's too."""
        self._peaks = Peaks()
        return {}

    def _watched(self, batch: Any) -> Dict[str, Any]:
        self._peaks.start_run()
        before = settled_bytes()
        with Watcher() as watcher:
            loss = self._forward(batch)
            kept = settled_bytes() - before
            self._backward(loss)
        return {'peak': self._peaks.above_resting(watcher.highest), 'kept': kept}

    def _forward(self, batch: Any) -> Any:
        return self._step(*batch)

    def _backward(self, loss: Any) -> None:
        loss.backward()
        self._optimizer.step()
        self._optimizer.clear_grad(set_to_zero=False)

    def end(self) -> Dict[str, Any]:
        """Bytes that the process grew by at its highest, and the digest of parameters and statistics."""
        digest = hashlib.sha256()
        for name, value in sorted(self._made.state_dict().items()):
            digest.update(name.encode() + value.numpy().tobytes())
        return {
            'grown': process_bytes('VmHWM') - self._started,
            'state': digest.hexdigest(),
            'paddle': paddle.__version__
        }


def main() -> None:
    warnings.simplefilter('ignore')
    name, way, mode = sys.argv[1:]
    trainer = Trainer(NETWORKS[name], way, mode != 'sot')
    answers = {'step': trainer.step, 'end': trainer.end, 'watch': trainer.watch}
    for line in sys.stdin:
        print('>' + json.dumps(answers[line.strip()]()), flush=True)


if __name__ == '__main__':
    main()
