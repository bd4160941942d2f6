"""Parameter updates ahead of where an order has them, wherever they fit below its peak."""

from __future__ import annotations

import heapq
from itertools import accumulate
from typing import Dict, List, Sequence, Tuple

from transpiler.passes.orders.heuristics import update_chains
from transpiler.passes.orders.order_problem import Order, OrderProblem
from transpiler.passes.orders.simulator import Simulator, bytes_at_start, peak_bytes


def updates_where_they_fit(problem: OrderProblem, order: Sequence[int]) -> Order:
    """`order`, but an update runs, with what is made for it alone, as soon as it can and what it needs fits below the peak of `order`: it
    ends the life of its gradient. Never above that peak.

    What chooses orders by what is alive next may let small gradients wait behind large ones, where an update is more than one op.
    """
    early = _Early(problem, order)
    return early.run() if early.chains else list(order)


class _Early:

    def __init__(self, problem: OrderProblem, order: Sequence[int]) -> None:
        self._problem, self._given = problem, order
        self._most = peak_bytes(problem, order)
        self.chains: Dict[int, List[int]] = {}  # by the op that makes nothing: those of its update
        self._head = update_chains(problem)
        for op, head in enumerate(self._head):
            if head >= 0:
                self.chains.setdefault(head, []).append(op)
        self._missing = {
            head: len({p for op in ops for p in problem.before[op]}.difference(ops))
            for head, ops in self.chains.items()
        }
        self._waiting: List[Tuple[int, int]] = []  # bytes that an update needs, and its head
        self._simulator, self._level = Simulator(problem), bytes_at_start(problem)
        self._done = [False] * len(problem)
        self._order: Order = []

    def run(self) -> Order:
        for head, missing in self._missing.items():
            if not missing:
                self._put_in_line(head)
        for op in self._given:
            if not self._done[op]:
                self._run(op)
                self._run_what_fits()
        return self._order

    def _run(self, op: int) -> None:
        self._level += self._simulator.cost(op)[1]
        self._simulator.touch(op)
        self._done[op] = True
        self._order.append(op)
        for head in {self._head[after] for after in self._problem.after[op]} - {-1, self._head[op]}:
            self._missing[head] -= 1
            if not self._missing[head]:
                self._put_in_line(head)

    def _put_in_line(self, head: int) -> None:
        heapq.heappush(self._waiting, (self._needs(head), head))

    def _run_what_fits(self) -> None:
        while self._waiting and self._level + self._waiting[0][0] <= self._most:
            for op in self.chains[heapq.heappop(self._waiting)[1]]:
                if not self._done[op]:
                    self._run(op)

    def _needs(self, head: int) -> int:
        """At the most: as if nothing of what the update makes had the memory of anything else."""
        problem, ops = self._problem, self.chains[head]
        made = {c for op in ops for c in problem.touches[op] if not self._simulator.exists[c]}
        left = [0, *accumulate(problem.leaves[op] - problem.collects[op] for op in ops)]
        return sum(problem.sizes[c] for c in made) + max(
            before + problem.transient[op] for before, op in zip(left, ops))
