"""The references of `benchmarks.references`: against brute force, and a simulator of their own, on graphs that no Paddle made."""
from __future__ import annotations

import itertools
import random
from typing import Any, Iterator, List, Optional, Tuple

import pytest

from benchmarks.optimum import reversal
from benchmarks.references.checkmate import NANOSECONDS, Checkmate, clonable, free_cells, stages
from benchmarks.references.compared import Row
from benchmarks.references.heuristics import RULES, points
from benchmarks.references.linear import Linear
from benchmarks.references.schedules import Stages, plan_of_stages, simulated
from benchmarks.references.windows import least_seconds_in_windows
from tests.passes.test_improve import _blocks
from tests.graphs import Draft
from tests.passes.test_recompute_main import _backward, _chain, _problem
from tests.passes.test_reversal import _chain as _chain_in_place
from transpiler.ir import Graph
from transpiler.passes.remat.bound import least_seconds
from transpiler.passes.remat.ladder import ladder
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import least_peak, profile, untouched

_SECONDS = 60.0


def _problems() -> Iterator[RematProblem]:
    for length in (1, 2, 3):
        yield _problem(_chain(length))
    for rows in ([1024] * 4, [1024, 2048, 1024, 1024], [2048, 1024, 3072, 1024]):
        yield _problem(_chain_in_place(rows))
    yield _problem(_blocks(1, 2048))


