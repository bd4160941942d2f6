"""A saved program for all tests of a file."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.serving.programs import save_tiny


@pytest.fixture(scope='module')
def tiny(tmp_path_factory) -> Path:
    path = save_tiny(tmp_path_factory.mktemp('tiny'))
    image = np.random.RandomState(0).randn(2, 3, 8, 8).astype('float32')
    np.savez(str(path) + '.npz', image=image)
    return path
