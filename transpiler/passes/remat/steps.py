"""A rematerialization plan as data, and the bytes at each of its steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, List, Set, Tuple

import numpy

from transpiler.analysis.memory_profile import MemoryProfile, Touches, memory_profile
from transpiler.passes.orders.order_problem import OrderProblem
from transpiler.passes.remat.remat_problem import RematProblem


@dataclass
class Step:
    """One run of an op. `reads` and `writes` are instances; a clone writes new ones of cells that were there before."""

    op: int
    clone: bool
    reads: Tuple[int, ...]
    writes: Tuple[int, ...]


@dataclass
class RematPlan:
    """Steps in order. Instance i < number of cells is cell i itself, the others are copies: `cell_of[i]`."""

    steps: List[Step]
    cell_of: List[int]
    seconds: float = field(default=0.0)  # of all clones

    @property
    def clones(self) -> int:
        return sum(step.clone for step in self.steps)


def untouched(problem: RematProblem) -> RematPlan:
    """The plan that computes nothing again."""
    steps = [Step(op, False, cells, ()) for op, cells in enumerate(problem.memory.touches)]
    return RematPlan(steps, list(range(len(problem.cells))))


def profile(problem: RematProblem, plan: RematPlan) -> MemoryProfile:
    """Runs `plan` and counts, by instance. O(steps + touches)."""
    memory, cells = problem.memory, len(problem.cells)
    ops = numpy.array([step.op for step in plan.steps], numpy.int64)
    clones = numpy.array([step.clone for step in plan.steps], bool)
    touches = Touches([step.reads + step.writes for step in plan.steps])
    cell_of = numpy.array(plan.cell_of, numpy.int64)
    during = numpy.array(memory.transient, float)[ops]
    during[clones] = numpy.array(problem.scratch, float)[ops[clones]]
    left = (numpy.array(memory.leaves, float) - memory.collects)[ops]
    from_start, to_end = numpy.zeros((2, len(cell_of)), bool)
    from_start[:cells], to_end[:cells] = memory.from_start, memory.to_end
    return memory_profile(touches,
                          numpy.array(memory.sizes)[cell_of], from_start, to_end,
                          _pairs(memory, ops, touches, cell_of), during,
                          numpy.where(clones, 0.0, left))


def _pairs(memory: OrderProblem, ops: numpy.ndarray, touches: Touches,
           cell_of: numpy.ndarray) -> Tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """(step, source, target): the instances that each step has of the pairs of its op."""
    counts = numpy.fromiter(map(len, memory.pairs), numpy.int64, len(memory.pairs))[ops]
    steps = numpy.repeat(numpy.arange(len(ops)), counts)
    wanted = [pair for op in ops[counts > 0].tolist() for pair in memory.pairs[op]]
    sources, targets = numpy.array(wanted, numpy.int64).reshape(-1, 2).T
    among = counts[touches.step] > 0
    instances = touches.cell[among]
    keys = touches.step[among] * len(cell_of) + cell_of[instances]
    order = numpy.argsort(keys)
    keys, instances = numpy.append(keys[order], -1), numpy.append(instances[order], -1)

    def instance(cells: numpy.ndarray) -> numpy.ndarray:
        key = steps * len(cell_of) + cells
        found = numpy.searchsorted(keys[:-1], key)
        return numpy.where(keys[found] == key, instances[found], -1)

    sources, targets = instance(sources), instance(targets)
    both = (sources >= 0) & (targets >= 0)
    return steps[both], sources[both], targets[both]


def without_unread(problem: RematProblem, plan: RematPlan) -> RematPlan:
    """`plan` without clones and copies that nobody reads."""
    kept: List[Step] = []
    read: Set[int] = set()
    for step in reversed(plan.steps):
        if step.clone and read.isdisjoint(step.writes):
            continue
        writes = tuple(i for i in step.writes if i in read)
        read.update(step.reads)
        kept.append(Step(step.op, step.clone, step.reads, writes))
    seconds = sum(problem.seconds[step.op] for step in kept if step.clone)
    return RematPlan(kept[::-1], plan.cell_of, seconds)


def fixed_bytes(problem: RematProblem, free: Iterable[int]) -> numpy.ndarray:
    """Bytes at each op of the untouched program, without those of the cells of `free`."""
    found = profile(problem, untouched(problem))
    change = numpy.zeros(len(problem) + 1)
    for cell in free:
        if found.first[cell] >= 0:
            change[found.first[cell]] += problem.memory.sizes[cell]
            change[found.last[cell] +
                   (0 if cell in found.heir else 1)] -= problem.memory.sizes[cell]
    return found.bytes - numpy.cumsum(change)[:-1]


def bytes_before(problem: RematProblem, free: Iterable[int]) -> numpy.ndarray:
    """Bytes before each op of the untouched program, without those of the cells of `free`."""
    seen = profile(problem, untouched(problem))
    memory, dropped = problem.memory, set(free)
    change = numpy.zeros(len(problem) + 2)
    change[1:-1] = numpy.array(memory.leaves, float) - memory.collects
    for cell, first in enumerate(seen.first):
        if cell not in dropped and first >= 0:
            change[first + (not memory.from_start[cell])] += memory.sizes[cell]
            change[seen.last[cell] + 1] -= memory.sizes[cell]
    return numpy.cumsum(change)[:-2]


def least_levels(problem: RematProblem) -> numpy.ndarray:
    """Bytes that every plan needs at each op: what can't be dropped is there, and what the op touches, but for what it works in place
    on."""
    levels = fixed_bytes(problem, [c for c, op in enumerate(problem.producer) if op >= 0])
    for at, cells in enumerate(problem.memory.touches):
        pairs = problem.memory.pairs[at]
        # Of an operand and a result that may be one memory, one counts.
        shared = {b for _, b in pairs} | {a for a, b in pairs if problem.producer[b] < 0}
        levels[at] += sum(
            problem.memory.sizes[c] for c in cells if problem.producer[c] >= 0 and c not in shared)
    return levels


def least_peak(problem: RematProblem) -> int:
    """No plan has a lower peak."""
    return int(least_levels(problem).max()) if len(problem) else 0
