"""A lower bound on the time that any plan needs to stay under a peak.

At any op behind the boundary every value that is there before and read later is either in memory or will be computed again. So a
choice of values to keep there that fits into the peak, with all that must be computed for the others, costs no more than the plan: the
weighted version of that choice is a minimum cut (as in `recompute.py`), and weak Lagrangian duality gives, for every price
of a byte, a bound. The best one is taken of where the backward part begins, if there is one, and of the ops that leave the least room.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Callable, FrozenSet, List, Optional, Sequence, Set, Tuple

import numpy
from transpiler.passes.min_cut import FIRST, INFINITE, SINK, SOURCE, min_cut
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import least_levels

# Capacities are integers: one unit is a nanosecond.
_UNITS = 1e9
_ROUNDS = 8
_PRICES = (1e-14, 1e-8)  # seconds a byte
_MOST_OPS = 20_000
_PARTS = 3


@dataclass(frozen=True)
class _Place:
    """`needed` are the cells that are read later and may be dropped. `there` take no room of their own, as `taken` bytes are there in
    any case, theirs included: what is read later may be made from them, too."""

    needed: Set[int]
    there: FrozenSet[int]
    taken: int


def least_seconds(problem: RematProblem, peak: int) -> float:
    """Seconds that every plan with at most `peak` bytes computes again, at least; 0 where it is not worth finding out."""
    return bound(problem, peak)()


def bound(problem: RematProblem, peak: int) -> Callable[[], float]:
    """What finds `least_seconds`, and keeps no more than that takes."""
    if not 0 < (problem.boundary or len(problem)) <= _MOST_OPS:
        return float
    places = list(map(partial(_behind, problem), *_tightest(problem)))
    if problem.boundary:
        places.append(_at_boundary(problem))
    found = (_network(problem, place, peak - place.taken) for place in places)
    return partial(_least_of, [each for each in found if each is not None])


def _network(problem: RematProblem, place: _Place, room: int) -> Optional[_Network]:
    """None where all that is needed has room."""
    sizes = [0 if c in place.there else size for c, size in enumerate(problem.memory.sizes)]
    if not place.needed or sum(sizes[c] for c in place.needed) <= room:
        return None
    return _Network(problem, place.needed, sizes, room)


def _least_of(networks: Sequence[_Network]) -> float:
    return max(map(_least_at, networks), default=0.0)


def _least_at(network: _Network) -> float:
    best, (low, high), room = 0.0, _PRICES, network.room
    for _ in range(_ROUNDS):
        price = math.sqrt(low * high)
        value, kept = network.cut(price)
        best = max(best, value - price * room)
        low, high = (price, high) if kept > room else (low, price)
    return best


def _at_boundary(problem: RematProblem) -> _Place:
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
    return _Place(needed, frozenset(), fixed)


def _tightest(problem: RematProblem) -> Tuple[List[int], List[float]]:
    """The op behind the boundary that needs most, of each half of these, and so on; and what each needs at least."""
    levels = least_levels(problem)
    found: Set[int] = set()
    for parts in range(1, _PARTS + 1):
        edges = numpy.linspace(problem.boundary, len(problem), parts + 1).astype(int).tolist()
        found.update(a + int(levels[a:b].argmax()) for a, b in zip(edges, edges[1:]) if a < b)
    places = sorted(found)
    return places, levels[places].tolist()


def _behind(problem: RematProblem, at: int, level: float) -> _Place:
    """What has been made and ops behind `at` read, while that op runs, which needs `level` bytes."""
    touched = frozenset(problem.memory.touches[at])
    needed = {
        cell for cell, users in enumerate(problem.memory.users)
        if users and users[0] <= at < users[-1] and problem.producer[cell] >= 0
    }
    return _Place(needed, touched, int(level))


class _Network:
    """The flow network of all that the cells of `needed` may be made from; every price of a byte has its own capacities.

    From the source to each op, whose seconds it cuts to run it again; on to the cells that it makes; from there, for the
    price of the cell, to who has it: the sink, or the ops that read it.
    """

    def __init__(self, problem: RematProblem, needed: Set[int], sizes: Sequence[int],
                 room: int) -> None:
        """`sizes` are bytes by cell, `room` those that may be kept."""
        self.room = room
        cells = _made_from(problem, needed)
        number = {cell: at for at, cell in enumerate(cells)}
        ops = list(dict.fromkeys(problem.producer[cell] for cell in cells))
        node = {op: FIRST + 2 * len(cells) + at for at, op in enumerate(ops)}
        self._made = FIRST + numpy.arange(len(cells))
        self._had = self._made + len(cells)
        had = FIRST + len(cells)
        forced = [(node[problem.producer[cell]], FIRST + at) for cell, at in number.items()]
        forced += [(had + number[cell], SINK) for cell in needed]
        forced += [(had + number[operand], node[op])
                   for op in ops
                   for operand in problem.operands[op]
                   if operand in number]
        tails, heads = numpy.array(forced, numpy.int64).T
        sources = numpy.full(len(ops), SOURCE)
        self._tails = numpy.concatenate((tails, sources, self._made))
        self._heads = numpy.concatenate((heads, list(node.values()), self._had))
        self._forced = numpy.full(len(forced), INFINITE)
        self._spent = (numpy.array([problem.seconds[op] for op in ops]) * _UNITS).astype(
            numpy.int64)
        self._sizes = numpy.array([sizes[cell] for cell in cells], numpy.int64)

    def cut(self, price: float) -> Tuple[float, int]:
        """The least of seconds computed again plus bytes kept at `price`, and the bytes kept."""
        kept = (self._sizes * price * _UNITS).astype(numpy.int64)
        capacities = numpy.concatenate((self._forced, self._spent, kept))
        found = min_cut(self._tails, self._heads, capacities)
        reached = numpy.zeros(self._heads.max() + 1, bool)
        reached[list(found.before)] = True
        cut = reached[self._made] & ~reached[self._had]
        return found.value / _UNITS, int(self._sizes[cut].sum())


def _made_from(problem: RematProblem, needed: Set[int]) -> List[int]:
    """`needed`, and the cells that they may be made from. The others are taken as there for nothing: a bound may be too
    low, never too high."""
    found = dict.fromkeys(sorted(needed))
    pending = list(found)
    while pending:
        for operand in problem.operands[problem.producer[pending.pop()]]:
            if operand not in found and problem.producer[operand] >= 0:
                found[operand] = None
                pending.append(operand)
    return list(found)
