"""Topological orders of any directed acyclic graph, whose nodes are numbers: `before` and `after` are its arcs by node."""
from __future__ import annotations

import heapq
from typing import Iterator, List, Sequence, Tuple

Order = List[int]
Arcs = Sequence[Sequence[int]]


def by_priority(before: Arcs, after: Arcs, priority: Sequence[Tuple]) -> Order:
    """The ready node with the smallest priority first, then the first one (Kahn's algorithm with a heap). O(n log n)."""
    missing = [len(nodes) for nodes in before]
    ready = [(priority[node], node) for node, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    order: Order = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for other in after[node]:
            missing[other] -= 1
            if missing[other] == 0:
                heapq.heappush(ready, (priority[other], other))
    return order


def heights(after: Arcs) -> List[int]:
    """Nodes on the longest path from each one to an end. Numbers rise along the arcs."""
    found = [1] * len(after)
    for node in range(len(after) - 1, -1, -1):
        found[node] += max((found[other] for other in after[node]), default=0)
    return found


def heaviest_first(before: Arcs, made: Sequence[int], transient: Sequence[int]) -> List[Order]:
    """By node: its predecessors, the one whose making needs most above what it leaves first.

    Optimal on trees (Sethi and Ullman 1970, Liu 1987), a heuristic elsewhere. Numbers rise along the arcs.

    Args:
        made: bytes that each node leaves.
        transient: bytes that it needs besides while it runs.
    """
    need = [0] * len(before)
    found: List[Order] = []
    for node, earlier in enumerate(before):
        ranked = sorted(earlier, key=lambda other: (made[other] - need[other], other))
        held = most = 0
        for other in ranked:
            most = max(most, held + need[other])
            held += made[other]
        need[node] = max(most, held + made[node] + transient[node])
        found.append(ranked)
    return found


def post_order(after: Arcs, visiting: Arcs) -> Order:
    """Each node after its predecessors, visited in the order of `visiting`; from the nodes that nobody waits for."""
    done = [False] * len(after)
    order: Order = []
    for root in (node for node, later in enumerate(after) if not later):
        stack: List[Tuple[int, Iterator[int]]] = [(root, iter(visiting[root]))]
        while stack:
            node, rest = stack[-1]
            following = next((other for other in rest if not done[other]), None)
            if following is not None:
                stack.append((following, iter(visiting[following])))
                continue
            stack.pop()
            if not done[node]:
                done[node] = True
                order.append(node)
    return order
