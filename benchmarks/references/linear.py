"""Linear programs with and without integers, built once and solved by OR-Tools: GLOP for the relaxation, CP-SAT for the rest."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional, Sequence, Tuple

from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

Term = Tuple[int, int]  # (coefficient, variable)


@dataclass(frozen=True)
class Solution:
    """`value` is the objective reached, None if there is none; no solution is below `bound`. `proved`: nothing is missing between them,
    or it is proved that there is no solution (`bound` is then infinite)."""
    value: Optional[float]
    bound: float
    proved: bool
    values: Tuple[float, ...] = ()


@dataclass
class Linear:
    """Minimize costs over integers from 0 to `upper`; each row is a sum that is at most its right side."""
    upper: List[int] = field(default_factory=list)
    costs: List[int] = field(default_factory=list)
    rows: List[Tuple[Sequence[Term], int]] = field(default_factory=list)

    def variable(self, upper: int = 1, cost: int = 0) -> int:
        self.upper.append(upper)
        self.costs.append(cost)
        return len(self.upper) - 1

    def at_most(self, terms: Sequence[Term], right: int) -> None:
        self.rows.append((terms, right))

    def relaxed(self, seconds: float) -> Solution:
        """The optimum if no variable need be an integer: a lower bound of the other."""
        solver = pywraplp.Solver.CreateSolver("GLOP")
        solver.SetTimeLimit(int(1000 * seconds))
        found = [solver.NumVar(0, upper, "") for upper in self.upper]
        for terms, right in self.rows:
            # Bytes and ones side by side are hard on a solver of floating point: each row in its own unit.
            unit = max((abs(coefficient) for coefficient, _ in terms), default=1)
            row = solver.Constraint(-solver.infinity(), right / unit)
            for coefficient, variable in terms:
                row.SetCoefficient(found[variable],
                                   row.GetCoefficient(found[variable]) + coefficient / unit)
        unit = max(1, *self.costs)
        for variable, cost in zip(found, self.costs):
            solver.Objective().SetCoefficient(variable, cost / unit)
        status = solver.Solve()
        if status == pywraplp.Solver.INFEASIBLE:
            return Solution(None, float("inf"), True)
        if status != pywraplp.Solver.OPTIMAL:
            return Solution(None, 0.0, False)
        value = solver.Objective().Value() * unit
        return Solution(value, value, True, tuple(v.solution_value() for v in found))

    def solved(self, seconds: float, hint: Sequence[int] = ()) -> Solution:
        """The optimum, or the best that was found in so many seconds, from `hint` on if one is given."""
        model = cp_model.CpModel()
        found = [model.NewIntVar(0, upper, "") for upper in self.upper]
        for terms, right in self.rows:
            model.Add(sum(coefficient * found[v] for coefficient, v in terms) <= right)
        model.Minimize(sum(cost * v for cost, v in zip(self.costs, found) if cost))
        for variable, value in zip(found, hint):
            model.AddHint(variable, value)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 4
        status = solver.Solve(model)
        if status == cp_model.INFEASIBLE:
            return Solution(None, float("inf"), True)
        bound = solver.BestObjectiveBound()
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Solution(None, max(0.0, bound), False)
        return Solution(solver.ObjectiveValue(), bound, status == cp_model.OPTIMAL,
                        tuple(float(solver.Value(v)) for v in found))
