"""Schedules of the references as plans that our judge counts, and a simulator that counts them on its own."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Dict, List, Set, Tuple

from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import RematPlan, Step, without_unread


@dataclass(frozen=True)
class Stages:
    """(op of the backward part, cell) that is there when its stage begins, and (the same, op) that runs again in it."""
    held: Set[Tuple[int, int]]
    run: Set[Tuple[int, int]]


class _Writer:
    """A plan as it is written, step by step."""

    def __init__(self, problem: RematProblem) -> None:
        self.problem = problem
        self.plan = RematPlan([], list(range(len(problem.cells))))
        self.current = list(self.plan.cell_of)  # the latest instance of each cell
        self.there = [True] * len(self.current)

    def original(self, at: int) -> None:
        reads = tuple(self.current[c] for c in self.problem.memory.touches[at])
        self.plan.steps.append(Step(at, False, reads, ()))

    def clone(self, op: int) -> None:
        """Makes what is not there."""
        reads = tuple(self.current[c] for c in self.problem.operands[op])
        made = [c for c in self.problem.results[op] if not self.there[c]]
        for cell in made:
            self.current[cell] = len(self.plan.cell_of)
            self.plan.cell_of.append(cell)
            self.there[cell] = True
        self.plan.steps.append(Step(op, True, reads, tuple(self.current[c] for c in made)))


def plan_of_stages(problem: RematProblem, chosen: Stages) -> RematPlan:
    """The steps of a solution of Checkmate's program."""
    writer = _Writer(problem)
    cells = {cell for _, cell in chosen.held} | {c for cells in problem.results for c in cells}
    for at in range(len(problem)):
        if at >= problem.boundary:
            for cell in cells:
                writer.there[cell] = (at, cell) in chosen.held
            for op in sorted(op for stage, op in chosen.run if stage == at):
                writer.clone(op)
        writer.original(at)
    return without_unread(problem, writer.plan)


def plan_of_checkpoints(problem: RematProblem, kept: Collection[int]) -> RematPlan:
    """The forward part drops all but the cells of `kept`, and what the last of them is followed by; what a gradient then misses is made
    from what is there, with all on the way, which stays until its own gradient (Chen et al., 2016)."""
    keeps, producer = set(kept), problem.producer
    after = max((producer[c] for c in keeps), default=-1)
    writer = _Writer(problem)
    last: Dict[int, List[int]] = {}
    for cell, users in enumerate(problem.memory.users):
        if users and producer[cell] >= 0 and not problem.memory.to_end[cell]:
            last.setdefault(users[-1], []).append(cell)
            writer.there[cell] = cell in keeps or producer[cell] > after
    for at in range(len(problem)):
        if at >= problem.boundary:
            for op in _to_run(problem, writer, at):
                writer.clone(op)
        writer.original(at)
        for cell in last.get(at, ()) if at >= problem.boundary else ():
            writer.there[cell] = cell in keeps
    return without_unread(problem, writer.plan)


def _to_run(problem: RematProblem, writer: _Writer, at: int) -> List[int]:
    """Ops that make what `at` misses, in the order of the program. What can't be made again was never dropped."""
    found: Set[int] = set()
    wanted = [c for c in problem.memory.touches[at] if c < len(writer.there)]
    while wanted:
        cell = wanted.pop()
        op = problem.producer[cell]
        if writer.there[cell] or op in found:
            continue
        if op < 0 or problem.deadline[op] < at:
            writer.there[cell] = True
            continue
        found.add(op)
        wanted.extend(problem.operands[op])
    return sorted(found)


def simulated(problem: RematProblem, plan: RematPlan) -> Tuple[int, float]:
    """(peak bytes, seconds computed again) of `plan`, step after step: an instance lives from the step that makes it to the last that
    touches it, and is the same memory where a dying operand may be taken over.

    Raises ValueError where a step reads what was not made, or makes what cannot be made again.
    """
    memory, cells = problem.memory, len(problem.cells)
    first, last = _lives(problem, plan)
    live = {c for c in range(cells) if memory.from_start[c]}
    left, peak, seconds = 0, 0, 0.0
    born = {i for i in range(cells) if i in first}
    for number, step in enumerate(plan.steps):
        touched = set(step.reads) | set(step.writes)
        starts = {i for i in touched if first[i] == number and i not in live}
        _check(problem, plan, step, number, first, born)
        ends = {i for i in touched if last[i] == number}
        of = {plan.cell_of[i]: i for i in touched}
        shared, taken = 0, set()  # type: int, Set[int]
        for a, b in memory.pairs[step.op]:
            pair = {of.get(a), of.get(b)}
            if of.get(a) in ends and of.get(b) in starts and not pair & taken:
                taken |= pair  # type: ignore[arg-type]
                shared += memory.sizes[b]
        live |= starts
        during = problem.scratch[step.op] if step.clone else memory.transient[step.op]
        here = sum(memory.sizes[plan.cell_of[i]] for i in live)
        peak = max(peak, here - shared + during + left)
        live -= ends
        left += 0 if step.clone else memory.leaves[step.op] - memory.collects[step.op]
        seconds += problem.seconds[step.op] if step.clone else 0.0
    return int(peak), seconds


def _lives(problem: RematProblem, plan: RematPlan) -> Tuple[Dict[int, int], Dict[int, int]]:
    memory, end = problem.memory, len(plan.steps)
    first: Dict[int, int] = {}
    last: Dict[int, int] = {}
    for number, step in enumerate(plan.steps):
        for instance in (*step.reads, *step.writes):
            first.setdefault(instance, number)
            last[instance] = number
    for cell in range(len(problem.cells)):
        if memory.from_start[cell]:
            first[cell] = -1
            last.setdefault(cell, 0)
        if memory.to_end[cell] and cell in first:
            last[cell] = end
    return first, last


def _check(problem: RematProblem, plan: RematPlan, step: Step, number: int, first: Dict[int, int],
           born: Set[int]) -> None:
    cells = len(problem.cells)
    if not step.clone:
        if step.writes or tuple(plan.cell_of[i] for i in step.reads) != tuple(
                problem.memory.touches[step.op]):
            raise ValueError(f"step {number} is not op {step.op}")
    elif not problem.results[step.op] or {plan.cell_of[i] for i in step.reads} != set(
            problem.operands[step.op]):
        raise ValueError(f"step {number} cannot run op {step.op} again")
    for instance in step.reads:
        if instance >= cells and instance not in born:
            raise ValueError(f"step {number} reads {instance} before it is made")
    for instance in step.writes:
        if plan.cell_of[instance] not in problem.results[step.op] or first[instance] != number:
            raise ValueError(f"step {number} does not make {instance}")
        born.add(instance)
