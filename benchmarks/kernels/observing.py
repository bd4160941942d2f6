"""Builds the small programs, and runs their operators one by one.

`python -m benchmarks.kernels.observing` reads names of recipes and sizes from stdin and prints what it sees, an
observation a line: some kernels end the process, so that the work is given to child processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import paddle
from paddle.base import core

from benchmarks.kernels.alone import Bench, Observation
from benchmarks.kernels.draw import Draw
from benchmarks.kernels.recipes import Recipe, all_recipes
from benchmarks.kernels.recipes.training import Trained

_VarType = core.VarDesc.VarType
_FLOATS = (_VarType.FP32, _VarType.FP64, _VarType.COMPLEX64, _VarType.COMPLEX128)
# A process keeps something of each program that it ran.
_AT_ONCE = 400


class Run(NamedTuple):
    """A recipe at one size: what its operators allocated, or why it did not run."""

    recipe: str
    size: int
    seen: Tuple[Observation, ...]
    problem: str


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
    main, startup = _written(recipe, draw)
    bench = Bench()
    try:
        with paddle.static.scope_guard(bench.scope):
            paddle.static.Executor(paddle.CPUPlace()).run(startup)
        bench.feed(draw.feed)
        yield bench, main
    finally:
        bench.close()


def _written(recipe: Recipe, draw: Draw) -> Tuple[paddle.static.Program, paddle.static.Program]:
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        _add_gradients(recipe(draw), draw)
    return main, startup


def _add_gradients(outputs: Any, draw: Draw) -> None:
    if isinstance(outputs, Trained):
        return
    listed: List[Any] = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    differentiable = [v for v in listed if v.dtype in _FLOATS and not v.stop_gradient]
    parameters = [p for p in paddle.static.default_main_program().all_parameters() if p.trainable]
    if differentiable and draw.trainable + parameters:
        paddle.static.gradients(differentiable, draw.trainable + parameters)


def observe_apart(wanted: Sequence[Tuple[str, int]]) -> Iterator[Run]:
    """The same in child processes: one that a kernel ends is followed by another for what is left."""
    left = list(wanted)
    while left:
        part, done = left[:_AT_ONCE], 0
        with subprocess.Popen([sys.executable, '-m', __name__],
                              stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL,
                              text=True) as child:
            child.stdin.write(json.dumps(part))
            child.stdin.close()
            for line in child.stdout:
                if line.startswith('{"recipe"'):
                    yield _from_dict(json.loads(line))
                    done += 1
        if done < len(part):
            yield Run(*part[done], (), f'the process ended with {child.returncode}')
            done += 1
        left = left[done:]


def _run(name: str, size: int, recipe: Recipe) -> Dict[str, Any]:
    seen: List[Dict[str, Any]] = []
    problem = ''
    try:
        seen.extend(o.to_dict() for o in observe(recipe, size))
    except Exception as error:  # Paddle's own have no common type
        lines = [line for line in str(error).splitlines() if line.strip()]
        problem = f'{type(error).__name__}: {" ".join(lines[-2:])[:300]}'
    return {'recipe': name, 'size': size, 'seen': seen, 'problem': problem}


def _from_dict(found: Dict[str, Any]) -> Run:
    return Run(found['recipe'], found['size'], tuple(map(Observation.from_dict, found['seen'])),
               found['problem'])


def main() -> None:
    recipes = all_recipes()
    for name, size in json.load(sys.stdin):
        print(json.dumps(_run(name, size, recipes[name])), flush=True)


if __name__ == '__main__':
    main()
