"""A lower bound for programs of any size: Checkmate's linear program in a few windows of the backward part, relaxed.

Within a window memory is counted nowhere but at its end, and what is there may be a fraction: so no plan takes less time. For each
window there is what runs again in it; for each end of one, what is kept there, and what runs again at any time after it, from what is
kept there alone (without that, fractions of a value add up from window to window, and the bound falls as there are more). Where
backward begins and at the ends, what is kept must leave room for what the op there touches.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Sequence, Set, Tuple

import numpy

from benchmarks.references.checkmate import NANOSECONDS, clonable, free_cells
from benchmarks.references.linear import Linear, Term
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import fixed_bytes

_COUNTS = (2, 3, 6, 12)
_SECONDS = 20.0
_SLACK = 1e-6  # of what a solver calls equal


def least_seconds_in_windows(problem: RematProblem, peak: int) -> float:
    """Seconds that every plan of at most `peak` bytes computes again, at least; infinite if there is none."""
    found = 0.0
    for count in _COUNTS:
        solved = _Windows(problem, peak, ends(problem, count)).linear.relaxed(_SECONDS)
        found = max(found, solved.bound * (1 - _SLACK) / NANOSECONDS)
    return found


def touched_levels(problem: RematProblem) -> List[float]:
    """Bytes that each op needs at least: what can't be dropped, and what it touches, but for what it works in place on."""
    free = set(free_cells(problem))
    levels: List[float] = fixed_bytes(problem, free).tolist()
    for at, cells in enumerate(problem.memory.touches):
        pairs = problem.memory.pairs[at]
        shared = {b for _, b in pairs} | {a for a, b in pairs if b not in free}
        levels[at] += sum(problem.memory.sizes[c] for c in cells if c in free and c not in shared)
    return levels


def ends(problem: RematProblem, count: int) -> List[int]:
    """The op that needs most of each of so many parts of the backward part."""
    levels = touched_levels(problem)
    edges = numpy.linspace(problem.boundary, len(problem), count + 1).astype(int).tolist()
    return sorted({
        max(range(a, b), key=lambda at: (levels[at], -at))
        for a, b in zip(edges, edges[1:])
        if a < b
    })


@dataclass
class _Windows:
    """Costs are nanoseconds. `_kept[end]`, `_made[window]`, `_ever[end]`: variables by cell, op, and op."""
    problem: RematProblem
    peak: int
    ends: Sequence[int]
    linear: Linear = field(default_factory=Linear)

    def __post_init__(self) -> None:
        problem = self.problem
        self._free = free_cells(problem)
        self._is_free = set(self._free)
        self._ops = clonable(problem)
        self._levels = touched_levels(problem)
        starts = [problem.boundary, *(end + 1 for end in self.ends)]
        # The last window ends with the program, where nothing is kept.
        windows = list(zip(starts, [*(end + 1 for end in self.ends), len(problem)]))
        kept = self._kept_at_start()
        runs: List[Dict[int, int]] = []
        keeps = [kept]
        for number, window in enumerate(windows):
            runs.append(self._window(window, kept))
            if number < len(self.ends):
                kept = self._kept_at(self.ends[number], kept, runs[-1])
                keeps.append(kept)
        for number, (start, _) in enumerate(windows):
            self._ever(start, keeps[number], runs[number:])

    def _kept_at_start(self) -> Dict[int, int]:
        """What is there when backward begins, with what the ops there need at least."""
        problem, sizes = self.problem, self.problem.memory.sizes
        kept = {
            c: self.linear.variable()
            for c in self._free
            if problem.memory.users[c] and problem.memory.users[c][0] < problem.boundary
        }
        fixed = int(fixed_bytes(problem, self._free)[min(problem.boundary, len(problem) - 1)])
        self.linear.at_most([(sizes[c], v) for c, v in kept.items()], self.peak - fixed)
        return kept

    def _needed(self, start: int, end: int) -> Set[int]:
        touches = self.problem.memory.touches
        return {c for at in range(start, end) for c in touches[at] if c in self._is_free}

    def _window(self, window: Tuple[int, int], kept: Dict[int, int]) -> Dict[int, int]:
        """What runs again in the window; its operands, and what the window's ops touch, are there or made."""
        problem, (start, end) = self.problem, window
        runs = {
            op: self.linear.variable(cost=round(problem.seconds[op] * NANOSECONDS))
            for op in self._ops
            if problem.deadline[op] >= start
        }
        self._closed(runs, kept, self._needed(start, end))
        return runs

    def _closed(self, runs: Dict[int, int], kept: Dict[int, int], needed: Set[int]) -> None:
        for op, run in runs.items():
            for cell in self.problem.operands[op]:
                if cell in self._is_free:
                    self.linear.at_most([(1, run)] + self._had(cell, runs, kept), 0)
        for cell in needed:
            self.linear.at_most(self._had(cell, runs, kept), -1)

    def _had(self, cell: int, runs: Dict[int, int], kept: Dict[int, int]) -> List[Term]:
        """Minus what there is of the cell."""
        found = [(-1, kept[cell])] if cell in kept else []
        op = self.problem.producer[cell]
        return found + [(-1, runs[op])] if op in runs else found

    def _kept_at(self, end: int, kept: Dict[int, int], runs: Dict[int, int]) -> Dict[int, int]:
        """What is there while the op at `end` runs and behind it."""
        sizes, touched = self.problem.memory.sizes, set(self.problem.memory.touches[end])
        after = {c: self.linear.variable() for c in kept}
        for cell, variable in after.items():
            self.linear.at_most([(1, variable)] + self._had(cell, runs, kept), 0)
        self.linear.at_most([(sizes[c], v) for c, v in after.items() if c not in touched],
                            int(self.peak - self._levels[end]))
        return after

    def _ever(self, start: int, kept: Dict[int, int], runs: Sequence[Dict[int, int]]) -> None:
        """What runs at any time from `start` on is made from what is kept there alone."""
        ever = {op: self.linear.variable() for op in runs[0]}
        self._closed(ever, kept, self._needed(start, len(self.problem)))
        for op, variable in ever.items():
            later = [(-1, each[op]) for each in runs if op in each]
            self.linear.at_most([(1, variable), *later], 0)
