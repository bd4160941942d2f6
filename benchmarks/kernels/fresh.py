"""Finds kernels that work on what their results hold already: `python -m benchmarks.kernels.fresh` writes the table anew.

Each kernel runs twice on the same operands and with the same seed: first into results without memory, then into the same ones
with other numbers in them. One that gives other bytes then takes its result for half done, adds to it, or leaves some of it as
it is. `--check` compares with the table that is kept, and exits with 1 where they differ. The whole takes half a minute of a core.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Tuple

import numpy as np
from paddle.base import core

from benchmarks.kernels.alone import Bench
from benchmarks.kernels.observing import ready
from benchmarks.kernels.recipes import Recipe
from benchmarks.kernels.slots import found_in, write_or_check
from transpiler.backends.paddle2.registry import FRESH

_SEED = 7


def find(recipes: Mapping[str, Recipe]) -> Dict[str, List[str]]:
    """Slots by kind of operator, of those that the programs of `recipes` run."""
    found: Dict[str, set] = {}
    for kind, slots in found_in(recipes, _of_program):
        found.setdefault(kind, set()).update(slots)
    return {kind: sorted(slots) for kind, slots in sorted(found.items())}


def _of_program(recipe: Recipe) -> Iterable[Tuple[str, FrozenSet[str]]]:
    with ready(recipe, 0) as (bench, program):
        block = program.global_block()
        for op in block.ops:
            slots = _fresh_slots(bench, block, op)
            if slots:
                yield op.type, slots


def _fresh_slots(bench: Bench, block: Any, op: Any) -> FrozenSet[str]:
    names = [n for n in op.output_arg_names if n not in op.input_arg_names]
    first = _run(bench, block, op, names)
    if len(names) < len(op.output_arg_names):  # with its state it has changed an operand
        return frozenset()
    operands = _held(bench, op.input_arg_names)
    for name in first:
        was = _fill(bench, name)
        if _held(bench, op.input_arg_names) != operands:  # another name of an operand's memory
            bench.tensor(name).set(was, core.CPUPlace())
    then = _run(bench, block, op, names)
    changed = {name for name in first if first[name] != then.get(name)}
    return frozenset(slot for slot in op.output_names if changed & set(op.output(slot)))


def _run(bench: Bench, block: Any, op: Any, names: List[str]) -> Dict[str, bytes]:
    """The bytes of the results that have memory then."""
    core.default_cpu_generator().manual_seed(_SEED)
    bench.run_op(block, op)
    return _held(bench, names)


def _held(bench: Bench, names: Iterable[str]) -> Dict[str, bytes]:
    tensors = {name: bench.tensor(name) for name in names}
    return {
        name: np.array(tensor).tobytes() for name, tensor in tensors.items() if tensor is not None
    }


def _fill(bench: Bench, name: str) -> np.ndarray:
    """Other numbers than a kernel makes; what was there."""
    tensor = bench.tensor(name)
    was = np.array(tensor)
    tensor.set(np.full_like(was, 1 if was.dtype.kind in 'biu' else 3.25), core.CPUPlace())
    return was


if __name__ == '__main__':
    sys.exit(write_or_check(find, FRESH, sys.argv[1:]))
