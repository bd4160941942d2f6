"""Offsets within a given capacity by OR-Tools' CP-SAT: one `no_overlap` of intervals of bytes for each section of time."""
from __future__ import annotations

from typing import Optional, Tuple

import numpy as np

from transpiler.assignment.packing_kernel import Problem


def solve(problem: Problem, capacity: int, seconds: float) -> Tuple[Optional[np.ndarray], bool]:
    """(offsets int64 (n,) with every top at most `capacity` or None, whether that is decided), on one thread, by the clock."""
    from ortools.sat.python import cp_model
    if int(problem.size.max()) > capacity:
        return None, True
    model = cp_model.CpModel()
    offsets = [model.NewIntVar(0, capacity - size, '') for size in problem.size.tolist()]
    bytes_ = [
        model.NewFixedSizeIntervalVar(offset, size, '')
        for offset, size in zip(offsets, problem.size.tolist())
    ]
    for first, last in zip(problem.member_at[:-1].tolist(), problem.member_at[1:].tolist()):
        model.AddNoOverlap([bytes_[i] for i in problem.members[first:last].tolist()])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = max(seconds, 0.0)
    status = solver.Solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return np.array([solver.Value(offset) for offset in offsets], dtype=np.int64), True
    return None, status == cp_model.INFEASIBLE
