"""Offsets within a given capacity, by exact search: two kinds of it in a race, in rounds of growing effort."""
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, List, Optional, Tuple

import numpy as np

from transpiler.assignment.jit import compiled
from transpiler.assignment.packing_glue import glued
from transpiler.assignment.ranges import parts_of_time

if TYPE_CHECKING:
    from transpiler.assignment.packing_kernel import Problem

LARGEST = 1_000  # values of a part that are searched: `overlaps` and the trail grow with their square
NODES = 1_000  # of the shortest turn
# What a failure adds to a section's weight is worth so much one turn later: what failed lately says more.
MEMORY = 0.7
# Seconds before CP-SAT has its first turn: most problems are decided by then, and it takes half a second to load.
ALONE = 1.0
# Closer than this to a capacity that could not be decided in time the search ends.
WORTHWHILE = 5e-4

Clock = Callable[[], float]


class Part:
    """The race for one part of time that nothing lives across.

    Run times of one static order are heavy-tailed, so several take turns, most of them short (Luby et al. 1993); what the others
    have learned about which sections fail stays. In every other turn some values are placed
    as one. Now and then CP-SAT has a turn: what is hard for one is often easy for the other.
    """

    def __init__(self, values: np.ndarray, ranges: np.ndarray, sizes: np.ndarray,
                 capacity: int) -> None:
        from transpiler.assignment.packing_kernel import problem_of
        self.values = values
        self.capacity = capacity
        self.problem = problem_of(ranges[values], sizes[values])
        self.width = ranges[values, 1] - ranges[values, 0] + 1.0
        self.weight = np.ones(len(self.problem.member_at) - 1)
        self.generator = np.random.RandomState(0)
        self.turn = 0
        self.searched = self.solved = 0.0  # seconds of ours, and of CP-SAT's
        self.rate = np.inf if compiled() else 300.0  # nodes a second

    def step(self, clock: Clock, deadline: float) -> Tuple[Optional[np.ndarray], bool]:
        """One turn of one member: (offsets int64 of `values` or None, whether it is decided)."""
        started = clock()
        # Uncompiled, ours is about a hundred times slower.
        share = 0.5 if compiled() else 4.0
        if self.solved > share * (self.searched - ALONE):
            return self._searched(clock, started, deadline)
        from transpiler.assignment.packing_cp import solve
        result = solve(self.problem, self.capacity, min(share * self.searched, deadline - started))
        self.solved += clock() - started
        return result

    def _searched(self, clock: Clock, started: float,
                  deadline: float) -> Tuple[Optional[np.ndarray], bool]:
        from transpiler.assignment.packing_kernel import INFEASIBLE, OUT_OF_NODES, problem_of
        longest = max(1.0, self.rate * (deadline - started))
        nodes = int(min(NODES * luby(self.turn // 2 + 1), longest))
        self.weight = 1 + MEMORY * (self.weight - 1)
        if self.turn % 2 == 0:
            status, lows = self._run(self.problem, self.weight, self._rank(), nodes)
        else:
            pieces = glued(self.problem.begin, self.problem.end, self.problem.size, self.capacity,
                           self.generator)
            problem = problem_of(pieces.ranges, pieces.sizes)
            rank = -self.generator.uniform(0.3, 1.3, len(pieces.sizes)) * pieces.sizes
            status, lows = self._run(problem, np.ones(len(problem.member_at) - 1), rank, nodes)
            lows = pieces.offsets(lows)
            status = OUT_OF_NODES if status == INFEASIBLE else status
        seconds = clock() - started
        self.searched += seconds
        self.turn += 1
        self.rate = nodes / max(seconds, 1e-6)
        return (None if status in (OUT_OF_NODES, INFEASIBLE) else lows), status != OUT_OF_NODES

    def _run(self, problem: Problem, weight: np.ndarray, rank: np.ndarray,
             nodes: int) -> Tuple[int, np.ndarray]:
        """The status of a search, and the offsets where it is solved."""
        from transpiler.assignment.packing_kernel import ALL_RULES, new_state, search
        state = new_state(problem)
        return search(self.capacity, rank, weight, nodes, ALL_RULES, problem, state), state.low

    def _rank(self) -> np.ndarray:
        """float64 (n,): the longest first, the greatest area, or by areas that are shaken; later all shaken."""
        size = self.problem.size.astype(np.float64)
        area, own_turn = self.width * size, self.turn // 2
        keys = (self.width, area, area * self.generator.uniform(0.3, 1.3, len(size)))
        key = keys[own_turn % len(keys)]
        return -key * (self.generator.uniform(0.8, 1.2, len(size)) if own_turn >= len(keys) else 1)


def loading_seconds(clock: Clock) -> float:
    """Loads the kernels, and compiles them where numba has not kept them yet; how long that took."""
    started = clock()
    fit(np.array([[0, 0]]), np.array([1]), 1, np.inf, clock)
    return clock() - started


def luby(turn: int) -> int:
    """1, 1, 2, 1, 1, 2, 4, ...: lengths of restarts, of turns from 1, at most a logarithm off the best for any problem."""
    bits = turn.bit_length()
    return 2**(bits - 1) if turn == 2**bits - 1 else luby(turn - 2**(bits - 1) + 1)


def fit(ranges: np.ndarray,
        sizes: np.ndarray,
        capacity: int,
        deadline: float,
        clock: Clock = time.monotonic,
        offsets: Optional[np.ndarray] = None) -> Tuple[Optional[np.ndarray], bool]:
    """Find offsets with every top at most `capacity`.

    Args:
        ranges: int64 (n, 2), inclusive; sizes: int64 (n,), positive; any unit.
        deadline: of `clock`.
        offsets: int64 (n,), a packing of any height, of which parts of time that fit are kept.

    Returns:
        (offsets or None, decided): `decided` is False if time ran out first, or the problem is too large.
    """
    found = np.zeros(len(sizes), dtype=np.int64) if offsets is None else offsets.copy()
    label = parts_of_time(ranges)
    high = np.ones(len(sizes), bool) if offsets is None else offsets + sizes > capacity
    too_high = np.unique(label[high])
    if len(too_high) and np.bincount(label)[too_high].max() > LARGEST:
        return None, False
    everyone = np.argsort(label, kind="stable")
    first, end = (np.searchsorted(label[everyone], too_high, side) for side in ("left", "right"))
    waiting: List[Part] = [
        Part(everyone[low:high], ranges, sizes, capacity) for low, high in zip(first, end)
    ]
    while waiting and clock() < deadline:
        part = waiting.pop(0)
        lows, decided = part.step(clock, deadline)
        if decided and lows is None:
            return None, True
        if lows is None:
            waiting.append(part)
        else:
            found[part.values] = lows
    return (None, False) if waiting else (found, True)


def lowest(ranges: np.ndarray,
           sizes: np.ndarray,
           offsets: np.ndarray,
           bound: int,
           deadline: float,
           clock: Clock = time.monotonic) -> Tuple[np.ndarray, int]:
    """Improve `offsets` by decisions at fixed capacities, from the bound upwards.

    A decision at a capacity is far easier than minimising the height. First the bound itself gets
    half the time; then capacities that split what is left of the gap.

    Returns:
        (offsets, bound): at most as high as given, and a bound at least as high as given.
    """
    height = int((offsets + sizes).max())
    capacity = floor = bound
    while height > bound and capacity < height and clock() < deadline:
        half = (clock() + deadline) / 2
        found, decided = fit(ranges, sizes, capacity, half, clock, offsets)
        if found is not None:
            offsets, height = found, int((found + sizes).max())
        else:
            floor = capacity + 1
            # What was not decided may still exist: only a proof moves the bound.
            bound = floor if decided else bound
        if height - floor <= height * WORTHWHILE and bound < floor:
            break
        capacity = floor + (height - floor) // 2
    return offsets, bound
