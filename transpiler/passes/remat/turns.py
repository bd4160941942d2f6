"""What a simulation of a program needs of it again and again, worked out once: who is born, used next and gone, op by op.

A simulation that drops values under a limit is the untouched run up to the first op that does not fit: `Turns` knows the
state there for every limit, so that no simulation has to begin at the beginning.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from dataclasses import dataclass
from typing import Dict, List, Tuple

import numpy

from transpiler.analysis.memory_profile import turnover
from transpiler.passes.orders.simulator import bytes_at_start
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import Step, untouched

NEVER = 1 << 60
Offers = List[Tuple[float, int]]  # (seconds a byte and unit of distance, cell)


@dataclass
class Start:
    """The untouched run up to position `at`."""

    at: int
    live: int
    highest: int
    current: List[int]
    following: List[int]
    offers: Offers  # a heap


class Turns:
    """By op: `born` and `dying` cells, bytes `needed` to run it, and `turns`.

    `turns[op]` are (cell, next use, rate) of the cells that it touches and that may be made again: the rate is the
    seconds that it takes to have the cell again, for its bytes and the distance of the next use to this `power`. `first`
    and `last` are the cells' first and last uses, `readers` the cells that are made again from each.
    """

    def __init__(self, problem: RematProblem, power: float) -> None:
        memory = problem.memory
        self.power = power
        self.steps: List[Step] = untouched(problem).steps
        self.readers = _readers(problem)
        self.problem = problem
        self._offsets = numpy.cumsum([0] + list(map(len, memory.touches)))
        self._cells = numpy.fromiter(itertools.chain.from_iterable(memory.touches), numpy.int64)
        self._ops = numpy.repeat(numpy.arange(len(problem)), numpy.diff(self._offsets))
        self._following = self._next_uses()
        self._rates = self._rated(power)
        self._first, self._last = self._ends()
        self.first, self.last = self._first.tolist(), self._last.tolist()
        self._find_turns()
        self._find_levels()

    def _next_uses(self) -> numpy.ndarray:
        following = numpy.full(len(self._cells), NEVER)
        order = numpy.argsort(self._cells, kind='stable')
        same = self._cells[order[1:]] == self._cells[order[:-1]]
        following[order[:-1][same]] = self._ops[order[1:][same]]
        return following

    def _rated(self, power: float) -> numpy.ndarray:
        problem = self.problem
        seconds = numpy.array([problem.seconds[op] if op >= 0 else 0.0 for op in problem.producer])
        sizes = numpy.maximum(1, numpy.array(problem.memory.sizes, numpy.int64))
        distance = numpy.maximum(1, self._following - self._ops).astype(float)
        return seconds[self._cells] / (sizes[self._cells] * distance**power)

    def _ends(self) -> Tuple[numpy.ndarray, numpy.ndarray]:
        """First and last use of each cell; of equal indices numpy keeps the last assignment."""
        cells = len(self.problem.cells)
        first, last = numpy.full(cells, NEVER), numpy.full(cells, -1)
        first[self._cells[::-1]] = self._ops[::-1]
        last[self._cells] = self._ops
        return first, last

    def _find_turns(self) -> None:
        ops = range(len(self.problem))
        memory = self.problem.memory
        makeable = numpy.array(self.problem.producer, numpy.int64) >= 0
        self._makeable = makeable[self._cells]
        self._kept = numpy.array(memory.to_end, bool)
        self._there = numpy.array(memory.from_start, bool)
        starts = (self._ops == self._first[self._cells]) & ~self._there[self._cells]
        ends = (self._ops == self._last[self._cells]) & ~self._kept[self._cells]
        rows = list(zip(self._cells.tolist(), self._following.tolist(), self._rates.tolist()))
        self.turns: List[List[Tuple[int, int, float]]] = [[] for _ in ops]
        for i in numpy.flatnonzero(self._makeable).tolist():
            self.turns[int(self._ops[i])].append(rows[i])
        self.born: List[List[int]] = [[] for _ in ops]
        self.dying: List[List[int]] = [[] for _ in ops]
        for lists, chosen in ((self.born, starts), (self.dying, ends)):
            for op, cell in zip(self._ops[chosen].tolist(), self._cells[chosen].tolist()):
                lists[op].append(cell)

    def _find_levels(self) -> None:
        """Bytes at each op, all that it needs included, and those that are there before it."""
        memory = self.problem.memory
        turned = [
            turnover(memory.sizes, *cells) for cells in zip(self.born, self.dying, memory.pairs)
        ]
        left = map(operator.sub, memory.leaves, memory.collects)
        added = [made - freed + kept for (made, freed), kept in zip(turned, left)]
        self.needed = [made + during for (made, _), during in zip(turned, memory.transient)]
        self._lives = list(itertools.accumulate(added, initial=bytes_at_start(memory)))
        self._levels = list(map(operator.add, self._lives, self.needed))
        self._highest = list(itertools.accumulate(self._levels, max))

    def start(self, limit: float) -> Start:
        """The run up to the first op that needs more than `limit` bytes."""
        above = numpy.flatnonzero(numpy.array(self._levels, float) > limit)
        at = int(above[0]) if len(above) else len(self.problem)
        return self.until(at)

    def until(self, at: int) -> Start:
        """The run of the first `at` ops."""
        done = int(self._offsets[at])
        following = self._first.copy()
        following[self._cells[:done]] = self._following[:done]
        cells = numpy.arange(len(self.problem.cells))
        alive = (self._there | (self._first < at)) & (self._kept | (self._last >= at) |
                                                      (self._last < 0))
        offered = self._makeable[:done] & (self._following[:done] < NEVER)
        offers = list(
            zip(self._rates[:done][offered].tolist(), self._cells[:done][offered].tolist()))
        heapq.heapify(offers)
        return Start(at, self._lives[at], self._highest[at - 1] if at else 0,
                     numpy.where(alive, cells, -1).tolist(), following.tolist(), offers)


def _readers(problem: RematProblem) -> Dict[int, List[int]]:
    """Cells that are made again from a cell, by cell."""
    readers: Dict[int, List[int]] = {}
    for op, cells in enumerate(problem.results):
        for operand in problem.operands[op] if cells else ():
            readers.setdefault(operand, []).extend(cells)
    return readers
