"""Local search around plans that were made by dropping values one by one, with the judge as the oracle.

Such a plan drops what costs least to have again, one value at a time, so it does not see that a value kept over a long gap saves a
whole run of clones, time after time. Here each gap in which a value is away, or all its gaps together, is closed once: the value is
guarded there, what else must go is chosen anew under the same limit, and what came out is kept if it takes less time. Gaps
come in the order of the seconds that closing them can save for a byte. It ends at a plan that no single gap improves, or where the
work allowed is done, which is counted in ops, not by the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Set, Tuple

from transpiler.passes.remat.evict import Eviction, Guards, evict
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.restore import restore
from transpiler.passes.remat.steps import RematPlan, profile
from transpiler.passes.remat.turns import Turns

# A plan may take so much longer before what it need not compute is taken out.
_BEFORE_RESTORING = 1.2
_WORTH_IT = 0.9999

Gap = Tuple[int, int, int]  # cell, and the positions from its last use to where it is made again


@dataclass
class Allowance:
    """How many ops may still be simulated."""

    ops: int

    def take(self, ops: int) -> bool:
        self.ops -= ops
        return self.ops >= 0


def improved(problem: RematProblem,
             plan: RematPlan,
             peak: int,
             powers: Tuple[float, ...],
             allowed: Allowance,
             least: float = 0.0) -> RematPlan:
    """A plan of no higher peak than `peak` that takes less time than `plan`, but not less than `least` seconds, or `plan`.

    `powers` are those of the distance to the next use; the better one to begin with is taken.
    """
    search = None
    for power in powers:
        start = _Search(problem, peak, power, allowed, least)
        if start.best is not None and (search is None or start.seconds < search.seconds):
            search = start
    if search is None:
        return plan
    search.run()
    return search.best if search.best and search.seconds < plan.seconds * _WORTH_IT else plan


class _Search:

    def __init__(self, problem: RematProblem, peak: int, power: float, allowed: Allowance,
                 least: float) -> None:
        self._problem = problem
        self._peak = peak
        self._power = power
        self._turns = Turns(problem, power)
        self._allowed = allowed
        self._least = least
        self._guards: Guards = {}
        self.best: Optional[RematPlan] = None  # `_made` asks for its time
        if allowed.take(len(problem)):
            self.best = self._made(self._guards)

    @property
    def seconds(self) -> float:
        return self.best.seconds if self.best is not None else float('inf')

    def run(self) -> None:
        """Closes gaps, the most promising first, until none helps."""
        tried: Set[Gap] = set()
        while self.best is not None and self._close_one(self.best, tried):
            pass

    def _close_one(self, plan: RematPlan, tried: Set[Gap]) -> bool:
        for cell, start, end in _promising(self._problem, plan):
            if (cell, start, end) in tried:
                continue
            if not self._allowed.take(len(self._problem)):
                return False
            tried.add((cell, start, end))
            guards = {**self._guards, cell: (*self._guards.get(cell, ()), (start, end))}
            found = self._made(guards)
            if found is not None and found.seconds < self.seconds * _WORTH_IT:
                self.best, self._guards = found, guards
                return True
        return False

    def _made(self, guards: Guards) -> Optional[RematPlan]:
        most = self.seconds * _BEFORE_RESTORING
        how = Eviction(self._peak, self._peak + 1, most, distance_power=self._power, guarded=guards)
        plan = evict(self._problem, how, self._turns)
        if plan is None:
            return None
        plan = restore(self._problem, plan, profile(self._problem, plan))
        return plan if plan.seconds >= self._least else None


def _promising(problem: RematProblem, plan: RematPlan) -> List[Gap]:
    """The gaps of all cells, and where a cell has several, them together: what saves most for a byte first."""
    by_cell: Dict[int, List[Tuple[float, int, int]]] = {}
    for seconds, cell, start, end in _gaps(problem, plan):
        by_cell.setdefault(cell, []).append((seconds, start, end))
    found: List[Tuple[float, Gap]] = []
    for cell, gaps in by_cell.items():
        size = max(1, problem.memory.sizes[cell])
        found.extend((seconds / size, (cell, start, end)) for seconds, start, end in gaps)
        if len(gaps) > 1:
            together = sum(seconds for seconds, _, _ in gaps)
            found.append((together / size, (cell, gaps[0][1], gaps[-1][2])))
    found.sort(key=lambda each: -each[0])
    return [gap for _, gap in found]


def _gaps(problem: RematProblem, plan: RematPlan) -> Iterator[Tuple[float, int, int, int]]:
    """(seconds, cell, position of its last use, position before which it is made again), clone by clone. The seconds are those of
    the clones in the same run up to this one: nobody of them may be needed any more."""
    positions = _positions(problem, plan)
    current = list(range(len(problem.cells)))
    last = [0] * len(plan.cell_of)
    seconds = 0.0
    for step, position in zip(plan.steps, positions):
        seconds = seconds + problem.seconds[step.op] if step.clone else 0.0
        for instance in step.reads:
            last[instance] = position
        for instance in step.writes:
            cell = plan.cell_of[instance]
            yield seconds, cell, last[current[cell]], position
            current[cell], last[instance] = instance, position


def _positions(problem: RematProblem, plan: RematPlan) -> List[int]:
    """By step, the position of the op of the program that it is, or is before."""
    found, following = [], len(problem)
    for step in reversed(plan.steps):
        following = following if step.clone else step.op
        found.append(following)
    return found[::-1]
