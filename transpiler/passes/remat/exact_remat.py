"""The cheapest plan under a limit, proved: for small programs, by constraint programming.

The formulation is Checkmate's (Jain et al., MLSys 2020) with the stages that can matter only: before each op behind the boundary
every op ahead of it that may be cloned can run once more, in program order. `live[step, cell]` says which cells are in memory at
each of these steps. Solved by OR-Tools CP-SAT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set, Tuple

from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import (RematPlan, Step, bytes_before, fixed_bytes, profile)

if TYPE_CHECKING:  # loading it takes half a second and 60 MB, and only budgets on small programs need it
    from ortools.sat.python import cp_model

# More than this and the model (clones * backward ops * cells) is too large to be solved in a moment.
_MOST_VARIABLES = 4_000
# Work, not wall time: the same program gets the same plan on every machine. A unit is about a second.
_DETERMINISTIC_TIME = 0.5
_NANOSECONDS = 1e9

_Key = Tuple[int, int]  # (position of the op, clone or op itself)


@dataclass
class _Model:
    """`runs[at, op]`: op is cloned before position `at`. `live[at, step, cell]`, step -1 being the op at `at` itself."""

    solver: cp_model.CpModel
    runs: Dict[_Key, Any]
    live: Dict[Tuple[int, int, int], Any]


def is_small(problem: RematProblem) -> bool:
    """Whether `cheapest` can be expected to answer."""
    clones, cells = len(_clonable(problem)), len(_free_cells(problem))
    return 0 < clones * cells * (len(problem) - problem.boundary) <= _MOST_VARIABLES


def cheapest(problem: RematProblem, limit: int) -> Optional[RematPlan]:
    """The plan of least extra time that needs at most `limit` bytes; None if there is none, or none was proved in time."""
    from ortools.sat.python import cp_model
    model = _build(problem, limit)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = _DETERMINISTIC_TIME
    if solver.Solve(model.solver) != cp_model.OPTIMAL:
        return None
    plan = _plan(problem, model, solver)
    return plan if profile(problem, plan).peak <= limit else None


def _clonable(problem: RematProblem) -> List[int]:
    return [op for op, cells in enumerate(problem.results) if cells]


def _free_cells(problem: RematProblem) -> List[int]:
    """Cells that a clone can make, or may read after their last use: all others exist as in the untouched program."""
    made = {cell for cell, op in enumerate(problem.producer) if op >= 0}
    read = {c for op in _clonable(problem) for c in problem.operands[op]}
    return sorted(made.union(c for c in read if not problem.memory.to_end[c]))


def _build(problem: RematProblem, limit: int) -> _Model:
    from ortools.sat.python import cp_model
    model = cp_model.CpModel()
    clones, cells = _clonable(problem), _free_cells(problem)
    stages = range(problem.boundary, len(problem))
    runs = {(at, op): model.NewBoolVar('') for at in stages for op in clones if op < at}
    live = {
        (at, step, c): model.NewBoolVar('')
        for at in stages for step in _steps(clones, at) for c in cells
    }
    built = _Model(model, runs, live)
    fixed = list(fixed_bytes(problem, cells))
    waiting = bytes_before(problem, cells)
    keys = [(at, step) for at in stages for step in _steps(clones, at)]
    states = [_live_at(built, key, cells) for key in keys]
    before = _there(problem.memory.from_start, cells)
    if problem.boundary:
        before = {c: model.NewBoolVar('') for c in cells}
        _forward(problem, model, before, fixed, limit)
    for key, state, after in zip(keys, states, [*states[1:], _there(problem.memory.to_end, cells)]):
        _step(problem, built, key, before)
        at, step = key
        size = sum(problem.memory.sizes[c] * state[c] for c in cells)
        for source, taken in _in_place(problem, built, key, before, after):
            size -= problem.memory.sizes[source] * taken
        if step >= 0:
            size += problem.scratch[step] * runs[key]
        model.Add(size + int((fixed if step < 0 else waiting)[at]) <= limit)
        before = state
    model.Minimize(
        sum(int(problem.seconds[op] * _NANOSECONDS) * run for (_, op), run in runs.items()))
    return built


def _steps(clones: List[int], at: int) -> Tuple[int, ...]:
    """What can run at a stage: clones of earlier ops, and then the op itself."""
    return (*(op for op in clones if op < at), -1)


def _live_at(model: _Model, key: _Key, cells: List[int]) -> Dict[int, Any]:
    return {c: model.live[key[0], key[1], c] for c in cells}


def _there(cells_there: List[bool], cells: List[int]) -> Dict[int, Any]:
    return {c: int(cells_there[c]) for c in cells}


def _step(problem: RematProblem, model: _Model, key: _Key, before: Dict[int, Any]) -> None:
    """What must be in memory at one step, and where it may come from."""
    at, step = key
    runs = model.runs.get(key)
    for cell, was_live in before.items():
        now = model.live[at, step, cell]
        makes = problem.producer[cell] == step if step >= 0 else _is_born(problem, cell, at)
        model.solver.Add(now <= was_live + ((runs if step >= 0 else 1) if makes else 0))
        if step < 0 and cell in problem.memory.touches[at]:
            model.solver.Add(now == 1)
        if step >= 0 and (makes or cell in problem.operands[step]):
            # The result of a clone and of nothing else is in memory while it runs.
            model.solver.AddImplication(runs, now)
    if step >= 0 and problem.deadline[step] < at:
        model.solver.Add(runs == 0)


def _is_born(problem: RematProblem, cell: int, at: int) -> bool:
    """Whether the op at `at` of the program makes `cell`."""
    return problem.memory.users[cell][:1] == [at] and not problem.memory.from_start[cell]


def _in_place(problem: RematProblem, model: _Model, key: _Key, before: Dict[int, Any],
              after: Dict[int, Any]) -> List[Tuple[int, Any]]:
    """(cell, whether the step makes its result in the memory of it): the cell goes, and the result was not there."""
    at, step = key
    found: List[Tuple[int, Any]] = []
    used: Set[int] = set()
    for source, target in problem.memory.pairs[at if step < 0 else step]:
        if step < 0:
            makes = _is_born(problem, target, at)
        else:
            makes = problem.producer[target] == step and target in before
        if makes and source in before and not {source, target} & used:
            used |= {source, target}
            taken = model.solver.NewBoolVar('')
            model.solver.Add(taken + after[source] <= 1)
            if step >= 0:
                model.solver.AddImplication(taken, model.runs[key])
                model.solver.Add(taken + before[target] <= 1)
                model.solver.AddImplication(taken, model.live[at, step, target])
            found.append((source, taken))
    return found


def _forward(problem: RematProblem, model: cp_model.CpModel, kept: Dict[int, Any], fixed: List[int],
             limit: int) -> None:
    """Until its last use in the forward part, if there is one, a cell is there; from then on only if it is kept."""
    last = {c: max(u for u in problem.memory.users[c] if u < problem.boundary) for c in kept}
    first = {c: problem.memory.users[c][0] for c in kept}
    for at in range(problem.boundary):
        there = sum(problem.memory.sizes[c] for c in kept if first[c] <= at <= last[c])
        waiting = [c for c in kept if last[c] < at]
        size = sum(problem.memory.sizes[c] * kept[c] for c in waiting)
        model.Add(size + there + int(fixed[at]) <= limit)


def _plan(problem: RematProblem, model: _Model, solver: cp_model.CpSolver) -> RematPlan:
    """The steps of the solution. A cell that a clone makes while it is in memory is a clone for nothing: left out."""
    plan = RematPlan([], list(range(len(problem.cells))))
    current = list(plan.cell_of)
    clones = _clonable(problem)
    for at in range(len(problem)):
        for op in clones:
            if (at, op) in model.runs and solver.Value(model.runs[at, op]):
                reads = tuple(current[c] for c in problem.operands[op])
                for cell in problem.results[op]:
                    current[cell] = len(plan.cell_of)
                    plan.cell_of.append(cell)
                writes = tuple(current[c] for c in problem.results[op])
                plan.steps.append(Step(op, True, reads, writes))
                plan.seconds += problem.seconds[op]
        touched = tuple(current[c] for c in problem.memory.touches[at])
        plan.steps.append(Step(at, False, touched, ()))
    return plan
