"""Builds the small programs for Paddle 2.6, and runs their operators one by one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, Tuple

import paddle

from benchmarks.kernels.alone import Bench, Observation
from benchmarks.kernels.draw import Draw
from benchmarks.kernels.recipes import Recipe
from benchmarks.kernels.writing import written


def observe(recipe: Recipe, size: int) -> Iterator[Observation]:
    """What each operator of the program of `recipe`, with its gradients, allocates.

    Raises:
        whatever building or running it does.
    """
    with ready(recipe, size) as (bench, program):
        yield from bench.run(program)


@contextmanager
def ready(recipe: Recipe, size: int) -> Iterator[Tuple[Bench, paddle.static.Program]]:
    """The program of `recipe`, with its gradients, and a bench that has its parameters and inputs."""
    draw = Draw(size)
    main, startup = written(recipe, draw)
    bench = Bench()
    try:
        with paddle.static.scope_guard(bench.scope):
            paddle.static.Executor(paddle.CPUPlace()).run(startup)
        bench.feed(draw.feed)
        yield bench, main
    finally:
        bench.close()
