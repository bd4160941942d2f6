"""Two saved programs of Paddle 3, run side by side under the same settings: the same bytes, and which memory each needs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Callable, Dict, List, Optional

import numpy as np

from transpiler.backends.paddle3.shapes import declared_shape
from transpiler.backends.paddle3.tensors import dtype_of
from transpiler.errors import InvalidArgumentError
from transpiler.ir.symbols import BATCH
from transpiler.serving.apart import RunSpec
from transpiler.serving.given import check_fetched, check_same_inputs, drawn
from transpiler.serving.pir.files import SavedModel, read_model
from transpiler.serving.pir.running import SETTINGS, run_apart
from transpiler.serving.rows import Row, read_inputs


def compare(source: str, target: str, feed: Optional[str], fetch: List[str], batch_size: int,
            every_setting: bool, advance: Callable[[float], None], requests: int) -> List[Row]:
    """Runs both; raises TranspilerError if one does not run or the inputs do not fit.

    `advance` is told which share of the runs is done.
    """
    if requests:
        raise InvalidArgumentError('--requests is for programs of Paddle 2 (.pdmodel): what Paddle '
                                   '3 keeps from request to request is not modelled')
    old, new = read_model(source), read_model(target)
    for saved in (old, new):
        if not saved.for_inference:
            raise InvalidArgumentError(f'{saved.path} has no fetch operator: no predictor loads it')
        check_fetched(saved, fetch)
    check_same_inputs(old, new, (old.inputs, new.inputs))
    settings = SETTINGS if every_setting else SETTINGS[:1]
    rows: List[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / 'feed.npz')
        np.savez(path, **_inputs(old, feed, batch_size))
        for names in settings:
            results = [
                run_apart(RunSpec(str(saved.path), path, fetch, list(names)))
                for saved in (old, new)
            ]
            for saved, result in zip((old, new), results):
                equal = result.digests == results[0].digests and len(set(result.digests)) == 1
                rows.append(Row(' '.join([str(saved.path), *names]), result, equal))
            advance(len(rows) / len(settings) / 2)
    return rows


def _inputs(saved: SavedModel, feed: Optional[str], batch_size: int) -> Dict[str, np.ndarray]:
    if feed is None:
        return draw(saved, batch_size)
    return read_inputs(feed, saved.inputs)


def draw(saved: SavedModel, batch_size: int, seed: int = 0) -> Dict[str, np.ndarray]:
    """Inputs for so many rows; raises InvalidArgumentError for those whose size is not known."""
    random, feed = np.random.RandomState(seed), {}
    for name, value in sorted(saved.inputs.items()):
        shape = declared_shape(value.shape)
        if shape is None:
            raise InvalidArgumentError(
                f'input {name!r} has open dims besides the batch; give inputs with --feed')
        sizes = [dim.evaluate({BATCH: batch_size}) for dim in shape]
        feed[name] = drawn(random, dtype_of(value), sizes)
    return feed
