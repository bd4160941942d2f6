"""Settings that must hold before Paddle is imported by any test."""
from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest
from hypothesis import settings

from tests.drops import no_plan_is_dropped
from tests.installed import paddle_version
from tests.memory import freeze, give_back
from tests.stacks import as_in_a_script
from tests.stuck import watch

# Kernels that split a sum over threads round differently from run to run; equal bytes need one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOG_minloglevel", "2")

# The same examples each time, so that what fails fails everywhere, however slow the machine; HYPOTHESIS_PROFILE=default looks for
# others.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_configure(config: pytest.Config) -> None:
    watch(config)


def pytest_ignore_collect(collection_path: Path) -> Optional[bool]:
    """On Paddle 3, all tests but those of its own back end: the others build programs of Paddle 2."""
    is_test = collection_path.match("test_*.py") and "paddle3" not in collection_path.parts
    return True if is_test and paddle_version().startswith("3.") else None


def pytest_report_header() -> str:
    """Says what that leaves out."""
    version = paddle_version()
    left_out = ": tests of Paddle 2 are left out" if version.startswith("3.") else ""
    return f"paddle {version or 'not installed'}{left_out}"


def pytest_collection_finish() -> None:
    """What the imports made stays as long as the process: collections need not go through it each time, nor copy its pages in a
    fork. What tests make is collected as ever."""
    gc.collect()
    freeze()
    as_in_a_script()


def pytest_runtest_teardown(item: Any) -> None:  # pylint: disable=unused-argument
    """Processes that run thousands of tests stay small."""
    give_back()


@pytest.fixture(autouse=True)
def _every_plan_is_proved(request: Any) -> Iterator[None]:
    """Unless the test is marked with `drops_plans`."""
    if request.node.get_closest_marker("drops_plans"):
        yield
        return
    with no_plan_is_dropped():
        yield
