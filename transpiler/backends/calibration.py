"""Measures what the cost model needs to know of this machine: bandwidth, throughput and the cost of an op."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from types import MappingProxyType
from typing import Optional, Tuple

import numpy
import paddle

from transpiler.analysis.cost import CostModel
from transpiler.backends.scopes import fresh_scope
from transpiler.backends.settings import static_mode

# Elements of the tensors that are timed: far larger than caches, and too small to matter.
_LARGE, _TINY = (1 << 12, 1 << 10), (4, 4)
_SIDE = 768
_FLOAT_BYTES = 4
_CHAIN, _RUNS = 8, 5
_RATES = (1e-30, 1e30)  # no machine's are beyond these
_LONGEST, _SHOWN = 1 << 16, 40  # bytes of a file that are read, characters of a number that are shown
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
    with static_mode():
        model = _measure()
    path = _cache_file()
    try:
        _write(path, json.dumps(asdict(model)))
    except OSError as error:
        warnings.warn(f'The calibration could not be kept, and is not used: {error}. '
                      'Set XDG_CACHE_HOME to a folder that can be written.')
    return model


def _write(path: Path, text: str) -> None:
    """Beside it, then moved: another process never reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile('w', dir=path.parent, delete=False) as file:
        file.write(text)
    try:
        os.replace(file.name, path)
    except OSError:
        os.unlink(file.name)
        raise


def cached_cost_model() -> Optional[CostModel]:
    """What an earlier calibration on this machine found. A file that holds no such figures is warned of, and ignored."""
    path = _cache_file()
    try:
        with path.open('rb') as file:
            return _cost_model(file.read(_LONGEST))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        warnings.warn(f'{path} is no calibration and is ignored: {error}. '
                      'transpiler.calibrate(refresh=True) writes it anew.')
        return None


def _cost_model(written: bytes) -> CostModel:
    """The model in a cache file; raises ValueError for anything else."""
    rates = json.loads(written)
    if not isinstance(rates, dict):
        raise ValueError('it holds no figures by name')
    kinds = {field.name: type(field.default) for field in fields(CostModel)}
    for name, rate in rates.items():
        if name not in kinds:
            raise ValueError(f'the cost model has no figure {name!r}')
        if not _is_rate(rate, kinds[name]):
            raise ValueError(f'{name} is {str(rate)[:_SHOWN]}, not a number above 0')
    return CostModel(**rates)


def _is_rate(rate: object, kind: type) -> bool:
    numbers = (int,) if kind is int else (int, float)
    return type(rate) in numbers and _RATES[0] <= rate <= _RATES[1]


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
    with fresh_scope():
        for _ in range(_RUNS):
            started = time.perf_counter()
            executor.run(main, feed=feed, fetch_list=[y])
            times.append(time.perf_counter() - started)
    return min(times[1:])
