"""A rematerialization plan as data, and the judge of plans: bytes at each step, as the Timeline counts them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Set, Tuple

import numpy

from transpiler.passes.remat.problem import RematProblem


@dataclass
class Step:
    """One run of an op. `reads` and `writes` are instances; a clone writes new ones of cells that were there before."""

    op: int
    clone: bool
    reads: Tuple[int, ...]
    writes: Tuple[int, ...]


@dataclass
class RematPlan:
    """Steps in order. Instance i < number of cells is cell i itself, the others are copies: `cell_of[i]`."""

    steps: List[Step]
    cell_of: List[int]
    seconds: float = field(default=0.0)  # of all clones

    @property
    def clones(self) -> int:
        return sum(step.clone for step in self.steps)


@dataclass
class Profile:
    """Bytes while each step runs, the first and the last step of each instance, and who took over whose allocation.

    `heir[i]` is the instance that took over that of i, -1 if none did.
    """

    bytes: numpy.ndarray
    first: List[int]
    last: List[int]
    heir: Dict[int, int]

    @property
    def peak(self) -> int:
        return int(self.bytes.max()) if len(self.bytes) else 0


def untouched(problem: RematProblem) -> RematPlan:
    """The plan that computes nothing again."""
    steps = [Step(op, False, cells, ()) for op, cells in enumerate(problem.memory.touches)]
    return RematPlan(steps, list(range(len(problem.cells))))


def profile(problem: RematProblem, plan: RematPlan) -> Profile:
    """Runs `plan` and counts. O(steps + touches)."""
    runs = _Runs(problem, plan)
    first, last = runs.spans()
    heir = runs.heirs(first, last)
    sizes = numpy.array(problem.memory.sizes, float)[plan.cell_of]
    starts, ends = sizes.copy(), sizes
    starts[list(heir.values())] = 0
    ends[list(heir)] = 0
    count, lives = len(plan.steps), first >= 0
    before = numpy.bincount(first[lives], starts[lives], count)
    after = numpy.bincount(last[lives], ends[lives], count)
    during = numpy.array(problem.memory.transient, float)[runs.ops]
    during[runs.clones] = numpy.array(problem.scratch, float)[runs.ops[runs.clones]]
    left = numpy.array(problem.memory.leaves, float) - problem.memory.collects
    after -= numpy.where(runs.clones, 0.0, left[runs.ops])
    live = numpy.cumsum(before) - numpy.cumsum(after) + after
    return Profile(live + during, first.tolist(), last.tolist(), heir)


class _Runs:
    """A plan as arrays: the op of each step, and an entry for each instance of each step."""

    def __init__(self, problem: RematProblem, plan: RematPlan) -> None:
        self._problem = problem
        self._plan = plan
        steps = plan.steps
        self.ops = numpy.array([step.op for step in steps], numpy.int64)
        self.clones = numpy.array([step.clone for step in steps], bool)
        instances = [step.reads + step.writes for step in steps]
        self._cell_of = numpy.array(plan.cell_of, numpy.int64)
        self._instance = numpy.fromiter(itertools.chain.from_iterable(instances), numpy.int64)
        lengths = numpy.array(list(map(len, instances)), numpy.int64)
        self._step = numpy.repeat(numpy.arange(len(steps)), lengths)
        place = numpy.arange(len(self._step)) - numpy.repeat(
            numpy.cumsum(lengths) - lengths, lengths)
        self._read = place < numpy.array([len(step.reads) for step in steps])[self._step]

    def spans(self) -> Tuple[numpy.ndarray, numpy.ndarray]:
        """First and last step of each instance, -1 if there is none."""
        first = numpy.full(len(self._plan.cell_of), -1)
        last = first.copy()
        # Of equal indices numpy keeps the last assignment.
        first[self._instance[::-1]] = self._step[::-1]
        last[self._instance] = self._step
        memory, cells = self._problem.memory, len(self._problem.cells)
        from_start = numpy.flatnonzero(memory.from_start)
        first[from_start] = 0
        last[from_start] = numpy.maximum(last[from_start], 0)
        to_end = numpy.array(memory.to_end, bool) & (first[:cells] >= 0)
        last[numpy.flatnonzero(to_end)] = len(self._plan.steps) - 1
        return first, last

    def heirs(self, first: numpy.ndarray, last: numpy.ndarray) -> Dict[int, int]:
        """Who takes over whose allocation: an instance that is born where the other one dies."""
        pairs = self._problem.memory.pairs
        counts = numpy.array(list(map(len, pairs)))[self.ops]
        steps = numpy.flatnonzero(counts)
        wanted = [pair for op in self.ops[steps].tolist() for pair in pairs[op]]
        if not wanted:
            return {}
        at = numpy.repeat(steps, counts[steps])
        sources, targets = numpy.array(wanted).T
        dying = self._find(at, sources, (self._step == last[self._instance]) & self._read)
        born = self._find(at, targets, self._step == first[self._instance])
        both = (dying >= 0) & (born >= 0)
        heir: Dict[int, int] = {}
        taken: Set[int] = set()
        for a, b in zip(dying[both].tolist(), born[both].tolist()):
            if a not in heir and b not in taken:
                heir[a] = b
                taken.add(b)
        return heir

    def _find(self, steps: numpy.ndarray, cells: numpy.ndarray,
              among: numpy.ndarray) -> numpy.ndarray:
        """The instance of each of `cells` at the step beside it, looked for `among` some entries; -1 if there is none."""
        count = len(self._problem.cells)
        instances = self._instance[among]
        keys = self._step[among] * count + self._cell_of[instances]
        order = numpy.argsort(keys)
        keys, instances = numpy.append(keys[order], -1), numpy.append(instances[order], -1)
        wanted = steps * count + cells
        found = numpy.searchsorted(keys[:-1], wanted)
        return numpy.where(keys[found] == wanted, instances[found], -1)


def fixed_bytes(problem: RematProblem, free: Iterable[int]) -> numpy.ndarray:
    """Bytes at each op of the untouched program, without those of the cells of `free`."""
    found = profile(problem, untouched(problem))
    change = numpy.zeros(len(problem) + 1)
    for cell in free:
        if found.first[cell] >= 0:
            change[found.first[cell]] += problem.memory.sizes[cell]
            change[found.last[cell] +
                   (0 if cell in found.heir else 1)] -= problem.memory.sizes[cell]
    return found.bytes - numpy.cumsum(change)[:-1]


def least_peak(problem: RematProblem) -> int:
    """No plan has a lower peak: what can't be dropped is there, and what an op touches, but for what it works in place on."""
    fixed = fixed_bytes(problem, [c for c, op in enumerate(problem.producer) if op >= 0])
    for at, cells in enumerate(problem.memory.touches):
        heirs = {b for _, b in problem.memory.pairs[at]}
        fixed[at] += sum(
            problem.memory.sizes[c] for c in cells if problem.producer[c] >= 0 and c not in heirs)
    return int(fixed.max()) if len(fixed) else 0
