"""Observes kernels in child processes: some of them end the process.

`python -m benchmarks.kernels.children` reads names of recipes and sizes from stdin and prints what it sees, a run a line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from benchmarks.kernels.recipes import Recipe, all_recipes
from benchmarks.kernels.runtimes import installed

# A process keeps something of each program that it ran.
_AT_ONCE = 400


class Run(NamedTuple):
    """A recipe at one size: what its operators allocated, or why it did not run."""

    recipe: str
    size: int
    seen: Tuple[Any, ...]
    problem: str


def observe_apart(wanted: Sequence[Tuple[str, int]]) -> Iterator[Run]:
    """What the operators of recipes allocate, at sizes. A process that a kernel ends is followed by another for what is left."""
    left = list(wanted)
    while left:
        part, done = left[:_AT_ONCE], 0
        with subprocess.Popen([sys.executable, '-m', 'benchmarks.kernels.children'],
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
        seen.extend(o.to_dict() for o in installed().observe(recipe, size))
    except Exception as error:  # Paddle's own have no common type
        lines = [line for line in str(error).splitlines() if line.strip()]
        problem = f'{type(error).__name__}: {" ".join(lines[-2:])[:300]}'
    return {'recipe': name, 'size': size, 'seen': seen, 'problem': problem}


def _from_dict(found: Dict[str, Any]) -> Run:
    return Run(found['recipe'], found['size'], tuple(map(installed().from_dict, found['seen'])),
               found['problem'])


def main() -> None:
    recipes = all_recipes()
    for name, size in json.load(sys.stdin):
        print(json.dumps(_run(name, size, recipes[name])), flush=True)


if __name__ == '__main__':
    main()
