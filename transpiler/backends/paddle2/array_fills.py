"""How large what is joined of all tensors of an array is at the most: each operator that writes to it has added one with each time
that it ran."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import Dict, FrozenSet, Iterator, Mapping, Tuple

from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import runs_blocks, written_by
from transpiler.backends.paddle2.joined_arrays import JOIN
from transpiler.ir.symbols import trip

Shape = Tuple[int, ...]

_WRITES = 'write_to_array'
_LOOPS = ('while', 'while_grad')


def trip_symbols(program: framework_pb2.ProgramDesc) -> Dict[int, str]:
    """By the block that a loop runs: the symbol of its trips."""
    loops = [op for op in _ops(program) if op.type in _LOOPS]
    bodies = [a.block_idx for op in loops for a in op.attrs if a.name == 'sub_block']
    forward = {b: program.blocks[b].forward_block_idx for b in bodies}
    return {b: trip(b if forward[b] < 0 else forward[b]) for b in bodies}


def counted_arrays(program: framework_pb2.ProgramDesc) -> FrozenSet[str]:
    """Names of arrays that are empty when the program begins, and to which nothing else adds than operators that write one tensor.
    Nothing if no tensors of an array are joined."""
    if not any(op.type == JOIN for op in _ops(program)):
        return frozenset()
    kept = {v.name for block in program.blocks for v in block.vars if v.persistable}
    written: Dict[str, bool] = {}
    for op in _ops(program):
        if runs_blocks(op):
            continue  # what it runs is gone through, too
        for name in written_by(op):
            written[name] = written.get(name, True) and op.type == _WRITES
    return frozenset(name for name, alone in written.items() if alone and name not in kept)


def _ops(program: framework_pb2.ProgramDesc) -> Iterator[framework_pb2.OpDesc]:
    return (op for block in program.blocks for op in block.ops)


class FilledArrays:
    """What has been written to arrays so far, while the operators of a program are gone through in order.

    Args:
        counted: what `counted_arrays` gives.
        trips: how often the block of a loop runs.
    """

    def __init__(self, counted: FrozenSet[str], trips: Mapping[int, int]) -> None:
        self._counted = counted
        self.trips = trips
        self._runs = [1]  # of the block that is gone through, and of those around it
        self._added: Dict[str, Dict[int, Tuple[int, Shape]]] = {}  # times and shapes, by op

    @contextmanager
    def trips_of(self, block: int) -> Iterator[None]:
        """While `block` is gone through."""
        self._runs.append(self.trips.get(block, 1))
        yield
        self._runs.pop()

    def follow(self, op: core.OpDesc, kind: str, block: core.BlockDesc) -> None:
        """`op`, of this kind, has run."""
        if kind == _WRITES:
            shape = tuple(block.find_var_recursive(op.input('X')[0].encode()).shape())
            added = self._added.setdefault(op.output('Out')[0], {})
            added[id(op)] = math.prod(
                self._runs), shape  # who goes through a loop again counts it once

    def stacked(self, op: core.OpDesc, kind: str, shape: Shape) -> Shape:
        """`shape` of the result of `op`, its open dim as large as it can be; as it is where nobody knows."""
        if kind != JOIN or shape.count(-1) != 1:
            return shape
        array, axis = op.input('X')[0], shape.index(-1)
        parts = [(times, 1 if op.attr('use_stack') else part[axis])
                 for times, part in self._added.get(array, {}).values()]
        if array not in self._counted or not parts or any(size < 0 for _, size in parts):
            return shape
        return tuple(sum(times * size for times, size in parts) if d < 0 else d for d in shape)
