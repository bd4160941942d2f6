"""Drops values when memory runs short and computes them again when they are needed.

A simulation of the program under a limit in bytes, in the order that is kept. Before an op that does not fit, the values
that cost least to have again, for their bytes and for the time until they are needed, are dropped: the heuristic of
Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021), but with the future known, so that the distance to the next
use (Belady 1966) stands in the place of staleness. Chains come out segmented, as in Chen et al. 2016.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Collection, FrozenSet, List, Mapping, Optional, Set, Tuple

from transpiler.analysis.memory_profile import turnover
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import RematPlan, Step
from transpiler.passes.remat.turns import NEVER, Start, Turns

# A search for what must run again gives up here; what costs more is not dropped.
_MOST_OPS = 256
Guards = Mapping[int, Tuple[Tuple[int, int], ...]]  # spans of positions, by cell


@dataclass(frozen=True)
class Eviction:
    """How to choose: `limit` in bytes, values dropped in any case, the weight of the distance to the next use (a power), and by
    cell from which position to which it stays once it is there.

    A plan whose peak is not below `hopeless` bytes, or that computes more than `most_seconds` again, is of no interest.
    """

    limit: float
    hopeless: float = float('inf')
    most_seconds: float = float('inf')
    dropped: FrozenSet[int] = frozenset()
    distance_power: float = 1.0
    guarded: Guards = field(default_factory=dict)


def evict(problem: RematProblem,
          how: Eviction,
          turns: Optional[Turns] = None) -> Optional[RematPlan]:
    """The plan that the simulation comes to. It may need more than the limit where nothing can be dropped.

    None as soon as it is of no interest. `turns` are those of `problem` and of this power of the distance.
    """
    return _Simulation(problem, how, turns or Turns(problem, how.distance_power)).run()


def dropped_at(problem: RematProblem, at: int, limit: float, turns: Turns) -> FrozenSet[int]:
    """What goes if all room for the op at `at` is made there, from what the program has kept up to it: what costs least for its bytes,
    wherever it is read next. `turns` may be of any power of the distance: no rate in them is above that.

    Where room is made as soon as memory runs short, what exists by then goes, although what costs less may come to be.
    """
    how = Eviction(limit, distance_power=0.0)
    return _Simulation(problem, how, turns, turns.until(at)).gone()


class _Simulation:

    def __init__(self,
                 problem: RematProblem,
                 how: Eviction,
                 turns: Turns,
                 start: Optional[Start] = None) -> None:
        """Of the run behind `start`, or of that from the first op that does not fit."""
        self._problem = problem
        self._how = how
        self._guarded = how.guarded
        self._turns = turns
        self._sizes = problem.memory.sizes
        self._last = turns.last
        start = start or (turns.until(0) if how.dropped else turns.start(how.limit))
        self._at = start.at
        self._live, self._highest = start.live, start.highest
        self._current = start.current  # instance that is in memory
        self._following = start.following  # next use by the program, of what can be made again
        self._candidates = start.offers
        cells = len(problem.cells)
        self._latest = list(range(cells))
        self._needed_by = [NEVER] * cells  # position of the first rebuild that will read it
        # To the end, or although it is dead for the program: a rebuild will read it.
        self._stays = list(problem.memory.to_end)
        self._pending = [0] * cells  # reads to come in the rebuild under way
        self._plan = RematPlan(turns.steps[:start.at], list(range(cells)))

    def run(self) -> Optional[RematPlan]:
        for at in range(self._at, len(self._problem)):
            if self._is_hopeless():
                return None
            self._at = at
            self._original(at)
        return None if self._is_hopeless() else self._plan

    def gone(self) -> FrozenSet[int]:
        """What is dropped at once for the op that the run begins with."""
        there = [cell for cell, instance in enumerate(self._current) if instance >= 0]
        self._make_room(self._turns.needed[self._at])
        return frozenset(cell for cell in there if self._current[cell] < 0)

    def _is_hopeless(self) -> bool:
        return self._highest >= self._how.hopeless or self._plan.seconds > self._how.most_seconds

    # -- ops of the program -----------------------------------------------------------------------

    def _original(self, at: int) -> None:
        memory, turns, current = self._problem.memory, self._turns, self._current
        touched, born = memory.touches[at], turns.born[at]
        runs = [current[c] for c in touched]
        if runs.count(-1) > len(born):
            self._rebuild([c for c in touched if current[c] < 0 and c not in born])
        needed, dying = turns.needed[at], turns.dying[at]
        kept = [c for c in dying if self._stays[c] or self._is_guarded(c)] if dying else ()
        if kept:
            dying = [c for c in dying if c not in kept]
            needed = self._allocated(at, born, dying) + memory.transient[at]
        if self._live + needed > self._how.limit:
            self._make_room(needed)
        if self._live + needed > self._highest:
            self._highest = self._live + needed
        for cell in born:
            current[cell] = cell
            self._live += self._sizes[cell]
        runs = tuple([current[c] for c in touched])
        same = runs == touched
        self._plan.steps.append(turns.steps[at] if same else Step(at, False, runs, ()))
        self._live += memory.leaves[at] - memory.collects[at]
        for cell in dying:
            self._forget(cell)
        self._take_turns(at)

    def _take_turns(self, at: int) -> None:
        dropped, needed_by, candidates = self._how.dropped, self._needed_by, self._candidates
        for cell, following, rate in self._turns.turns[at]:
            self._following[cell] = following
            if following == NEVER:
                continue
            if cell in dropped and at < self._problem.boundary and self._may_go(cell):
                self._drop(cell, *self._closure(cell))
            elif needed_by[cell] < following:
                self._offer(cell)
            else:
                heapq.heappush(candidates, (rate, cell))

    def _allocated(self, op: int, born: Collection[int], dying: Collection[int]) -> int:
        return turnover(self._sizes, born, dying, self._problem.memory.pairs[op])[0]

    def _forget(self, cell: int) -> None:
        if self._current[cell] >= 0:
            self._current[cell] = -1
            self._live -= self._sizes[cell]

    # -- choosing what to drop --------------------------------------------------------------------

    def _may_go(self, cell: int) -> bool:
        op, following = self._problem.producer[cell], self._following[cell]
        return (self._at < following < NEVER and self._current[cell] >= 0 and op >= 0 and
                self._problem.boundary <= following <= self._problem.deadline[op])

    def _offer(self, cell: int) -> None:
        op = self._problem.producer[cell]
        if op >= 0 and self._current[cell] >= 0 and self._following[cell] < NEVER:
            rate = self._rate(cell, self._problem.seconds[op], self._sizes[cell])
            heapq.heappush(self._candidates, (rate, cell))

    def _rate(self, cell: int, seconds: float, freed: int) -> float:
        distance = max(1, min(self._following[cell], self._needed_by[cell]) - self._at)
        return seconds / (max(1, freed) * distance**self._how.distance_power)

    def _make_room(self, needed: int) -> None:
        """Drops until `needed` bytes more fit, or nothing else can go."""
        candidates, limit = self._candidates, self._how.limit
        locked: Set[int] = set(self._problem.memory.touches[self._at])
        aside: List[Tuple[float, int]] = []
        while self._live + needed > limit and candidates:
            entry = heapq.heappop(candidates)
            cell = entry[1]
            if not self._may_go(cell):
                continue
            if cell in self._guarded and self._is_guarded(cell):
                aside.append(entry)
                continue
            if cell in locked or self._pending[cell]:
                if not (cell in locked and self._pending[cell]):
                    aside.append(entry)
                continue
            ops, kept = self._closure(cell)
            freed = self._sizes[cell] - sum([self._sizes[c] for c in kept])
            if freed <= 0 or len(ops) > _MOST_OPS:
                continue
            seconds = sum([self._problem.seconds[op] for op in ops]) + self._dependents(cell)
            rate = self._rate(cell, seconds, freed)
            if candidates and rate > candidates[0][0] and rate > entry[0]:
                heapq.heappush(candidates, (rate, cell))
            else:
                self._drop(cell, ops, kept)
        for entry in aside:
            heapq.heappush(candidates, entry)

    def _is_guarded(self, cell: int) -> bool:
        spans = self._guarded.get(cell, ())
        return any(start <= self._at <= end for start, end in spans)

    def _closure(self, cell: int) -> Tuple[List[int], List[int]]:
        """Ops that must run again to have `cell` at its next use, and cells to keep for them that would be gone."""
        when = self._following[cell]
        current, last, stays = self._current, self._last, self._stays
        producer, deadline = self._problem.producer, self._problem.deadline
        ops, kept, stack = {}, {}, [producer[cell]]
        while stack and len(ops) <= _MOST_OPS:
            op = stack.pop()
            if op in ops:
                continue
            ops[op] = None
            for operand in self._problem.operands[op]:
                # What is in memory and will still be there is read from there.
                if stays[operand] or current[operand] >= 0 and last[operand] >= when:
                    continue
                maker = producer[operand]
                if maker >= 0 and deadline[maker] >= when:
                    stack.append(maker)
                else:
                    kept[operand] = None
        return list(ops), list(kept)

    def _dependents(self, cell: int) -> float:
        """Seconds of what was dropped and would be made from `cell`: runs of dropped values shall not grow long."""
        readers, current, following = self._turns.readers, self._current, self._following
        total, seen, stack = 0.0, set(), [cell]
        while stack and len(seen) <= _MOST_OPS:
            for other in readers.get(stack.pop(), ()):
                # Not in memory, has been, and will be.
                if current[other] < 0 and self._turns.first[other] < following[other] < NEVER:
                    op = self._problem.producer[other]
                    if op not in seen:
                        seen.add(op)
                        total += self._problem.seconds[op]
                        stack.append(other)
        return total

    def _drop(self, cell: int, ops: List[int], kept: List[int]) -> None:
        when = min(self._following[cell], self._needed_by[cell])
        for op in ops:
            for operand in self._problem.operands[op]:
                self._needed_by[operand] = min(self._needed_by[operand], when)
        for operand in kept:
            if not self._stays[operand]:
                self._stays[operand] = True
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
        needed = self._allocated(op, made, ending) + spare + self._problem.scratch[op]
        if self._live + needed > self._how.limit:
            self._make_room(needed)
        self._highest = max(self._highest, self._live + needed)
        reads = tuple(self._current[c] for c in operands)
        for cell in made:
            self._latest[cell] = self._current[cell] = len(self._plan.cell_of)
            self._plan.cell_of.append(cell)
            self._live += self._sizes[cell]
            self._needed_by[cell] = NEVER
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
        return (bool(self._pending[cell]) or self._following[cell] < NEVER or
                self._is_guarded(cell))

    def _ends(self, cell: int) -> bool:
        return (self._last[cell] < self._at and not self._stays[cell] and
                not self._is_guarded(cell))
