"""A rematerialization plan as data, and the judge of plans: bytes at each step, as the Timeline counts them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Tuple

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
    first, last = _spans(problem, plan)
    starts, ends = numpy.zeros(len(plan.steps) + 1), numpy.zeros(len(plan.steps) + 1)
    during = numpy.zeros(len(plan.steps) + 1)
    heir, heirs = {}, set()
    for at, step in enumerate(plan.steps):
        for a, b in _handovers(problem, plan, step, at, first, last):
            if a not in heir and b not in heirs:
                heir[a] = b
                heirs.add(b)
        if step.clone:
            during[at] = problem.scratch[step.op]
        else:
            during[at] = problem.memory.transient[step.op]
            ends[at] += problem.memory.collects[step.op] - problem.memory.leaves[step.op]
    for instance, cell in enumerate(plan.cell_of):
        if first[instance] < 0:
            continue
        size = problem.memory.sizes[cell]
        if instance not in heirs:
            starts[first[instance]] += size
        if instance not in heir:
            ends[last[instance]] += size
    live = numpy.cumsum(starts) - numpy.concatenate(([0.0], numpy.cumsum(ends)[:-1]))
    return Profile((live + during)[:-1], first, last, heir)


def _spans(problem: RematProblem, plan: RematPlan) -> Tuple[List[int], List[int]]:
    first, last = [-1] * len(plan.cell_of), [-1] * len(plan.cell_of)
    for at, step in enumerate(plan.steps):
        for instance in step.reads + step.writes:
            if first[instance] < 0:
                first[instance] = at
            last[instance] = at
    end = len(plan.steps) - 1
    for cell in range(len(problem.cells)):
        if problem.memory.from_start[cell]:
            first[cell] = 0
            last[cell] = max(last[cell], 0)
        if problem.memory.to_end[cell] and first[cell] >= 0:
            last[cell] = end
    return first, last


def _handovers(problem: RematProblem, plan: RematPlan, step: Step, at: int, first: List[int],
               last: List[int]) -> List[Tuple[int, int]]:
    """(instance that dies, instance that is born) at `step` and may be one allocation."""
    pairs = problem.memory.pairs[step.op]
    if not pairs:
        return []
    # A clone may read and write the same cell only as different instances; an original op's own are in `reads`.
    dying = {plan.cell_of[i]: i for i in step.reads if last[i] == at}
    born = {plan.cell_of[i]: i for i in step.reads + step.writes if first[i] == at}
    return [(dying[a], born[b]) for a, b in pairs if a in dying and b in born]


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
