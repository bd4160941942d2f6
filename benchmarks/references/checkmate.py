"""Checkmate's program for a `RematProblem`: which values are in memory before each gradient, and what runs again there.

Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization" (MLSys 2020), in its partitioned form: a
stage for each op of the backward part, in which each op that may be cloned can run once more, in the order of the program, before the
op itself does. S says what is there when a stage begins, R what runs again in it, FREE what goes after which run, and U sums up the
bytes. What is counted is what our judge counts (`profile`): sizes and seconds are the problem's, kernels' own memory, what works
in place, results that nobody reads, and the forward part's own peak included. Left out as in our search: gradients do not run
again, and nothing does within the forward part.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

from benchmarks.references.linear import Linear, Solution, Term
from benchmarks.references.schedules import Stages, plan_of_stages
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import RematPlan, fixed_bytes

NANOSECONDS = 1e9
Pair = Tuple[int, int]


def free_cells(problem: RematProblem) -> List[int]:
    """Cells that clones make, or may read after their last use: all others are there as in the program as it is."""
    made = {cell for cell, op in enumerate(problem.producer) if op >= 0}
    read = {cell for cells in problem.operands for cell in cells}
    return sorted(cell for cell in made | read if not problem.memory.to_end[cell])


def clonable(problem: RematProblem) -> List[int]:
    return [op for op, cells in enumerate(problem.results) if cells]


def stages(problem: RematProblem) -> range:
    return range(problem.boundary, len(problem))


def between(problem: RematProblem, free: Iterable[int]) -> List[int]:
    """Bytes before each op, without the cells of `free`."""
    memory, others = problem.memory, set(range(len(problem.cells))) - set(free)
    change = [0] * (len(problem) + 2)
    for cell in others:
        users = memory.users[cell]
        if not users and not memory.from_start[cell]:
            continue
        first = 0 if memory.from_start[cell] else users[0] + 1
        last = len(problem) if memory.to_end[cell] else max(users, default=0)
        change[first] += memory.sizes[cell]
        change[last + 1] -= memory.sizes[cell]
    for at, (leaves, collects) in enumerate(zip(memory.leaves, memory.collects)):
        change[at + 1] += leaves - collects
    total, found = 0, []
    for each in change[:len(problem)]:
        total += each
        found.append(total)
    return found


@dataclass
class Checkmate:
    """The linear program of one problem and one limit in bytes. `there[stage, cell]` is S, `again[stage, op]` R.

    Bytes are counted in `unit`, which divides all sizes.
    """
    problem: RematProblem
    limit: int
    linear: Linear = field(default_factory=Linear)
    there: Dict[Pair, int] = field(default_factory=dict)
    again: Dict[Pair, int] = field(default_factory=dict)
    made: Dict[Pair, int] = field(
        default_factory=dict)  # the cell is new: R of its op, if that makes no other

    def __post_init__(self) -> None:
        problem, memory = self.problem, self.problem.memory
        self.free, self.ops = free_cells(problem), clonable(problem)
        self._is_free = set(self.free)
        self.unit = reduce(math.gcd, [*memory.sizes, *problem.scratch], 0) or 1
        self._fixed = [int(each) for each in fixed_bytes(problem, self.free)]
        self._between = between(problem, self.free)
        self._users: Dict[int, List[int]] = {cell: [] for cell in self.free}
        for op in self.ops:
            for cell in dict.fromkeys((*problem.operands[op], *problem.results[op])):
                if cell in self._is_free:
                    self._users[cell].append(op)
        for stage in stages(problem):
            self._declare(stage)
        self._forward()
        for stage in stages(problem):
            self._flow(stage)
            self._bytes(stage)

    @property
    def size(self) -> int:
        return len(self.linear.upper)

    def solution(self, solved: Solution) -> Stages:
        """S and R of a solution in whole numbers."""
        held = {pair for pair, v in self.there.items() if solved.values[v] > 0.5}
        run = {pair for pair, v in self.again.items() if solved.values[v] > 0.5}
        return Stages(held, run)

    def rounded(self, solved: Solution, threshold: float) -> RematPlan:
        """Of a solution in fractions what is there for at least `threshold` of it, and the least that must run again for that: the
        paper's approximation in two phases."""
        held = {pair for pair, v in self.there.items() if solved.values[v] >= threshold}
        return plan_of_stages(self.problem, fewest_runs(self.problem, self.free, held))

    # -- rows -------------------------------------------------------------------------------------

    def _declare(self, stage: int) -> None:
        problem, linear = self.problem, self.linear
        for cell in self.free:
            if problem.memory.users[cell] and problem.memory.users[cell][0] < problem.boundary:
                self.there[stage, cell] = linear.variable()
        for op in self.ops:
            if problem.deadline[op] >= stage:
                cost = round(problem.seconds[op] * NANOSECONDS)
                self.again[stage, op] = linear.variable(cost=cost)
                mine = [c for c in problem.results[op] if c in self._is_free]
                for cell in mine:
                    self.made[stage, cell] = self.again[stage, op] if len(
                        problem.results[op]) == 1 else linear.variable()

    def _present(self, stage: int, cell: int) -> List[Term]:
        """Whether the cell is there at some time of the stage, as terms of a sum."""
        return [
            (1, table[stage, cell]) for table in (self.there, self.made) if (stage, cell) in table
        ]

    def _flow(self, stage: int) -> None:
        """What is read is there; what is there was there before, or is made."""
        problem, add = self.problem, self.linear.at_most
        for op in self.ops:
            run = self.again.get((stage, op))
            if run is None:
                continue
            for cell in problem.operands[op]:
                if cell in self._is_free:
                    add([(1, run)] + _minus(self._present(stage, cell)), 0)
            for cell in problem.results[op]:
                new = self.made.get((stage, cell))
                if new is not None:
                    add([(1, new), (-1, run)] if new != run else [], 0)
                    add([(1, new), (1, self.there[stage, cell])], 1)
        for cell in problem.memory.touches[stage]:
            if cell in self._is_free:
                add(_minus(self._present(stage, cell)), -1)
        for cell in self.free:
            if (stage + 1, cell) in self.there:
                after = self.there[stage + 1, cell]
                add([(1, after)] + _minus(self._present(stage, cell)), 0)

    def _bytes(self, stage: int) -> None:
        """No run of the stage, nor its op, needs more than the limit."""
        problem, linear = self.problem, self.linear
        there: List[Term] = [
            (self._units(c), self.there[stage, c]) for c in self.free if (stage, c) in self.there
        ]
        room = self._room(self._between[stage])
        for op in self.ops:
            run = self.again.get((stage, op))
            if run is None:
                continue
            touched = [c for c in self._users_of(op) if (stage, c) in self.there]
            goes = {
                c: self._freed(stage, c, op, run)
                for c in touched
                if c not in problem.memory.touches[stage]
            }
            new = [(self._units(c), self.made[stage, c])
                   for c in problem.results[op]
                   if (stage, c) in self.made]
            # Of all that it makes what is there already is made for nothing, and goes at once.
            spare = [(self._units(c), run) for c in problem.results[op] if c in self._is_free]
            spare.append((problem.scratch[op] // self.unit, run))
            spare += [(-units, v) for units, v in new]
            place = [(-self._units(a), v) for a, v in self._in_place(stage, op, goes)]
            linear.at_most(there + new + spare + place, room)
            total = linear.variable(self.limit // self.unit + 1)
            # Less may be freed than could be: U is at least what is there.
            linear.at_most(
                there + new + [(-self._units(c), v) for c, v in goes.items()] + [(-1, total)], 0)
            there = [(1, total)]
        self._original(stage, there)

    def _original(self, stage: int, there: List[Term]) -> None:
        memory = self.problem.memory
        goes = {
            c: self._freed(stage, c, stage, None)
            for c in memory.touches[stage]
            if (stage, c) in self.there
        }
        place = [(-self._units(a), goes[a]) for a in _givers(memory.pairs[stage], goes)]
        self.linear.at_most(there + place, self._room(self._fixed[stage]))

    def _freed(self, stage: int, cell: int, op: int, run: Optional[int]) -> int:
        """FREE: the cell goes after this run, as nothing reads it later in the stage and it is not there in the next."""
        linear = self.linear
        free = linear.variable()
        if run is not None:
            linear.at_most([(1, free), (-1, run)], 0)
        linear.at_most([(1, free)] + _minus(self._present(stage, cell)), 0)
        if (stage + 1, cell) in self.there:
            linear.at_most([(1, free), (1, self.there[stage + 1, cell])], 1)
        for other in self._users[cell] if run is not None else ():
            if other > op and (stage, other) in self.again:
                linear.at_most([(1, free), (1, self.again[stage, other])], 1)
        return free

    def _in_place(self, stage: int, op: int, goes: Dict[int, int]) -> List[Pair]:
        """(cell that gives its memory up, variable: it does) for the pairs of a clone."""
        found, taken = [], set()  # type: List[Pair], Set[int]
        for a, b in self.problem.memory.pairs[op]:
            if a in goes and (stage, b) in self.made and not {a, b} & taken:
                taken |= {a, b}
                both = self.linear.variable()
                self.linear.at_most([(1, both), (-1, goes[a])], 0)
                self.linear.at_most([(1, both), (-1, self.made[stage, b])], 0)
                found.append((a, both))
        return found

    def _forward(self) -> None:
        """The program's own run: a cell is there to its last use in the forward part, and from then on if the first stage has it."""
        memory, boundary = self.problem.memory, self.problem.boundary
        first = {c: memory.users[c][0] for c in self.free if (boundary, c) in self.there}
        last = {c: max(u for u in memory.users[c] if u < boundary) for c in first}
        for at in range(boundary):
            terms = [(self._units(c), self.there[boundary, c]) for c in first if last[c] < at]
            right = self._room(self._fixed[at]) - sum(
                self._units(c) for c in first if first[c] <= at <= last[c])
            for a in _givers(memory.pairs[at], {c for c in first if last[c] == at}):
                terms.append((self._units(a), self.there[boundary, a]))
                right += self._units(a)
            self.linear.at_most(terms, right)

    def _users_of(self, op: int) -> List[int]:
        cells = dict.fromkeys((*self.problem.operands[op], *self.problem.results[op]))
        return [c for c in cells if c in self._is_free]

    def _units(self, cell: int) -> int:
        return self.problem.memory.sizes[cell] // self.unit

    def _room(self, taken: int) -> int:
        return (self.limit - taken) // self.unit


def _minus(terms: Sequence[Term]) -> List[Term]:
    return [(-coefficient, variable) for coefficient, variable in terms]


def _givers(pairs: Iterable[Pair], dying: Iterable[int]) -> List[int]:
    """The cells of `dying` that give their memory to a result, each cell once."""
    found, taken, going = [], set(), set(dying)  # type: List[int], Set[int], Set[int]
    for a, b in pairs:
        if a in going and not {a, b} & taken:
            taken |= {a, b}
            found.append(a)
    return found


def fewest_runs(problem: RematProblem, free: Sequence[int], held: Set[Pair]) -> Stages:
    """`held` with the least that must run again in each stage so that it, and what the stages' ops read, is there."""
    is_free = set(free)
    whole, run = set(held), set()  # type: Set[Pair], Set[Pair]
    # What cannot be made again any more is never given up.
    for stage in reversed(stages(problem)):
        wanted = [c for c in problem.memory.touches[stage] if c in is_free]
        wanted += [c for c in free if (stage + 1, c) in whole]
        while wanted:
            cell = wanted.pop()
            op = problem.producer[cell]
            if (stage, cell) in whole or (stage, op) in run:
                continue
            if op < 0 or problem.deadline[op] < stage:
                whole.add((stage, cell))
                continue
            run.add((stage, op))
            wanted.extend(c for c in problem.operands[op] if c in is_free)
    return Stages(whole, run)
