"""Scopes that end."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

from paddle.base import core
from paddle.static import scope_guard


@contextmanager
def passing_scope() -> Iterator[Any]:
    """A scope whose tensors are freed at the end: Paddle keeps every other one in a pool until the process ends."""
    scope = core.Scope()
    try:
        yield scope
    finally:
        scope._remove_from_pool()


@contextmanager
def fresh_scope() -> Iterator[Any]:
    """Programs inside run in a scope of their own, which ends with it."""
    with passing_scope() as scope, scope_guard(scope):
        yield scope
