"""Tables of slots of results, by kind of operator: found by running the kernels of all recipes, and kept in the package as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, TypeVar

import paddle

from benchmarks.kernels.recipes import Recipe, all_recipes

_Found = TypeVar('_Found')
Table = Dict[str, Any]


def found_in(recipes: Mapping[str, Recipe],
             of_program: Callable[[Recipe], Iterable[_Found]]) -> Iterator[_Found]:
    """What `of_program` finds in the programs of `recipes`; says of which it fails."""
    for name, recipe in recipes.items():
        try:
            yield from of_program(recipe)
        except Exception as error:  # Paddle's own have no common type; some kernels have no gradient on a CPU
            print(f'{name}: {type(error).__name__}', file=sys.stderr)


def write_or_check(find: Callable[[Mapping[str, Recipe]], Table], path: Path,
                   arguments: List[str]) -> int:
    """Writes what `find` makes of all recipes; with `--check` compares it with what is kept. Returns the exit code."""
    paddle.enable_static()
    made = find(all_recipes())
    if arguments == ['--check']:
        kept = json.loads(path.read_text(encoding='utf-8'))
        print('as kept' if made == kept else f'kept: {kept}\nfound: {made}')
        return int(made != kept)
    path.write_text(json.dumps(made, indent=1) + '\n', encoding='utf-8')
    print(f'{len(made)} kinds')
    return 0
