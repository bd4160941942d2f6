"""Small programs that together run most kernels of the registry, with their gradients."""

from __future__ import annotations

from typing import Any, Callable, Dict

from benchmarks.kernels.draw import Draw
from benchmarks.kernels.recipes import images, plain, pointwise, reductions, shapes, training

Recipe = Callable[[Draw], Any]


def all_recipes() -> Dict[str, Recipe]:
    """All of them by name."""
    found: Dict[str, Recipe] = {}
    for group in (pointwise, reductions, shapes, images, training, plain):
        for name, recipe in group.recipes().items():
            found[f'{group.__name__.rsplit(".", 1)[-1]}.{name}'] = recipe
    return found
