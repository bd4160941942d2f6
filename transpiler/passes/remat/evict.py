"""Drops values when memory runs short and computes them again when they are needed.

A simulation of the program under a limit in bytes, in the order that is kept. Before an op that does not fit, the values
that cost least to have again, for their bytes and for the time until they are needed, are dropped: the heuristic of
Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021), but with the future known, so that the distance to the next
use (Belady 1966) stands in the place of staleness. Chains come out segmented, as in Chen et al. 2016.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

from transpiler.passes.remat.problem import RematProblem
from transpiler.passes.remat.steps import RematPlan, Step

_NEVER = 1 << 60
# A search for what must run again gives up here; what costs more is not dropped.
_MOST_OPS = 256


@dataclass(frozen=True)
class Eviction:
    """How to choose: `limit` in bytes, values dropped in any case, the weight of the distance to the next use (a power).

    A plan whose peak is not below `hopeless` bytes, or that computes more than `most_seconds` again, is of no interest.
    """

    limit: float
    hopeless: float = float('inf')
    most_seconds: float = float('inf')
    dropped: FrozenSet[int] = frozenset()
    distance_power: float = 1.0


def evict(problem: RematProblem, how: Eviction) -> Optional[RematPlan]:
    """The plan that the simulation comes to. It may need more than the limit where nothing can be dropped.

    None as soon as it is of no interest.
    """
    return _Simulation(problem, how).run()


class _Simulation:

    def __init__(self, problem: RematProblem, how: Eviction) -> None:
        self._problem = problem
        self._how = how
        cells = len(problem.cells)
        self._sizes = problem.memory.sizes
        self._users = problem.memory.users
        self._used = [0] * cells  # how many of its users have run
        self._current = [-1] * cells  # instance that is in memory
        self._latest = list(range(cells))
        self._needed_by = [_NEVER] * cells  # position of the first rebuild that will read it
        self._held = [False] * cells  # dead for the program, kept for a rebuild
        self._pending = [0] * cells  # reads to come in the rebuild under way
        self._readers = self._evictable_readers()
        self._candidates: List[Tuple[float, int]] = []
        self._locked: Set[int] = set()
        self._at = 0
        self._live = self._highest = 0
        self._plan = RematPlan([], list(range(cells)))
        for cell in range(cells):
            if problem.memory.from_start[cell]:
                self._current[cell] = cell
                self._live += self._sizes[cell]

    def run(self) -> Optional[RematPlan]:
        for at in range(len(self._problem)):
            self._at = at
            self._original(at)
            if (self._highest >= self._how.hopeless or self._plan.seconds > self._how.most_seconds):
                return None
        return self._plan

    def _evictable_readers(self) -> Dict[int, List[int]]:
        """Cells that are made again from a cell, by cell."""
        readers: Dict[int, List[int]] = {}
        for op, cells in enumerate(self._problem.results):
            for operand in self._problem.operands[op] if cells else ():
                readers.setdefault(operand, []).extend(cells)
        return readers

    # -- ops of the program -----------------------------------------------------------------------

    def _original(self, at: int) -> None:
        memory = self._problem.memory
        touched = memory.touches[at]
        self._locked = set(touched)
        missing = [c for c in touched if self._current[c] < 0 and self._used[c]]
        if missing:
            self._rebuild(missing)
        born = [c for c in touched if self._current[c] < 0]
        dying = {c for c in touched if self._ends_here(c, at)}
        shared = self._shared(at, dying, born)
        self._make_room(sum(self._sizes[c] for c in born) - shared + memory.transient[at])
        for cell in born:
            self._current[cell] = cell
            self._live += self._sizes[cell]
        self._plan.steps.append(Step(at, False, tuple(self._current[c] for c in touched), ()))
        self._live += memory.leaves[at] - memory.collects[at]
        for cell in touched:
            self._used[cell] += 1
            if cell in dying:
                self._forget(cell)
            elif cell in self._how.dropped and self._may_go(cell) and at < self._problem.boundary:
                self._drop(cell, *self._closure(cell))
            else:
                self._offer(cell)
        self._locked = set()

    def _ends_here(self, cell: int, at: int) -> bool:
        return (self._used[cell] + 1 == len(self._users[cell]) and
                not self._problem.memory.to_end[cell] and not self._held[cell])

    def _shared(self, op: int, dying: Iterable[int], born: Iterable[int]) -> int:
        pairs = self._problem.memory.pairs[op]
        return sum(self._sizes[b] for a, b in pairs if a in dying and b in born) if pairs else 0

    def _forget(self, cell: int) -> None:
        if self._current[cell] >= 0:
            self._current[cell] = -1
            self._live -= self._sizes[cell]

    def _next_use(self, cell: int) -> int:
        users, used = self._users[cell], self._used[cell]
        return users[used] if used < len(users) else _NEVER

    def _needed(self, cell: int) -> int:
        """Position at which `cell` is needed next, by the program or by a rebuild."""
        return min(self._next_use(cell), self._needed_by[cell])

    # -- choosing what to drop --------------------------------------------------------------------

    def _may_go(self, cell: int) -> bool:
        op = self._problem.producer[cell]
        if op < 0 or self._current[cell] < 0 or cell in self._locked and self._pending[cell]:
            return False
        following = self._next_use(cell)
        return (self._problem.boundary <= following < _NEVER and
                following <= self._problem.deadline[op] and following > self._at)

    def _offer(self, cell: int) -> None:
        op = self._problem.producer[cell]
        if op >= 0 and self._current[cell] >= 0 and self._next_use(cell) < _NEVER:
            heapq.heappush(self._candidates,
                           (self._rate(cell, self._problem.seconds[op], self._sizes[cell]), cell))

    def _rate(self, cell: int, seconds: float, freed: int) -> float:
        distance = max(1, self._needed(cell) - self._at)
        return seconds / (max(1, freed) * distance**self._how.distance_power)

    def _make_room(self, needed: int) -> None:
        aside: List[Tuple[float, int]] = []
        while self._live + needed > self._how.limit and self._candidates:
            entry = heapq.heappop(self._candidates)
            cell = entry[1]
            if not self._may_go(cell):
                continue
            if cell in self._locked or self._pending[cell]:
                aside.append(entry)
                continue
            ops, kept = self._closure(cell)
            freed = self._sizes[cell] - sum(self._sizes[c] for c in kept)
            if freed <= 0 or len(ops) > _MOST_OPS:
                continue
            seconds = sum(self._problem.seconds[op] for op in ops) + self._dependents(cell)
            rate = self._rate(cell, seconds, freed)
            if self._candidates and rate > self._candidates[0][0] and rate > entry[0]:
                heapq.heappush(self._candidates, (rate, cell))
            else:
                self._drop(cell, ops, kept)
        for entry in aside:
            heapq.heappush(self._candidates, entry)
        self._highest = max(self._highest, self._live + needed)

    def _closure(self, cell: int) -> Tuple[List[int], List[int]]:
        """Ops that must run again to have `cell` at its next use, and cells to keep for them that would be gone."""
        when = self._next_use(cell)
        ops, kept, stack = {}, {}, [cell]
        while stack and len(ops) <= _MOST_OPS:
            made = stack.pop()
            op = self._problem.producer[made]
            if op in ops:
                continue
            ops[op] = None
            for operand in self._problem.operands[op]:
                if self._is_there(operand, when):
                    continue
                if self._can_be_made(operand, when):
                    stack.append(operand)
                else:
                    kept[operand] = None
        return list(ops), list(kept)

    def _is_there(self, cell: int, when: int) -> bool:
        """Whether `cell`, which is in memory, will still be at position `when`."""
        if self._held[cell] or self._problem.memory.to_end[cell]:
            return True
        return self._current[cell] >= 0 and self._users[cell][-1] >= when

    def _can_be_made(self, cell: int, when: int) -> bool:
        op = self._problem.producer[cell]
        return op >= 0 and self._problem.deadline[op] >= when

    def _dependents(self, cell: int) -> float:
        """Seconds of what was dropped and would be made from `cell`: runs of dropped values shall not grow long."""
        total, seen, stack = 0.0, set(), [cell]
        while stack and len(seen) <= _MOST_OPS:
            for other in self._readers.get(stack.pop(), ()):
                op = self._problem.producer[other]
                gone = self._current[other] < 0 and self._next_use(other) < _NEVER
                if gone and self._used[other] and op not in seen:
                    seen.add(op)
                    total += self._problem.seconds[op]
                    stack.append(other)
        return total

    def _drop(self, cell: int, ops: List[int], kept: List[int]) -> None:
        when = self._needed(cell)
        for op in ops:
            for operand in self._problem.operands[op]:
                self._needed_by[operand] = min(self._needed_by[operand], when)
        for operand in kept:
            if not self._held[operand]:
                self._held[operand] = True
                if self._current[operand] < 0:
                    self._current[operand] = self._latest[operand]
                    self._live += self._sizes[operand]
        self._forget(cell)

    # -- having it again --------------------------------------------------------------------------

    def _rebuild(self, missing: List[int]) -> None:
        """Puts clones that make `missing` before the op at hand."""
        ops = self._ops_for(missing)
        for op in ops:
            for operand in self._problem.operands[op]:
                self._pending[operand] += 1
        for cell in missing:
            self._pending[cell] += 1
        for op in ops:
            self._clone(op)
        for cell in missing:
            self._pending[cell] -= 1

    def _ops_for(self, missing: List[int]) -> List[int]:
        """Ops to run again, operands first. What can't be made any more is taken as never dropped."""
        order: List[int] = []
        done: Set[int] = set()
        stack = [(cell, False) for cell in reversed(missing)]
        while stack:
            cell, expanded = stack.pop()
            if self._current[cell] >= 0:
                continue
            op = self._problem.producer[cell]
            if op < 0 or self._problem.deadline[op] < self._at:
                self._current[cell] = self._latest[cell]
                self._live += self._sizes[cell]
                continue
            if expanded and op not in done:
                done.add(op)
                order.append(op)
            elif op not in done:
                stack.append((cell, True))
                stack.extend((operand, False) for operand in self._problem.operands[op])
        return order

    def _clone(self, op: int) -> None:
        operands = self._problem.operands[op]
        made = [c for c in self._problem.results[op] if self._current[c] < 0 and self._wanted(c)]
        ending = {c for c in operands if self._pending[c] == 1 and self._ends(c)}
        spare = sum(self._sizes[c] for c in self._problem.results[op] if c not in made)
        shared = self._shared(op, ending, made)
        needed = sum(self._sizes[c] for c in made) - shared
        self._make_room(needed + spare + self._problem.scratch[op])
        reads = tuple(self._current[c] for c in operands)
        for cell in made:
            self._latest[cell] = self._current[cell] = len(self._plan.cell_of)
            self._plan.cell_of.append(cell)
            self._live += self._sizes[cell]
            self._needed_by[cell] = _NEVER
        self._plan.steps.append(Step(op, True, reads, tuple(self._current[c] for c in made)))
        self._plan.seconds += self._problem.seconds[op]
        for cell in operands:
            self._pending[cell] -= 1
            if cell in ending:
                self._forget(cell)
            elif not self._pending[cell]:
                self._offer(cell)
        for cell in made:
            self._offer(cell)

    def _wanted(self, cell: int) -> bool:
        return bool(self._pending[cell]) or self._next_use(cell) < _NEVER

    def _ends(self, cell: int) -> bool:
        return (self._next_use(cell) == _NEVER and not self._held[cell] and
                not self._problem.memory.to_end[cell])