def _limits(problem: RematProblem) -> List[int]:
    """From below what any plan needs to what the program needs as it is."""
    low, high = least_peak(problem), profile(problem, untouched(problem)).peak
    return sorted({low - 1, low, (low + high) // 2, high - 1, high})


def _schedules(problem: RematProblem) -> List[Tuple[int, float]]:
    """(peak, seconds) of every choice of what runs again before which gradient.

    A copy serves all readers until there is a later one, and lives no longer than its last reader: so what is held follows from the runs.
    """
    found = []
    runs = [(stage, op) for stage in stages(problem) for op in clonable(problem)]
    for taken in itertools.product((False, True), repeat=len(runs)):
        run = {pair for pair, chosen in zip(runs, taken) if chosen}
        held = {(stage, cell)
                for stage in stages(problem)
                for cell in free_cells(problem)
                if (stage, problem.producer[cell]) not in run}
        found.append(simulated(problem, plan_of_stages(problem, Stages(held, run))))
    return found


def _brute_force(problem: RematProblem, limit: int, known: List[Tuple[int,
                                                                      float]]) -> Optional[float]:
    return min((seconds for peak, seconds in known if peak <= limit), default=None)


@pytest.mark.parametrize('number', range(7))
def test_the_integer_program_finds_the_optimum(number: int) -> None:
    problem = list(_problems())[number]
    if len(clonable(problem)) * len(stages(problem)) > 12:
        problem = _problem(_chain(2))
    known = _schedules(problem)
    assert len(known) > 1
    for limit in _limits(problem):
        solved = Checkmate(problem, limit).linear.solved(_SECONDS)
        best = _brute_force(problem, limit, known)
        assert solved.proved
        assert (solved.value is None) == (best is None)
        if best is not None:
            assert solved.value == pytest.approx(best * NANOSECONDS, abs=len(known))


@pytest.mark.parametrize('number', range(7))
def test_bounds_are_below_the_optimum_and_its_plan_keeps_to_the_limit(number: int) -> None:
    problem = list(_problems())[number]
    for limit in _limits(problem):
        model = Checkmate(problem, limit)
        solved = model.linear.solved(_SECONDS)
        relaxed = model.linear.relaxed(_SECONDS)
        assert solved.proved and relaxed.proved
        if not solved.values:
            continue
        assert relaxed.bound <= solved.value + 1
        best = solved.value / NANOSECONDS * (1 + 1e-6)
        assert least_seconds(problem, limit) <= best
        assert least_seconds_in_windows(problem, limit) <= best
        plan = plan_of_stages(problem, model.solution(solved))
        peak, seconds = simulated(problem, plan)
        assert peak == profile(problem, plan).peak <= limit
        assert seconds == pytest.approx(plan.seconds) and seconds <= best


@pytest.mark.parametrize('steps', range(3, 7))
def test_on_chains_the_integer_program_is_revolve(steps: int) -> None:
    """Beside checkpoints there are what is fed, a gradient, and the step at hand; the last gradient, which is fetched, has memory of its
    own, for which a fourth is needed."""
    problem = _problem(_chain_in_place([1024] * (steps + 1)))
    tensor, extra = problem.memory.sizes[0], problem.seconds[0]
    assert not Checkmate(problem, 3 * tensor).linear.solved(_SECONDS).values
    for slots in range(4, steps + 3):
        solved = Checkmate(problem, slots * tensor).linear.solved(_SECONDS)
        expected = max(0, reversal(steps, slots - 3) - steps)
        assert solved.proved and solved.value is not None
        assert solved.value == pytest.approx(expected * extra * NANOSECONDS, abs=10)


@pytest.mark.parametrize('rule', RULES)
def test_checkpoints_are_feasible_plans_that_the_simulator_counts_alike(rule: str) -> None:
    for problem in (_problem(_chain(9)), _problem(_blocks(5, 3072)),
                    _problem(_chain_in_place([1024, 2048, 1024, 4096, 1024]))):
        plans = [
            plan for ops in (clonable(problem), points(problem))
            for plan in RULES[rule](problem, ops)
        ]
        assert plans
        for plan in plans:
            peak, seconds = simulated(problem, plan)
            assert peak == profile(problem, plan).peak
            assert seconds == pytest.approx(plan.seconds)
            assert least_seconds_in_windows(problem, peak) <= seconds * (1 + 1e-6)


def test_what_is_rounded_is_a_plan_that_the_simulator_counts_alike() -> None:
    problem = _problem(_blocks(3, 2048))
    limit = (least_peak(problem) + profile(problem, untouched(problem)).peak) // 2
    model = Checkmate(problem, limit)
    solved = model.linear.relaxed(_SECONDS)
    for threshold in (0.1, 0.5, 0.9):
        plan = model.rounded(solved, threshold)
        peak, seconds = simulated(problem, plan)
        assert peak == profile(problem, plan).peak and seconds == pytest.approx(plan.seconds)


def test_the_simulator_agrees_with_the_judge_on_our_plans() -> None:
    graph = _blocks(6, 3072)
    problem = _problem(graph)
    rungs = ladder(graph, problem)
    assert len(rungs) > 3
    for rung in rungs:
        peak, seconds = simulated(problem, rung.plan)
        assert peak == rung.peak and seconds == pytest.approx(rung.seconds)


def test_the_simulator_refuses_what_was_not_made() -> None:
    problem = _problem(_chain(3))
    plan = plan_of_stages(
        problem, Stages(set(), {(s, o) for s in stages(problem) for o in clonable(problem)}))
    clone = next(at for at, step in enumerate(plan.steps) if step.clone)
    del plan.steps[clone]
    with pytest.raises(ValueError, match='before it is made'):
        simulated(problem, plan)


def _handed_on(length: int) -> Graph:
    """A chain in which each gradient is made in the memory of the value that it reads last."""
    draft = Draft()
    draft.value('x0', fed=True)
    for i in range(length):
        draft.value(f'x{i + 1}')
        draft.op('tanh', f'x{i}', f'x{i + 1}')
    draft.value(f'g{length}')
    _backward(draft, 'fill', '', f'g{length}')
    for i in range(length, 0, -1):
        draft.value(f'g{i - 1}')
        _backward(draft, 'tanh_grad', f'x{i} g{i}', f'g{i - 1}', in_place=((0, 0),))
    draft.graph.values[draft.id('g0')].fetched = True
    return draft.graph


@pytest.mark.parametrize('length', range(1, 6))
def test_bounds_are_nothing_where_the_program_fits_as_it_is(length: int) -> None:
    for graph in (_handed_on(length), _chain(length), _blocks(length, 2048)):
        problem = _problem(graph)
        peak = profile(problem, untouched(problem)).peak
        assert least_peak(problem) <= peak
        assert least_seconds(problem, peak) == 0
        assert least_seconds_in_windows(problem, peak) < 1e-12


@pytest.mark.parametrize('length', (2, 3))
def test_bounds_hold_where_gradients_are_made_in_the_memory_of_values(length: int) -> None:
    problem = _problem(_handed_on(length))
    known = _schedules(problem)
    for limit in _limits(problem):
        best = _brute_force(problem, limit, known)
        if best is not None:
            assert least_seconds(problem, limit) <= best * (1 + 1e-6)
            assert least_seconds_in_windows(problem, limit) <= best * (1 + 1e-6)


@pytest.mark.parametrize('seed', range(6))
def test_both_solvers_agree_with_all_assignments(seed: int) -> None:
    draw = random.Random(seed)
    linear = Linear()
    for _ in range(6):
        linear.variable(cost=draw.randint(1, 9))
    for _ in range(4):
        linear.at_most([(-draw.randint(0, 3), v) for v in range(6)], -draw.randint(1, 4))
    fitting = [
        sum(c * x
            for c, x in zip(linear.costs, values))
        for values in itertools.product((0, 1), repeat=6)
        if all(sum(c * values[v] for c, v in terms) <= right for terms, right in linear.rows)
    ]
    solved, relaxed = linear.solved(_SECONDS), linear.relaxed(_SECONDS)
    assert solved.proved and solved.value == min(fitting, default=None)
    if fitting:
        assert relaxed.value <= solved.value + 1e-6


def test_a_row_says_what_ours_is_to_the_optimum_and_to_the_references() -> None:

    def row(ours: Optional[float], **said: Any) -> Row:
        return Row(
            'net', 1, 1.0, ours, **{
                'printed': 0.1,
                'bound': 0.2,
                'optimum': None,
                'floor': 0.0,
                'proved': False,
                'rounded': None,
                **said
            })

    assert row(0.23).within and not row(0.24).within
    assert row(0.42, optimum=0.4,
               proved=True).within and not row(0.43, optimum=0.4, proved=True).within
    assert row(None).within is None
    assert row(0.3, rounded=0.2, references={
        'greedy': 0.1,
        'other': 0.3
    }).beaten_by == ['greedy', 'rounding']
