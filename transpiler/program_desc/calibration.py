"""Measures what the cost model needs to know of this machine: bandwidth, throughput and the cost of an op."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, Optional, Tuple

import numpy
import paddle

from transpiler.analysis.cost import CostModel

# Elements of the tensors that are timed: far larger than caches, and too small to matter.
_LARGE, _TINY = (1 << 12, 1 << 10), (4, 4)
_SIDE = 768
_FLOAT_BYTES = 4
_CHAIN, _RUNS = 8, 5
_UNARY = MappingProxyType({'tanh': paddle.tanh, 'softmax': paddle.nn.functional.softmax})


def calibrate(refresh: bool = False) -> CostModel:
    """The cost model of this machine; measured once, then read from a file in the user's cache folder.

    memory_optimize uses it from then on, in this process and in later ones. About a second.

    Args:
        refresh: measure again.
    """
    known = None if refresh else cached_cost_model()
    if known is not None:
        return known
    model = _measure()
    path = _cache_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written beside it and moved: another process never reads half a file.
        with tempfile.NamedTemporaryFile('w', dir=path.parent, delete=False) as file:
            json.dump(asdict(model), file)
        os.replace(file.name, path)
    except OSError:
        pass  # nowhere to keep it: measured again next time
    return model


def cached_cost_model() -> Optional[CostModel]:
    """What an earlier calibration on this machine found, if it can be read."""
    try:
        rates: Dict[str, Any] = json.loads(_cache_file().read_text())
        model = CostModel(**rates)
    except (OSError, ValueError, TypeError):
        return None
    return model if all(isinstance(r, float) and r > 0 for r in asdict(model).values()) else None


def _cache_file() -> Path:
    base = os.environ.get('XDG_CACHE_HOME') or os.path.join(os.path.expanduser('~'), '.cache')
    threads = os.environ.get('OMP_NUM_THREADS', 'all')
    name = f'{platform.node()}-{platform.machine()}-paddle{paddle.__version__}-{threads}.json'
    return Path(base) / 'transpiler' / name


def _measure() -> CostModel:
    tiny = max(_seconds_per_op('tanh', _TINY), 1e-6)
    # Most of what is computed again is like one of these: bound by memory, by arithmetic, or in between.
    passes = {'add': 3, 'tanh': 2, 'softmax': 2}
    seconds = [(_seconds_per_op(kind, _LARGE) - tiny) / n for kind, n in passes.items()]
    bandwidth = _LARGE[0] * _LARGE[1] * _FLOAT_BYTES * len(passes) / max(sum(seconds), 1e-9)
    product = _seconds_per_op('matmul', (_SIDE, _SIDE)) - tiny
    touching = 3 * _SIDE * _SIDE * _FLOAT_BYTES / bandwidth
    return CostModel(bandwidth, 2.0 * _SIDE**3 / max(product - touching, 1e-9), max(tiny, 1e-8))


def _seconds_per_op(kind: str, shape: Tuple[int, ...]) -> float:
    """The least time of one op of a chain, between a chain of one length and one of twice that."""
    return max(1e-9,
               (_chain_seconds(kind, shape, 2 * _CHAIN) - _chain_seconds(kind, shape, _CHAIN)) /
               _CHAIN)


def _chain_seconds(kind: str, shape: Tuple[int, ...], length: int) -> float:
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = paddle.static.data('x', shape)
        y = x
        for _ in range(length):
            y = _UNARY[kind](y) if kind in _UNARY else getattr(paddle, kind)(y, x)
    executor = paddle.static.Executor(paddle.CPUPlace())
    feed = {'x': numpy.full(shape, 1e-3, 'float32')}
    times = []
    with paddle.static.scope_guard(paddle.static.Scope()):
        for _ in range(_RUNS):
            started = time.perf_counter()
            executor.run(main, feed=feed, fetch_list=[y.name])
            times.append(time.perf_counter() - started)
    return min(times[1:])
