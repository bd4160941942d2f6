"""Tests of the back end of Paddle 3, left out as a whole where another Paddle is installed."""
import pytest

from tests.installed import paddle_version

if not paddle_version().startswith("3."):
    pytest.skip(f"needs paddlepaddle 3; installed is {paddle_version() or 'none'}",
                allow_module_level=True)
