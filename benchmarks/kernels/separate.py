"""Finds products whose results can be made one by one: `python -m benchmarks.kernels.separate` writes the table anew.

Each kernel that multiplies to make several gradients runs once for all of them, then for each alone, the names of the others
empty. Where the bytes are those of the first run, one operand after the other is emptied as a RELEASE op does it, so that the shape
alone is left: what the kernel does without, even where the gradient has the operand's own name, is not read for that gradient.
A kind is kept if that holds in all runs, at all sizes. `--check` compares with the table that is kept, and exits with 1 where they differ.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import paddle
from paddle.base import core
from paddle.base.proto import framework_pb2

from benchmarks.kernels.alone import Bench
from benchmarks.kernels.observing import ready
from benchmarks.kernels.recipes import Recipe
from benchmarks.kernels.slots import found_in, write_or_check
from transpiler.backends.paddle2.registry import EMPTY_NAME, SEPARATE, is_channel_last

_SIZES = range(4)
# Each gradient is a product of its own: to make one after the other takes no longer. Those of transposed convolutions share the
# columns of the gradient that they are given, those of recurrent layers all steps.
_PRODUCTS = frozenset({
    'bmm_grad', 'conv2d_grad', 'conv3d_grad', 'depthwise_conv2d_grad', 'matmul_grad',
    'matmul_v2_grad'
})
_NOTHING = 'nothing'
Alone = Mapping[str,
                FrozenSet[str]]  # by slot of a result, slots of operands that are not read for it


def find(recipes: Mapping[str, Recipe]) -> Dict[str, Dict[str, List[str]]]:
    """By kind of operator, and by slot of a result, the slots of operands of which it needs the shape alone."""
    runs: Dict[str, List[Alone]] = {}
    for kind, alone in found_in(recipes, _of_recipe):
        runs.setdefault(kind, []).append(alone)
    met = {kind: _in_all(found) for kind, found in sorted(runs.items())}
    return {kind: alone for kind, alone in met.items() if any(alone.values())}


def _in_all(runs: List[Alone]) -> Dict[str, List[str]]:
    """What each of `runs` found; nothing if there was one that could not be taken apart."""
    slots = sorted({slot for run in runs for slot in run}) if all(runs) else ()
    return {
        slot: sorted(frozenset.intersection(*(run[slot] for run in runs if slot in run)))
        for slot in slots
    }


def _of_recipe(recipe: Recipe) -> Iterator[Tuple[str, Alone]]:
    for size in _SIZES:
        with ready(recipe, size) as (bench, program):
            block = program.global_block()
            for op in block.ops:
                asked = [slot for slot in op.output_names if _name(op, slot)]
                if len(asked) > 1 and _may_be_separate(block, op):
                    yield op.type, _alone(bench, block, op, asked)
                bench.run_op(block, op)


def _may_be_separate(block: Any, op: Any) -> bool:
    """A product for each gradient, of operands in the layout that the kernel works in: matrices, no vectors, and two of them."""
    desc = framework_pb2.OpDesc.FromString(op.desc.serialize_to_string())
    names = op.input_arg_names
    plain = len(set(names)) == len(names) and min(len(block.var(n).shape) for n in names) > 1
    return op.type in _PRODUCTS and plain and not is_channel_last(desc)


def _name(op: Any, slot: str) -> Optional[str]:
    names = [name for name in op.output(slot) if name != EMPTY_NAME]
    return names[0] if len(names) == 1 else None


def _alone(bench: Bench, block: Any, op: Any, asked: List[str]) -> Alone:
    """What is not read for each result alone; nothing if it is another then, or if the kernel refuses."""
    whole = _made(bench, block, op, asked)
    found = {}
    for slot in asked:
        others = {other: op.output(other) for other in asked if other != slot}
        for other in others:
            op.desc.set_output(other, [EMPTY_NAME])
        try:
            if _made(bench, block, op, [slot]) != {slot: whole[slot]}:
                return {}
            found[slot] = frozenset(_unread(bench, block, op, slot, whole[slot]))
        finally:
            for other, names in others.items():
                op.desc.set_output(other, names)
    return found


def _unread(bench: Bench, block: Any, op: Any, slot: str, expected: bytes) -> Iterable[str]:
    for operand in op.input_names:
        names = op.input(operand)
        if len(names) != 1 or bench.tensor(names[0]) is None:
            continue
        held = np.array(bench.tensor(names[0]))
        _empty(bench, block.var(names[0]))
        try:
            if (_made(bench, block, op, [slot]) == {
                    slot: expected
            } and _over_operand(bench, block, op, slot, names[0]) in (expected, None)):
                yield operand
        except Exception:  # Paddle's own have no common type; the kernel asked for what is gone
            pass
        finally:
            bench.tensor(names[0]).set(held, core.CPUPlace())


def _over_operand(bench: Bench, block: Any, op: Any, slot: str, operand: str) -> Optional[bytes]:
    """What it makes under the name of `operand`, as plans may have it where the two look alike; None where they do not."""
    result = _name(op, slot)
    if bench.tensor(operand).shape() != bench.tensor(result).shape():
        return None
    op.desc.set_output(slot, [operand])
    try:
        bench.run_op(block, op)
        return np.array(bench.tensor(operand)).tobytes()
    finally:
        op.desc.set_output(slot, [result])


def _made(bench: Bench, block: Any, op: Any, slots: Iterable[str]) -> Dict[str, bytes]:
    """The bytes of these results, which had other numbers in them before."""
    names = {slot: _name(op, slot) for slot in slots}
    for name in names.values():
        tensor = bench.tensor(name)
        if tensor is not None:
            tensor.set(np.full_like(np.array(tensor), 3.25), core.CPUPlace())
    bench.run_op(block, op)
    return {slot: np.array(bench.tensor(name)).tobytes() for slot, name in names.items()}


def _empty(bench: Bench, variable: Any) -> None:
    """Leaves the shape and the type of `variable`, and no memory."""
    program = paddle.static.Program()
    block = program.global_block()
    for name, shape in ((variable.name, variable.shape), (_NOTHING, [0])):
        block.create_var(name=name, shape=shape, dtype=variable.dtype, persistable=True)
    block.append_op(type='fill_constant',
                    outputs={'Out': [_NOTHING]},
                    attrs={
                        'shape': [0],
                        'dtype': variable.dtype,
                        'value': 0.0
                    })
    block.append_op(type='share_buffer',
                    inputs={'X': [_NOTHING]},
                    outputs={
                        'Out': [variable.name],
                        'XOut': [_NOTHING]
                    },
                    attrs={'share_dims_and_dtype': [False]})
    with paddle.static.scope_guard(bench.scope):
        paddle.static.Executor(paddle.CPUPlace()).run(program)


if __name__ == '__main__':
    sys.exit(write_or_check(find, SEPARATE, sys.argv[1:]))
