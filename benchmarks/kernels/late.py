"""Finds kernels that give their results memory late: `python -m benchmarks.kernels.late` writes the table anew.

Most take the memory that a result has already. Some make it elsewhere and hand it over, or have done with memory of their own before
they ask for the result's: what a result has already is there besides. Each kernel runs into results without memory, and then with that
of one slot of results left, a slot at a time. `--check` compares with the table that is kept, and exits with 1 where they differ. The
whole takes half a minute of a core.
"""

from __future__ import annotations

import sys
from typing import Any, Container, Dict, Iterator, Mapping, Tuple

from benchmarks.kernels.alone import Bench
from benchmarks.kernels.observing import ready
from benchmarks.kernels.recipes import Recipe
from benchmarks.kernels.slots import found_in, write_or_check
from transpiler.backends.paddle2.registry import LATE

Found = Dict[str, Dict[str, bool]]


def find(recipes: Mapping[str, Recipe]) -> Found:
    """Slots by kind of operator, of those that the programs of `recipes` run; with each, whether it is late where the kernel needs no
    memory of its own, too."""
    found: Found = {}
    for kind, slot, own in found_in(recipes, _of_program):
        slots = found.setdefault(kind, {})
        slots[slot] = slots.get(slot, False) or not own
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


if __name__ == '__main__':
    sys.exit(write_or_check(find, LATE, sys.argv[1:]))
