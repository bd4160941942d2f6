"""The judge of orders: runs one op after the other and counts bytes, as the Timeline does for a whole graph."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from transpiler.passes.orders.problem import Problem


class Simulator:
    """Bytes while an order is being built, one op at a time. Agrees with the Timeline of the collecting runtime."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.remaining = [len(users) for users in problem.users]
        self.exists = list(problem.from_start)
        self.live = sum(s for s, there in zip(problem.sizes, problem.from_start) if there)
        self.peak = 0

    def cost(self, op: int) -> Tuple[int, int]:
        """Bytes that running `op` now adds while it runs, and those that it adds for good (often below zero)."""
        problem, exists, remaining = self._problem, self.exists, self.remaining
        sizes, to_end = problem.sizes, problem.to_end
        starts = ends = 0
        for cell in problem.touches[op]:
            if not exists[cell]:
                starts += sizes[cell]
            if remaining[cell] == 1 and not to_end[cell]:
                ends += sizes[cell]
        if problem.pairs[op]:
            shared = self._shared(op)
            starts, ends = starts - shared, ends - shared
        kept = problem.leaves[op] - problem.collects[op]
        return starts + problem.transient[op], starts - ends + kept

    def run(self, op: int) -> None:
        during, added = self.cost(op)
        if self.live + during > self.peak:
            self.peak = self.live + during
        self.live += added
        self.touch(op)

    def touch(self, op: int) -> List[int]:
        """As `run`, without counting. Returns the cells that come into being."""
        exists, remaining = self.exists, self.remaining
        born: List[int] = []
        for cell in self._problem.touches[op]:
            remaining[cell] -= 1
            if not exists[cell]:
                exists[cell] = True
                born.append(cell)
        return born

    def _shared(self, op: int) -> int:
        """Bytes of results that take over the allocation of an operand at `op`."""
        given: List[int] = []
        taken: List[int] = []
        for source, target in self._problem.pairs[op]:
            if (self.remaining[source] == 1 and not self.exists[target] and source not in given and
                    target not in taken):
                given.append(source)
                taken.append(target)
        return sum(self._problem.sizes[target] for target in taken)


def peak_bytes(problem: Problem, order: Sequence[int]) -> int:
    """Bytes at the peak of `order`, above what exists outside of the region."""
    simulator = Simulator(problem)
    for op in order:
        simulator.run(op)
    return simulator.peak


def profile(problem: Problem, order: Sequence[int]) -> List[int]:
    """Bytes while each op of `order` runs."""
    simulator, found = Simulator(problem), []
    for op in order:
        found.append(simulator.live + simulator.cost(op)[0])
        simulator.run(op)
    return found
