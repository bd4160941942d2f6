"""The forward part cut into stages where little crosses, and the backward part into what reads from each.

A chain has a stage for each op. Blocks that are repeated are cut where the fewest bytes go on from one to the next, so that
they follow one another as the steps of a chain do, each with costs and sizes of its own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Collection, Dict, FrozenSet, Iterable, List, Sequence, Tuple

import numpy

from transpiler.analysis.memory_profile import turnover
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import bytes_before, fixed_bytes

Cells = FrozenSet[int]
_SMALL = 64  # times the size, and a value is still below the largest


@dataclass(frozen=True)
class Stage:
    """One stretch of the forward part, and the gradients that read from it. Times are seconds, sizes bytes.

    `crossing` are the cells that later stages are made from, `saved` those that the gradients read; `group` are the positions
    of these, from the first to behind the last. From what crosses the cut before it, it takes `on` to make what crosses the
    one behind, `whole` to make what is saved too, and `own` to make only what is saved. A run of its clones needs up to
    `sweep` at once, or `sweep_given` beside what crosses the cut before; the gradients need up to `held` with what they read,
    and the program's own run up to `first`. `before` is there in any case where the gradients begin.
    """

    crossing: Cells
    saved: Cells
    group: Tuple[int, int]
    on: float
    whole: float
    own: float
    sweep: float
    sweep_given: float
    held: float
    first: float
    before: float


def stages(problem: RematProblem, most: int) -> List[Stage]:
    """At most so many stages, in the order of the forward part; none where nothing can be computed again."""
    if not 0 < problem.boundary < len(problem) or not any(problem.results):
        return []
    return _Cutter(problem, most).stages()


def is_chain(problem: RematProblem) -> bool:
    """Whether no op of the forward part is made again from more than one value that earlier ones made; small ones don't count."""
    if not problem.boundary:
        return False
    free = droppable(problem)
    largest = max((size for size, is_free in zip(problem.memory.sizes, free) if is_free), default=0)
    change = [0] * (problem.boundary + 1)
    for cell, last in last_readers(problem, free).items():
        if problem.memory.sizes[cell] * _SMALL > largest:
            change[problem.producer[cell]] += 1
            change[last] -= 1
    return largest > 0 and max(itertools.accumulate(change)) <= 1


def last_readers(problem: RematProblem, free: Sequence[bool]) -> Dict[int, int]:
    """The last op of the forward part that is cloned from a cell, by cell that may be dropped."""
    return {
        operand: op for op, cells in enumerate(problem.results[:problem.boundary]) if cells
        for operand in problem.operands[op] if free[operand]
    }


def droppable(problem: RematProblem) -> List[bool]:
    """By cell, whether it may be dropped and made again."""
    return [op >= 0 and not end for op, end in zip(problem.producer, problem.memory.to_end)]


