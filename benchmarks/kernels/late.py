"""Finds kernels that give their results memory late: `python -m benchmarks.kernels.late` writes the table anew.

Most take the memory that a result has already. Some make it elsewhere and hand it over, or have done with memory of their own before
they ask for the result's: what a result has already is there besides. Each kernel runs into results without memory, and then with that
of one slot of results left, a slot at a time. `--check` compares with the table that is kept, and exits with 1 where they differ. The
whole takes half a minute of a core.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Container, Dict, Iterator, Mapping, Tuple

import paddle

from benchmarks.kernels.alone import Bench
from benchmarks.kernels.observing import ready
from benchmarks.kernels.recipes import Recipe, all_recipes
from transpiler.backends.paddle2.registry import LATE

Found = Dict[str, Dict[str, bool]]


def find(recipes: Mapping[str, Recipe]) -> Found:
    """Slots by kind of operator, of those that the programs of `recipes` run; with each, whether it is late where the kernel needs no
    memory of its own, too."""
    found: Found = {}
    for name, recipe in recipes.items():
        try:
            for kind, slot, own in _of_program(recipe):
                slots = found.setdefault(kind, {})
                slots[slot] = slots.get(slot, False) or not own
        except Exception as error:  # Paddle's own have no common type; some kernels have no gradient on a CPU
            print(f'{name}: {type(error).__name__}', file=sys.stderr)
    return {kind: dict(sorted(slots.items())) for kind, slots in sorted(found.items())}


def _of_program(recipe: Recipe) -> Iterator[Tuple[str, str, int]]:
    with ready(recipe, 0) as (bench, program):
        block = program.global_block()
        for op in block.ops:
            if set(op.input_arg_names).isdisjoint(op.output_arg_names):
                yield from ((op.type, *each) for each in _late_slots(bench, block, op))
            else:
                bench.run_op(block, op)  # with its state it changes an operand


def _late_slots(bench: Bench, block: Any, op: Any) -> Iterator[Tuple[str, int]]:
    """With what the kernel allocates for itself if no result has memory."""
    own = _own(bench, block, op, [])
    for slot in op.output_names:
        if _own(bench, block, op, op.output(slot)) > own:
            yield slot, own


def _own(bench: Bench, block: Any, op: Any, kept: Container[str]) -> int:
    """Bytes that the kernel allocates for itself if of its results `kept`, if they were made before, have memory."""
    for name in op.output_arg_names:
        tensor = bench.tensor(name)
        if tensor is not None and name not in kept:
            tensor._clear()
    return bench.run_op(block, op).own


def main(arguments: list) -> int:
    """See above. Returns the exit code."""
    paddle.enable_static()
    made = find(all_recipes())
    if arguments == ['--check']:
        kept = json.loads(LATE.read_text(encoding='utf-8'))
        print('as kept' if made == kept else f'kept: {kept}\nfound: {made}')
        return int(made != kept)
    LATE.write_text(json.dumps(made, indent=1) + '\n', encoding='utf-8')
    print(f'{len(made)} kinds')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
