"""One program at several budgets: ours, bounds and references, in seconds computed again and bytes as our judge counts them."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

from benchmarks.optimum import fewest_extra
from benchmarks.programs import Case
from benchmarks.references.checkmate import NANOSECONDS, Checkmate, clonable
from benchmarks.references.heuristics import RULES, cheapest, points
from benchmarks.references.schedules import plan_of_stages
from benchmarks.references.windows import least_seconds_in_windows
from transpiler.passes.remat.bound import least_seconds
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import profile
from transpiler.planning.fitting import Fitter

_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_SHARES = (1.0, 0.9)  # of the budget, for the relaxation that is rounded: the paper takes 0.9
_WHOLE = 1 << 14
_EQUAL = 1e-9  # seconds that are no difference


@dataclass(frozen=True)
class Limits:
    """Seconds for each integer program and each relaxation of the whole, and variables beyond which neither is tried."""
    integer_seconds: float = 20.0
    relaxed_seconds: float = 60.0
    integer_variables: int = 8_000
    relaxed_variables: int = 30_000


@dataclass(frozen=True)
class Row:
    """One budget: `peak` bytes above resting, without what the runtime frees late. All else is seconds computed again.

    `printed` is the bound that a report prints, `bound` the better one of windows, and `optimum` that of Checkmate's program, both
    in the order of the program that ours picked; `proved` says that it is the optimum, and otherwise it is the best that was
    found, and none is below `floor`. None: nothing was found, or it was not tried.
    """
    name: str
    peak: int
    step: float
    ours: Optional[float]
    printed: float
    bound: float
    optimum: Optional[float]
    floor: float
    proved: bool
    rounded: Optional[float]
    references: Mapping[str, Optional[float]] = field(default_factory=dict)

    @property
    def lowest(self) -> float:
        """No plan in this order takes less, as far as was proved."""
        return max(self.bound, self.printed, self.floor)

    @property
    def beaten_by(self) -> List[str]:
        """The references that are better than ours."""
        found = {**self.references, "checkmate": self.optimum, "rounding": self.rounded}
        ours = float("inf") if self.ours is None else self.ours
        return [name for name, each in found.items() if each is not None and each < ours - _EQUAL]

    @property
    def within(self) -> Optional[bool]:
        """Whether ours is within 5 % of a proved optimum, or else within 15 % of the bound; None without a plan."""
        if self.ours is None:
            return None
        if self.proved and self.optimum is not None:
            return self.ours <= 1.05 * self.optimum + _EQUAL
        return self.ours <= 1.15 * self.lowest + _EQUAL


def choice(case: Case) -> Tuple[Fitter, float]:
    """All plans that budgets pick from, and the seconds of a step as it is."""
    from transpiler.backends.installed import live_programs
    from transpiler.ir.whole_rows import count_whole_rows
    from transpiler.planning import PlanOptions, choice_for_budgets
    from transpiler.request import Request
    backend = live_programs(case.main)
    with backend.session():
        imported = backend.read(case.main, frozenset(case.fetch), frozenset())
        request = Request(list(case.fetch), None, case.batch_size, case.trip_count)
        dims, _ = request.sizes(imported.graph, imported.inputs)
        count_whole_rows(imported.graph, dims)
        backend.run_kernels(imported)
        options = PlanOptions(recompute="max", cost=backend.cost or PlanOptions().cost)
        step = options.cost.region_seconds(imported.graph, 0, dims)
        return choice_for_budgets(imported.graph, backend.runtime, dims, options), step


def compared(name: str, case: Case, count: int, limits: Limits) -> Iterator[Row]:
    """Rows for `count` budgets, evenly from the least that any method reaches to where nothing runs again. They are rounded up: no
    plan shall miss one by the bytes of a scalar."""
    fitter, step = choice(case)
    untouched = [each for each in fitter.choice if not each.rung.plan.clones]
    tables = _tables([each.problem for each in untouched])
    most = min(each.peak for each in untouched)
    least = min([c.peak for c in fitter.choice] +
                [peak for table in tables.values() for peak, _ in table],
                default=most)
    for number in range(count):
        peak = -(-(least + (most - least) * number // max(1, count - 1)) // _WHOLE) * _WHOLE
        yield _row(name, fitter, peak, step, tables, limits)


def _tables(problems: List[RematProblem]) -> Dict[str, List[Tuple[int, float]]]:
    """(peak, seconds) of all plans of each rule, over all orders that ours starts from."""
    found: Dict[str, List[Tuple[int, float]]] = {}
    for problem in problems:
        for rule, make in RULES.items():
            for kind, ops in (("linear", clonable(problem)), ("points", points(problem))):
                found.setdefault(f"{rule}, {kind}", []).extend(
                    (profile(problem, plan).peak, plan.seconds) for plan in make(problem, ops))
    return found


def _row(name: str, fitter: Fitter, peak: int, step: float,
         tables: Mapping[str, List[Tuple[int, float]]], limits: Limits) -> Row:
    picked = fitter.cheapest(peak)
    problem = (picked or fitter.choice[0]).problem
    references = {rule: cheapest(table, peak) for rule, table in tables.items()}
    if name.startswith(("tanh", "chain")):
        references["revolve"] = _revolve(problem, peak)
    optimum, floor, proved, rounded = _checkmate(problem, peak, limits)
    return Row(name, peak, step, picked.seconds if picked else None, least_seconds(problem, peak),
               least_seconds_in_windows(problem, peak), optimum, floor, proved, rounded, references)


def _revolve(problem: RematProblem, peak: int) -> Optional[float]:
    """Of a chain of tanh: as many of its tensors as fit, by `benchmarks.optimum`."""
    ops = [
        op for op in clonable(problem)
        if problem.memory.sizes[problem.results[op][0]] == max(problem.memory.sizes)
    ]
    tensor = max(problem.memory.sizes)
    extra = fewest_extra(len(ops), peak // tensor)
    return None if extra is None else extra * problem.seconds[ops[-1]]


def _checkmate(problem: RematProblem, peak: int,
               limits: Limits) -> Tuple[Optional[float], float, bool, Optional[float]]:
    """(the best plan of its program, none below, it is the optimum, the best of the relaxation rounded)."""
    model = Checkmate(problem, peak)
    if model.size > limits.relaxed_variables:
        return None, 0.0, False, None
    rounded = _rounded(problem, peak, limits)
    if model.size > limits.integer_variables:
        return None, 0.0, False, rounded
    solved = model.linear.solved(limits.integer_seconds)
    if not solved.values:
        return None, solved.bound / NANOSECONDS, solved.proved, rounded
    plan = plan_of_stages(problem, model.solution(solved))
    if profile(problem, plan).peak > peak:
        raise AssertionError("Checkmate's program counts less than the judge")
    return plan.seconds, solved.bound / NANOSECONDS, solved.proved, rounded


def _rounded(problem: RematProblem, peak: int, limits: Limits) -> Optional[float]:
    found = []
    for share in _SHARES:
        model = Checkmate(problem, int(peak * share))
        solved = model.linear.relaxed(limits.relaxed_seconds)
        plans = [model.rounded(solved, threshold) for threshold in _THRESHOLDS
                ] if solved.values else []
        found += [(profile(problem, plan).peak, plan.seconds) for plan in plans]
    return cheapest(found, peak)
