"""A saved program for all tests of a file, and `check` without an import of Paddle for each program."""
from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, Mapping

import numpy as np
import pytest

from benchmarks.apart import apart
from tests.serving.programs import save_tiny
from transpiler.serving import running


@pytest.fixture(scope='module')
def tiny(tmp_path_factory) -> Path:
    path = save_tiny(tmp_path_factory.mktemp('tiny'))
    image = np.random.RandomState(0).randn(2, 3, 8, 8).astype('float32')
    np.savez(str(path) + '.npz', image=image)
    return path


@pytest.fixture
def forked_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run in a process of their own all the same, a fork of one that has Paddle, unless it is to have variables of its own.
    Tests without this fixture run them as users do."""
    usual = running.answer_apart

    def forked(module: str, question: Dict[str, Any], program: str,
               environment: Mapping[str, str]) -> Any:
        if environment:
            return usual(module, question, program, environment)
        assert module == running.__name__
        return asdict(apart(running.run, running.RunSpec(**question)))

    monkeypatch.setattr(running, 'answer_apart', forked)