class _Cutter:

    def __init__(self, problem: RematProblem, most: int) -> None:
        self._problem = problem
        self._sizes = problem.memory.sizes
        self._free = droppable(problem)
        free = [cell for cell, is_free in enumerate(self._free) if is_free]
        self._fixed = fixed_bytes(problem, free)
        self._between = bytes_before(problem, free)
        self._until = last_readers(problem, self._free)
        self._ends: Dict[int, List[int]] = {}
        for cell, op in self._until.items():
            self._ends.setdefault(op, []).append(cell)
        self._widths = self._bytes_across()
        self._cuts = self._chosen(most)

    def stages(self) -> List[Stage]:
        crossing = [self._across(cut) for cut in self._cuts]
        groups = self._groups()
        found = []
        for at, cut in enumerate(self._cuts):
            start = self._cuts[at - 1] + 1 if at else 0
            before = crossing[at - 1] if at else frozenset()
            found.append(self._stage(range(start, cut + 1), before, crossing[at], groups[at]))
        return found

    def _bytes_across(self) -> List[int]:
        """Bytes that later ops are cloned from, behind each op of the forward part."""
        change = [0] * (self._problem.boundary + 1)
        for cell, last in self._until.items():
            change[self._problem.producer[cell]] += self._sizes[cell]
            change[last] -= self._sizes[cell]
        return numpy.cumsum(change).tolist()[:-1]

    def _chosen(self, most: int) -> List[int]:
        """Where the fewest bytes cross, in each of so many windows; behind the last op too."""
        ops = [at for at, cells in enumerate(self._problem.results) if cells]
        edges = numpy.linspace(0, len(ops), min(most, len(ops)) + 1).astype(int).tolist()
        windows = (ops[start:end] for start, end in zip(edges, edges[1:]))
        cuts = [
            min(window, key=lambda at: (self._widths[at], -self._problem.seconds[at], -at))
            for window in windows
        ]
        return [*cuts[:-1], self._problem.boundary - 1]

    def _across(self, cut: int) -> Cells:
        return frozenset(
            c for c, last in self._until.items() if self._problem.producer[c] <= cut < last)

    def _groups(self) -> List[Tuple[int, int]]:
        """Positions of the gradients of each stage: those that read from it, and from none before that was not read from yet."""
        stage_of = numpy.searchsorted(self._cuts, numpy.arange(self._problem.boundary)).tolist()
        pointer = len(self._cuts) - 1
        starts = [len(self._problem)] * len(self._cuts)
        starts[pointer] = self._problem.boundary
        for at in range(self._problem.boundary, len(self._problem)):
            read = [
                stage_of[self._problem.producer[c]]
                for c in self._problem.memory.touches[at]
                if self._free[c]
            ]
            if read and max(read) < pointer:
                pointer = max(read)
                starts[pointer] = at
        ends = [len(self._problem)] * len(self._cuts)
        following = len(self._problem)
        for stage, start in enumerate(starts):
            if start < len(self._problem):
                ends[stage], following = following, start
        return list(zip(starts, ends))

    def _stage(self, ops: range, given: Cells, crossing: Cells, group: Tuple[int, int]) -> Stage:
        saved = frozenset(
            c for at in range(*group) for c in self._problem.memory.touches[at] if self._free[c])
        on = self._made_from(crossing, given)
        sweep, sweep_given = self._levels(ops, given)
        return Stage(crossing, saved, group, self._seconds(on),
                     self._seconds(self._made_from(crossing | saved, given)),
                     self._seconds(self._made_from(saved, given)), sweep, sweep_given,
                     self._needed(group, saved),
                     max(self._fixed[at] + self._level(at, frozenset()) for at in ops),
                     self._between[min(group[0],
                                       len(self._problem) - 1)])

    def _made_from(self, wanted: Cells, given: Cells) -> List[int]:
        """Ops that make `wanted` again from `given`, and from what is never dropped."""
        found: Dict[int, None] = {}
        pending = [c for c in wanted if c not in given]
        while pending:
            op = self._problem.producer[pending.pop()]
            if op not in found:
                found[op] = None
                pending.extend(
                    c for c in self._problem.operands[op] if self._free[c] and c not in given)
        return list(found)

    def _seconds(self, ops: Iterable[int]) -> float:
        return sum(self._problem.seconds[op] for op in ops)

    def _levels(self, ops: range, given: Cells) -> Tuple[float, float]:
        """The most that clones of `ops` need at once, with and without `given`."""
        run = [at for at in ops if self._problem.results[at]]
        return (max((self._level(at, frozenset()) for at in run),
                    default=0.0), max((self._level(at, given) for at in run), default=0.0))

    def _level(self, at: int, given: Collection[int]) -> float:
        """Bytes that are needed while a clone of the op runs on what earlier ones made; `given` are counted elsewhere."""
        problem = self._problem
        there = self._widths[at - 1] if at else 0
        there -= sum(self._sizes[c] for c in given if self._until[c] >= at)
        dying = [c for c in self._ends.get(at, ()) if c not in given]
        made, _ = turnover(self._sizes, problem.results[at], dying, problem.memory.pairs[at])
        return there + made + problem.scratch[at]

    def _needed(self, group: Tuple[int, int], saved: Cells) -> float:
        """The most that the gradients of `group` need with what they read of `saved`."""
        last: Dict[int, int] = {}
        for at in range(*group):
            last.update((c, at) for c in self._problem.memory.touches[at] if c in saved)
        change = numpy.zeros(max(0, group[1] - group[0]) + 1)
        for cell, at in last.items():
            change[0] += self._sizes[cell]
            change[at - group[0] + 1] -= self._sizes[cell]
        return float(max(numpy.cumsum(change)[:-1] + self._fixed[slice(*group)], default=0.0))
