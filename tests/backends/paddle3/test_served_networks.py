"""Generated networks, optimized in files, give the bytes that they gave under the same settings of the predictor."""
from __future__ import annotations

import json
from pathlib import Path
from typing import List, Sequence, Tuple

import numpy as np
import paddle
import pytest
from click.testing import CliRunner

from tests.backends.paddle3.saved import save
from tests.backends.paddle3.served_networks import network, shape
from transpiler.cli import main
from transpiler.serving.apart import predictor_of, served_once

paddle.enable_static()
_SEEDS, _PARTS, _ROWS = 24, 4, 8
_SETTINGS: Tuple[Tuple[str, ...], ...] = ((), ('no_onednn',))


def _served(folder: Path, name: str, settings: Sequence[str], x: np.ndarray) -> List[bytes]:
    location = [str(folder / f'{name}.{kind}') for kind in ('json', 'pdiparams')]
    return [out.tobytes() for out in served_once(predictor_of(location, settings), {'x': x})]


def _changed(seed: int, folder: Path) -> bool:
    """Whether the network was changed; its bytes are compared."""
    save(folder / 'net', network(seed), shape(seed))
    words = ['optimize', folder / 'net', '-o', folder / 'small', '--json', '--batch-size', _ROWS]
    done = CliRunner().invoke(main, list(map(str, words)))
    assert done.exit_code == 0, f'{seed}: {done.output}'
    x = np.random.RandomState(seed).randn(_ROWS, *shape(seed)[1:]).astype('float32')
    for settings in _SETTINGS:
        plain, ours = (_served(folder, name, settings, x) for name in ('net', 'small'))
        assert plain == ours, f'{seed} {settings}'
    return bool(json.loads(done.stdout)['changed'])


@pytest.mark.parametrize('part', range(_PARTS))
def test_generated_networks_give_the_same_bytes(part: int, tmp_path: Path) -> None:
    changed = []
    for seed in range(part, _SEEDS, _PARTS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        changed.append(_changed(seed, folder))
    assert any(changed)
