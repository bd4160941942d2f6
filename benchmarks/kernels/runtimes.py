"""How kernels of the Paddle that is installed are observed, and where what was found of them is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, NamedTuple

from benchmarks.kernels.fit import Sample
from benchmarks.kernels.recipes import Recipe
from benchmarks.kernels.table import Workspace
from transpiler.backends.installed import paddle_version
from transpiler.backends.kernel_tables import Cases


class Runtime(NamedTuple):
    """Of one Paddle.

    Attributes:
        observe: what the operators of the program of a recipe allocate, at a size; each can be made plain data (`to_dict`).
        from_dict: of plain data.
        sample: what is fitted.
        special: guesses, by kind.
        bounds: whether a bound will do where no formula is found: there kernels are never run for a budget.
        path: of the table.
        table: it.
        workspace: what the back end makes of it.
    """

    observe: Callable[[Recipe, int], Iterator[Any]]
    from_dict: Callable[[Mapping[str, Any]], Any]
    sample: Callable[[Any], Sample]
    special: Mapping[str, Cases]
    bounds: bool
    path: Path
    table: Callable[[], Mapping[str, Cases]]
    workspace: Workspace


def installed() -> Runtime:
    """That of the Paddle that is installed: what another needs is not imported."""
    if paddle_version().startswith('2.'):
        from benchmarks.kernels import alone, observing, special
        from transpiler.backends.paddle2 import workspaces
        return Runtime(observing.observe, alone.Observation.from_dict, alone.sample,
                       special.SPECIAL, True, workspaces.TABLE, workspaces.table,
                       workspaces.workspace)
    from benchmarks.kernels import pir, special_pir
    from transpiler.backends.paddle3 import known_workspaces
    return Runtime(pir.observe, pir.Observation.from_dict, pir.sample, special_pir.SPECIAL_PIR,
                   False, known_workspaces.TABLE, known_workspaces.table,
                   known_workspaces.workspace)
