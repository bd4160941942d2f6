"""The plan that computes, before the gradients of each stage, what they need and what is to be held then."""

from __future__ import annotations

from typing import FrozenSet, Iterator, List, Set

from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.reversal import Holds, Reversal
from transpiler.passes.remat.stages import Cells, Stage, droppable, is_chain, stages
from transpiler.passes.remat.steps import RematPlan, Step, without_unread

# Stages, and units of memory, in the dynamic program: it takes stages ** 3 * units / 6.
_MOST_STAGES = 64
_UNITS = 64


def by_stages(problem: RematProblem,
              most_bytes: int,
              plans: int,
              least_bytes: int = 0) -> Iterator[RematPlan]:
    """At most so many plans by dynamic programming over stages, for limits from `most_bytes` to `least_bytes`; none if there is no chain.

    Where several values cross everywhere, stages are too coarse: ops there are dropped one by one (`evict`), which is better.
    """
    found = stages(problem, _MOST_STAGES) if plans and is_chain(problem) else []
    if len(found) < 2:
        return
    reversal = Reversal(found, problem.memory.sizes, most_bytes, _UNITS)
    free = frozenset(cell for cell, is_free in enumerate(droppable(problem)) if is_free)
    for holds in reversal.schedules(plans, least_bytes):
        yield _Holding(problem, found, holds, free).plan()


class _Holding:

    def __init__(self, problem: RematProblem, found: List[Stage], holds: Holds,
                 free: FrozenSet[int]) -> None:
        self._problem = problem
        self._stages = found
        self._holds = holds
        self._free = free
        self._current = list(range(len(problem.cells)))  # instance that is in memory, -1 if none
        self._latest = list(self._current)
        self._plan = RematPlan([], list(self._current))

    def plan(self) -> RematPlan:
        """The steps; clones that nobody reads are left out."""
        self._run(range(self._problem.boundary))
        for at in range(len(self._stages) - 1, -1, -1):
            group = range(*self._stages[at].group)
            if group:
                held = self._holds[at] | self._stages[at].saved
                for cell in self._free - held:
                    self._current[cell] = -1
                self._make(held, group[0])
                self._run(group)
        return without_unread(self._problem, self._plan)

    def _run(self, positions: range) -> None:
        for at in positions:
            reads = tuple([self._current[c] for c in self._problem.memory.touches[at]])
            self._plan.steps.append(Step(at, False, reads, ()))

    def _make(self, held: Cells, position: int) -> None:
        """Clones, in the order of the program, so that `held` is there at `position`. What can't be made is never dropped."""
        ops = self._ops_for(held, position)
        for op in sorted(ops):
            reads = tuple(self._current[c] for c in self._problem.operands[op])
            made = [c for c in self._problem.results[op] if self._current[c] < 0]
            for cell in made:
                self._latest[cell] = self._current[cell] = len(self._plan.cell_of)
                self._plan.cell_of.append(cell)
            writes = tuple(self._current[c] for c in made)
            self._plan.steps.append(Step(op, True, reads, writes))
        for op in ops:
            for cell in self._problem.results[op]:
                if cell in self._free and cell not in held:
                    self._current[cell] = -1

    def _ops_for(self, held: Cells, position: int) -> Set[int]:
        found: Set[int] = set()
        pending = list(held)
        while pending:
            cell = pending.pop()
            op = self._problem.producer[cell]
            if self._current[cell] >= 0 or op in found:
                continue
            if op < 0 or self._problem.deadline[op] < position:
                self._current[cell] = self._latest[cell]
            else:
                found.add(op)
                pending.extend(self._problem.operands[op])
        return found
