"""A lower bound on the time that any plan needs to stay under a peak.

Where the backward part begins, every value that it reads is either in memory or will be computed again. So a choice of
values to keep that fits into the peak, with all that must be computed for the others, costs no more than the plan: the
weighted version of that choice is a minimum cut (as in `recompute.py`), and weak Lagrangian duality gives, for every price
of a byte, a bound.
"""

from __future__ import annotations

import math
from typing import Dict, List, Set, Tuple

import networkx
from networkx.algorithms.flow import preflow_push

from transpiler.passes.remat.problem import RematProblem

# Capacities are integers: one unit is a nanosecond.
_UNITS = 1e9
_ROUNDS = 8
_PRICES = (1e-14, 1e-8)  # seconds a byte
_MOST_OPS = 1500


def least_seconds(problem: RematProblem, peak: int) -> float:
    """Seconds that every plan with at most `peak` bytes computes again, at least; 0 where it is not worth finding out."""
    if not 0 < problem.boundary <= _MOST_OPS:
        return 0.0
    needed, fixed = _at_boundary(problem)
    room = peak - fixed
    if sum(problem.memory.sizes[c] for c in needed) <= room:
        return 0.0
    best, (low, high) = 0.0, _PRICES
    for _ in range(_ROUNDS):
        price = math.sqrt(low * high)
        value, kept = _cut(problem, needed, price)
        best = max(best, value - price * room)
        low, high = (price, high) if kept > room else (low, price)
    return best


def _at_boundary(problem: RematProblem) -> Tuple[Set[int], int]:
    """Cells that live across the boundary and may be dropped, and the bytes of those that may not."""
    needed, fixed = set(), 0
    for cell, users in enumerate(problem.memory.users):
        crosses = users and users[0] < problem.boundary <= users[-1]
        if not crosses and not (problem.memory.from_start[cell] and problem.memory.to_end[cell]):
            continue
        if problem.producer[cell] >= 0:
            needed.add(cell)
        else:
            fixed += problem.memory.sizes[cell]
    return needed, fixed


def _cut(problem: RematProblem, needed: Set[int], price: float) -> Tuple[float, int]:
    """The least of seconds computed again plus bytes kept at `price`, and the bytes kept."""
    network = networkx.DiGraph()
    network.add_nodes_from(('source', 'sink'))
    pending: List[int] = sorted(needed)
    seen: Set[int] = set(needed)
    keep: Dict[int, int] = {}
    for cell in needed:
        network.add_edge(('had', cell), 'sink')
    while pending:
        cell = pending.pop()
        op = problem.producer[cell]
        keep[cell] = int(problem.memory.sizes[cell] * price * _UNITS)
        network.add_edge(('made', cell), ('had', cell), capacity=keep[cell])
        network.add_edge('source', ('op', op), capacity=int(problem.seconds[op] * _UNITS))
        network.add_edge(('op', op), ('made', cell))
        for operand in problem.operands[op]:
            if problem.producer[operand] < 0:
                continue  # taken as there for nothing: a bound may be too low, never too high
            network.add_edge(('had', operand), ('op', op))
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    residual = preflow_push(network, 'source', 'sink')
    value = residual.graph['flow_value']
    return value / _UNITS, _kept_bytes(problem, residual, seen)


def _kept_bytes(problem: RematProblem, residual: networkx.DiGraph, cells: Set[int]) -> int:
    reach, frontier = {'source'}, ['source']
    while frontier:
        node = frontier.pop()
        for following, arc in residual[node].items():
            if following not in reach and arc['flow'] < arc['capacity']:
                reach.add(following)
                frontier.append(following)
    return sum(problem.memory.sizes[c]
               for c in cells
               if ('made', c) in reach and ('had', c) not in reach)
