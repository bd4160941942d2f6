"""The heuristics. Each is a pure function with one signature, `(problem) -> order`; O((ops + touches) log ops)."""

from __future__ import annotations

import heapq
from itertools import accumulate
from typing import Callable, Dict, List, Mapping, Set, Tuple

from transpiler.analysis.dependences import successors
from transpiler.assignment import topological
from transpiler.passes.orders.grouped import groups_of
from transpiler.passes.orders.order_problem import Order, OrderProblem
from transpiler.passes.orders.simulator import Simulator

Heuristic = Callable[[OrderProblem], Order]
# Updates that wait for each other; it bounds the search among them.
_LONGEST_CHAIN = 64


def given(problem: OrderProblem) -> Order:
    """The order as it is."""
    return list(range(len(problem)))


def longest_path_first(problem: OrderProblem) -> Order:
    """Ready ops by the length of the longest path from them to the end (memonger: Chen et al. 2016, Caffe2)."""
    priority = [(-height,) for height in topological.heights(problem.after)]
    return topological.by_priority(problem.before, problem.after, priority)


def updates_early(problem: OrderProblem) -> Order:
    """The given order, but ops that make nothing run as soon as they can, and what is made for them alone runs right before.

    Those are mostly parameter updates, which then end the lives of their gradients at once (LOMO, Lv et al. 2023, and
    the fused optimizers of PyTorch do the same inside backward); the rest of the chain decays weights or clips.
    """
    chains = update_chains(problem)
    groups = groups_of(problem, chains)
    order = topological.by_priority(groups.before, successors(groups.before),
                                    [(chains[ops[-1]] < 0,) for ops in groups.members])
    return groups.expanded(order)


def update_chains(problem: OrderProblem) -> List[int]:
    """By op: the op that makes nothing for which it and all that it makes are there; itself if it is one. Else -1.

    Later updates may wait for it as well, as that of a weight for all that reads the weight, if they wait for the first
    of them. Run at once, the ops of one chain hold up nothing that they wait for: whatever runs behind one of them and
    before another is of the chain. An op stays where it is if anything but such chains stands between it and its update:
    that it is put off, to the last of the terms of a gradient, say, could keep alive what it reads.
    """
    return problem.once('update chains', lambda: _find_update_chains(problem))


def _find_update_chains(problem: OrderProblem) -> List[int]:
    made = bytes_made(problem)
    found = [-1] * len(problem)
    later: Dict[int, Set[int]] = {}  # by update: those that directly wait for it
    for op in range(len(problem) - 1, -1, -1):
        following = {found[other] for other in problem.after[op]}
        if not made[op]:
            found[op] = op
            later[op] = following - {-1}
        elif following:
            first = min(following)
            found[op] = first if first >= 0 and _all_wait_for(first, following, later) else -1
    return _not_put_off(found)


def _not_put_off(chains: List[int]) -> List[int]:
    others = list(accumulate((update < 0 for update in chains), initial=0))  # before each op
    return [
        update if update >= 0 and others[update] == others[op] else -1
        for op, update in enumerate(chains)
    ]


def _all_wait_for(first: int, updates: Set[int], later: Mapping[int, Set[int]]) -> bool:
    missing, last = updates - {first}, max(updates)
    pending, seen = [first], {first}
    while missing and pending and len(seen) < _LONGEST_CHAIN:
        new = {u for u in later[pending.pop()] if u <= last} - seen
        seen |= new
        missing -= new
        pending.extend(new)
    return not missing


def release_early(problem: OrderProblem) -> Order:
    """The given order, but a ready op that adds no memory, all in all, runs at once."""
    return _by_cost(problem, lambda during, added: (0, added) if added <= 0 else (1, 0))


def memory_greedy(problem: OrderProblem) -> Order:
    """Ready ops by what they add for good, then by what they need while they run (list scheduling)."""
    return _by_cost(problem, lambda during, added: (added, during))


def allocate_late(problem: OrderProblem) -> Order:
    """Every op as close before its first reader as it can be: `release_early`, seen backwards in time."""
    return problem.once('allocate late', lambda: backwards(release_early, problem))


