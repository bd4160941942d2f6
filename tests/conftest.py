"""Settings that must hold before Paddle is imported by any test."""
from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

from tests.memory import give_back

# Kernels that split a sum over threads round differently from run to run; equal bytes need one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOG_minloglevel", "2")

# The same examples each time, so that what fails fails everywhere; HYPOTHESIS_PROFILE=default looks for others.
settings.register_profile("suite", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_runtest_teardown(item: Any) -> None:  # pylint: disable=unused-argument
    """Processes that run thousands of tests stay small."""
    give_back()
