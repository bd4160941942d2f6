"""The Paddle that is installed, without importing it."""
from __future__ import annotations

import importlib.metadata


def paddle_version() -> str:
    """'' if there is none."""
    for name in ("paddlepaddle", "paddlepaddle-gpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return ""