def greedy_from_the_end(problem: OrderProblem) -> Order:
    """Memory-greedy list scheduling, backwards in time."""
    return backwards(memory_greedy, problem)


def sums_together(problem: OrderProblem) -> Order:
    """What a sum adds up is made right before it, and what it frees is freed right after.

    A gradient that several ops contribute to is made of parts that lie far apart in the given order, each of them
    alive until the sum.
    """
    late = allocate_late(problem)
    return _then(release_early, problem, late)


def heaviest_subtree_first(problem: OrderProblem) -> Order:
    """Depth first from the ends; the operand whose making needs most above what it leaves goes first.

    Optimal on trees (Sethi and Ullman 1970, Liu 1987), a heuristic elsewhere.
    """
    visiting = topological.heaviest_first(problem.before, bytes_made(problem), problem.transient)
    return topological.post_order(problem.after, visiting)


def depth_first(problem: OrderProblem) -> Order:
    """Depth first from the ends, in the given order; then what frees memory early."""
    return _then(release_early, problem, topological.post_order(problem.after, problem.before))


HEURISTICS: Dict[str, Heuristic] = {
    'given': given,
    'updates early': updates_early,
    'release early': release_early,
    'allocate late': allocate_late,
    'sums together': sums_together,
    'memory-greedy': memory_greedy,
    'greedy from the end': greedy_from_the_end,
    'heaviest subtree first': heaviest_subtree_first,
    'depth first': depth_first,
    'longest path first': longest_path_first,
}


def bytes_made(problem: OrderProblem) -> List[int]:
    """For each op, bytes of the cells that it is the first to touch in the given order."""
    made = [0] * len(problem)
    for cell, users in enumerate(problem.users):
        if users and not problem.from_start[cell]:
            made[users[0]] += problem.sizes[cell]
    return made


def backwards(heuristic: Heuristic, problem: OrderProblem) -> Order:
    """`heuristic` applied to the problem with time reversed."""
    last = len(problem) - 1
    return [last - op for op in reversed(heuristic(problem.mirrored()))]


def _then(heuristic: Heuristic, problem: OrderProblem, first: Order) -> Order:
    """`heuristic` with `first` as the given order."""
    return [first[at] for at in heuristic(problem.renumbered(first))]


def _by_cost(problem: OrderProblem, rank: Callable[[int, int], Tuple]) -> Order:
    """The ready op with the smallest rank of its cost at that moment, then the given order."""
    return _CostHeap(problem, rank).run()


class _CostHeap:
    """Ready ops by rank. A cost changes only when an op becomes the only one left for a cell, or a cell comes into
    being; so ranks are renewed op by op, and old heap entries skipped."""

    def __init__(self, problem: OrderProblem, rank: Callable[[int, int], Tuple]) -> None:
        self._problem = problem
        self._rank = rank
        self._simulator = Simulator(problem)
        self._missing = [len(ops) for ops in problem.before]
        self._left = [sum(users) for users in problem.users]  # sum of the ops still to touch it
        self._entry: Dict[int, Tuple] = {}  # ready op -> its entry in force
        self._heap: List[Tuple] = []

    def run(self) -> Order:
        for op, count in enumerate(self._missing):
            if not count:
                self._offer(op)
        order: Order = []
        while self._heap:
            entry = heapq.heappop(self._heap)
            op = entry[-1]
            if self._entry.get(op) == entry:
                del self._entry[op]
                order.append(op)
                self._run(op)
        return order

    def _run(self, op: int) -> None:
        problem, remaining, missing = self._problem, self._simulator.remaining, self._missing
        changed = []
        for cell in self._simulator.touch(op):
            changed += problem.users[cell]
        for cell in problem.touches[op]:
            self._left[cell] -= op
            if remaining[cell] == 1:
                changed.append(self._left[cell])
        offered = {other for other in changed if other in self._entry}
        for other in problem.after[op]:
            missing[other] -= 1
            if not missing[other]:
                offered.add(other)
        for other in offered:
            self._offer(other)

    def _offer(self, op: int) -> None:
        entry = (*self._rank(*self._simulator.cost(op)), op)
        if self._entry.get(op) != entry:
            self._entry[op] = entry
            heapq.heappush(self._heap, entry)
