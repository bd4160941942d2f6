"""Offsets within a given capacity, by exact search: two kinds of it in a race, in rounds of growing effort."""
from __future__ import annotations

import time
from typing import Callable, List, Optional, Tuple

import numpy as np

from transpiler.assignment.ranges import parts_of_time

LARGEST = 1_000  # values of a part that are searched: `overlaps` and the trail grow with their square
FIRST_ROUND_NODES, GROWTH = 500, 1.5
MEMBERS = 4
# Seconds after which CP-SAT begins to have half of the time: most problems are decided before, and it takes half a second to load.
ALONE = 1.0
# Closer than this to a capacity that could not be decided in time the search ends.
WORTHWHILE = 5e-4

Clock = Callable[[], float]


class Part:
    """The race for one part of time that nothing lives across.

    Run times of one static order are heavy-tailed, so several take turns, restarted with more nodes each time (Gomes et al. 2000);
    what the others learned about which sections fail stays.
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
        self.turn, self.nodes = 0, float(FIRST_ROUND_NODES)
        self.searched = self.solved = 0.0  # seconds
        self.rate = np.inf  # nodes a second

    def step(self, clock: Clock, deadline: float) -> Tuple[Optional[np.ndarray], bool]:
        """One turn of one member: (offsets int64 of `values` or None, whether it is decided)."""
        started = clock()
        if self.searched > ALONE + self.solved:
            from transpiler.assignment.packing_cp import solve
            slice_ = min(self.searched, deadline - started)
            result = solve(self.problem, self.capacity, slice_)
            self.solved += clock() - started
            return result
        return self._searched(clock, started, deadline)

    def _searched(self, clock: Clock, started: float,
                  deadline: float) -> Tuple[Optional[np.ndarray], bool]:
        from transpiler.assignment.packing_kernel import (ALL_RULES, OUT_OF_NODES, SOLVED,
                                                          new_state, search)
        nodes = int(max(1, min(self.nodes, self.rate * (deadline - started))))
        state = new_state(self.problem)
        status = search(self.capacity, self._rank(), self.weight, nodes, ALL_RULES, self.problem,
                        state)
        seconds = clock() - started
        self.searched += seconds
        if status != OUT_OF_NODES:
            return state.low if status == SOLVED else None, True
        self.rate = nodes / max(seconds, 1e-6)
        self.turn += 1
        if self.turn % MEMBERS == 0:
            self.nodes *= GROWTH
        return None, False

    def _rank(self) -> np.ndarray:
        """float64 (n,): the longest, the greatest area, or the largest first, or by areas that are shaken; later by all shaken."""
        size = self.problem.size.astype(np.float64)
        keys = (self.width, self.width * size, size,
                self.width * size * self.generator.uniform(0.3, 1.3, len(size)))
        key = keys[self.turn % MEMBERS]
        return -key * (self.generator.uniform(0.8, 1.2, len(size)) if self.turn >= MEMBERS else 1)


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
    values = [np.flatnonzero(label == part) for part in np.unique(label[high]).tolist()]
    if any(len(part) > LARGEST for part in values):
        return None, False
    waiting: List[Part] = [Part(part, ranges, sizes, capacity) for part in values]
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
