"""Orders of a net's ops that need less memory: pure functions net -> order, one judge.

Every candidate respects read-after-write, write-after-read and write-after-write order, and the
given order always takes part, so the result is never worse than doing nothing.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, List, Tuple

import numpy as np

from transpiler.assignment.bounds import sharing_bound
from transpiler.assignment.net import Net, live_ranges, predecessors, successors
from transpiler.assignment.topological import (Order, by_priority, heaviest_first, heights,
                                               post_order)

Judge = Callable[[np.ndarray, np.ndarray], int]


@dataclass(frozen=True)
class OrderResult:
    """The best order found, the heuristic's name, and the judge's bytes for it."""
    order: Tuple[int, ...]
    name: str
    cost: int


def given(net: Net) -> Order:
    """Program order."""
    return list(range(len(net.ops)))


def longest_path_first(net: Net) -> Order:
    """Ready ops by the length of the longest path to the end of the net (as Caffe2 memonger)."""
    before = predecessors(net)
    after = successors(before)
    return by_priority(before, after, [(-height,) for height in heights(after)])


def lazy(net: Net) -> Order:
    """Program order of the ops that nobody waits for, each preceded by just what it still needs.

    Weights that are decoded on the fly are so decoded right before their use.
    """
    before = predecessors(net)
    return post_order(successors(before), [sorted(ops) for ops in before])


def heaviest_subtree_first(net: Net) -> Order:
    """Depth first from the ends; the operand whose making needs most memory first.

    Sethi and Ullman's rule (1970) for trees, used as a heuristic for graphs.
    """
    before = predecessors(net)
    visiting = heaviest_first(before, _bytes_defined(net), [0] * len(before))
    return post_order(successors(before), visiting)


def _bytes_defined(net: Net) -> List[int]:
    """For each op the bytes of the movable blobs that it is the first to write."""
    seen, result = set(), []
    for op in net.ops:
        fresh = [blob for blob in set(op.writes) if net.movable[blob] and blob not in seen]
        seen.update(op.writes)
        result.append(int(sum(net.sizes[blob] for blob in fresh)))
    return result


def memory_greedy(net: Net) -> Order:
    """List scheduling: the ready op that leaves the fewest bytes alive; O(ready ops) a step.

    Ties go to the op that allocates less, then to program order.
    """
    return _greedy(net, lambda kept, made, op: (kept, made, op))


def memory_greedy_lazy(net: Net) -> Order:
    """As `memory_greedy`, but an op that frees nothing waits behind all that free something."""
    return _greedy(net, lambda kept, made, op: (kept >= made and made > 0, kept, op))


def _greedy(net: Net, key: Callable[[int, int, int], Tuple]) -> Order:
    """List scheduling by `key(bytes kept, bytes made, op)`, smallest first."""
    before = predecessors(net)
    after = successors(before)
    made = _bytes_defined(net)
    missing = [len(ops) for ops in before]
    touched = [sorted({b for b in op.reads + op.writes if net.movable[b]}) for op in net.ops]
    waiting = np.zeros(len(net.sizes), dtype=np.int64)
    for blobs in touched:
        waiting[blobs] += 1
    ready = {op for op, count in enumerate(missing) if count == 0}
    order: Order = []
    while ready:

        def rank(op: int) -> Tuple:
            freed = sum(int(net.sizes[b]) for b in touched[op] if waiting[b] == 1)
            return key(made[op] - freed, made[op], op)

        op = min(ready, key=rank)
        ready.remove(op)
        order.append(op)
        waiting[touched[op]] -= 1
        for other in after[op]:
            missing[other] -= 1
            if missing[other] == 0:
                ready.add(other)
    return order


def heuristics() -> Dict[str, Callable[[Net], Order]]:
    """Every constructive heuristic by name; `given` first."""
    members = [
        given, longest_path_first, lazy, heaviest_subtree_first, memory_greedy, memory_greedy_lazy
    ]
    return {member.__name__: member for member in members}


def cost_of(net: Net, order: Order, judge: Judge) -> int:
    """The judge's bytes for the live ranges of `order`."""
    blobs, ranges = live_ranges(net, order)
    return judge(ranges, net.sizes[blobs])


def improved(net: Net, order: Order, judge: Judge, rounds: int) -> Order:
    """Hill climbing: move one op within what its neighbours allow, keep what does not cost more.

    `rounds` evaluations of `judge` from a fixed seed, so the result is the same on every machine.
    """
    before = predecessors(net)
    after = successors(before)
    generator = np.random.RandomState(0)
    current, cost = list(order), cost_of(net, order, judge)
    position = {op: at for at, op in enumerate(current)}
    for _ in range(rounds if len(order) > 2 else 0):
        op = int(generator.randint(len(order)))
        low = max((position[other] for other in before[op]), default=-1) + 1
        high = min((position[other] for other in after[op]), default=len(order)) - 1
        target = int(generator.randint(low, high + 1))
        if target == position[op]:
            continue
        candidate = list(current)
        candidate.insert(target, candidate.pop(position[op]))
        candidate_cost = cost_of(net, candidate, judge)
        if candidate_cost <= cost:
            current, cost = candidate, candidate_cost
            position = {other: at for at, other in enumerate(current)}
    return current


def best_order(net: Net, judge: Judge = sharing_bound, rounds: int = 0) -> OrderResult:
    """The cheapest of all heuristics, and of `rounds` steps of hill climbing from the best.

    Args:
        judge: (ranges, sizes) -> bytes; `sharing_bound` for whole storages (which assignments
            reach nearly always), `live_max_bytes` for one arena or a collecting executor.
    """
    best = OrderResult(tuple(given(net)), "given", cost_of(net, given(net), judge))
    for name, heuristic in heuristics().items():
        order = heuristic(net)
        cost = cost_of(net, order, judge)
        if cost < best.cost:
            best = OrderResult(tuple(order), name, cost)
    if rounds:
        order = improved(net, list(best.order), judge, rounds)
        cost = cost_of(net, order, judge)
        if cost < best.cost:
            best = OrderResult(tuple(order), best.name + "+moves", cost)
    return best
