"""Local search around plans: against plans proved the cheapest, on graphs that no Paddle made."""
from __future__ import annotations

import random
from typing import List

import pytest

from tests.graphs import Draft
from tests.passes.test_recompute_main import UNIT, _backward, _problem
from transpiler.errors import MemoryBudgetError
from transpiler.ir import Graph
from transpiler.passes.remat import exact_remat
from transpiler.passes.remat.evict import Eviction, evict
from transpiler.passes.remat.improve import Allowance, improved
from transpiler.passes.remat.ladder import (DISTANCE_POWERS, affordable, chosen_together, ladder)
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.rewrite import apply_plan
from transpiler.passes.remat.steps import profile, untouched
from transpiler.planning import PlanOptions, plan
from transpiler.runtime import COLLECTING
from transpiler.verify import verify


def _blocks(count: int, width: int) -> Graph:
    """Blocks x -> wide -> y of which each adds its input to what it made: a gradient reads the wide value and the input."""
    draft = Draft()
    draft.value('x0', fed=True)
    for i in range(count):
        draft.value(f'w{i}', width)
        draft.value(f'y{i}')
        draft.value(f'x{i + 1}')
        draft.op('tanh', f'x{i}', f'w{i}')
        draft.op('tanh', f'w{i}', f'y{i}')
        draft.op('add', f'x{i} y{i}', f'x{i + 1}')
    draft.value(f'g{count}')
    _backward(draft, 'fill', '', f'g{count}')
    for i in range(count, 0, -1):
        draft.value(f'h{i}', width)
        draft.value(f'g{i - 1}')
        _backward(draft, 'tanh_grad', f'y{i - 1} w{i - 1} g{i}', f'h{i}')
        _backward(draft, 'tanh_grad', f'w{i - 1} x{i - 1} h{i} g{i}', f'g{i - 1}')
    draft.graph.values[draft.id('g0')].fetched = True
    return draft.graph


def _found(problem: RematProblem, graph: Graph, ops: int) -> List[tuple]:
    """(rung, plan that local search made of it) for all rungs but the first."""
    return [(rung, improved(rung.problem, rung.plan, rung.peak, DISTANCE_POWERS, Allowance(ops)))
            for rung in ladder(graph, problem)[1:]]


@pytest.mark.parametrize('count, width', [(3, 1), (6, 4), (8, 2), (12, 3)])
def test_no_plan_gets_slower_or_higher_and_the_verifier_takes_each(count: int, width: int) -> None:
    graph = _blocks(count, width * 1024)
    problem = _problem(graph)
    found = _found(problem, graph, 100_000)
    assert len(found) > 1
    for rung, made in found:
        assert made.seconds <= rung.seconds and profile(problem, made).peak <= rung.peak
        new = apply_plan(graph.copy(), rung.problem, made)
        verify(graph, new, {op.id: op.origin for op in new.walk() if op.origin is not None})


def test_long_nets_of_blocks_gain() -> None:
    graph = _blocks(16, 3 * 1024)
    found = _found(_problem(graph), graph, 400_000)
    gains = [1 - made.seconds / rung.seconds for rung, made in found]
    assert max(gains) > 0.05


@pytest.mark.parametrize('seed', range(4))
def test_no_plan_is_below_what_is_proved(seed: int) -> None:
    graph = _blocks(2, 1024 * random.Random(seed).randint(1, 4))
    problem = _problem(graph)
    found = _found(problem, graph, 100_000)
    assert found
    for rung, made in found:
        best = exact_remat.cheapest(problem, rung.peak)
        assert best is not None and made.seconds >= best.seconds * (1 - 1e-6)


def test_without_work_allowed_the_plan_is_what_it_was() -> None:
    graph = _blocks(6, 4096)
    assert all(plan is rung.plan for rung, plan in _found(_problem(graph), graph, 0))


def test_a_guarded_value_stays_and_what_else_must_go_is_chosen_anew() -> None:
    graph = _blocks(6, 1024)
    problem = _problem(graph)
    limit = profile(problem, untouched(problem)).peak - 3 * UNIT
    plain = evict(problem, Eviction(limit))
    assert plain is not None
    again = {
        plan_cell for step in plain.steps for plan_cell in (plain.cell_of[i] for i in step.writes)
    }
    cell = min(again)
    guarded = evict(problem, Eviction(limit, guarded={cell: ((0, len(problem)),)}))
    assert guarded is not None and profile(problem, guarded).peak <= limit
    assert cell not in {guarded.cell_of[i] for step in guarded.steps for i in step.writes}


def test_what_takes_less_than_the_least_is_not_taken() -> None:
    graph = _blocks(16, 3 * 1024)
    problem = _problem(graph)
    rungs = ladder(graph, problem)[1:]
    free = [improved(problem, r.plan, r.peak, DISTANCE_POWERS, Allowance(200_000)) for r in rungs]
    gaining = [(r, made) for r, made in zip(rungs, free) if made.seconds < r.seconds]
    assert gaining
    for rung, made in gaining:
        least = (made.seconds + rung.seconds) / 2
        held = improved(problem, rung.plan, rung.peak, DISTANCE_POWERS, Allowance(200_000), least)
        assert least <= held.seconds <= rung.seconds


def test_more_budget_is_never_slower_where_local_search_gains() -> None:
    graph = _blocks(10, 3 * 1024)
    most = plan(graph, COLLECTING, {}, PlanOptions(recompute='')).budget_bytes
    found = []
    for budget in range(UNIT, most + 1, UNIT):
        try:
            found.append(plan(graph, COLLECTING, {}, PlanOptions(budget=budget)))
        except MemoryBudgetError:
            assert not found
    seconds = [each.recomputed.seconds if each.recomputed else 0.0 for each in found]
    assert len(seconds) > 20 and seconds == sorted(seconds, reverse=True) and seconds[-1] == 0


@pytest.mark.parametrize('count, width, share', [(4, 3, 0.2), (8, 4, 0.3), (16, 2, 0.2)])
def test_what_goes_is_chosen_together_where_that_needs_less(count: int, width: int,
                                                            share: float) -> None:
    """No value goes for want of memory in the forward part that others, made later, could go for."""
    graph = _blocks(count, width * 1024)
    problem = _problem(graph)
    seconds = share * sum(problem.seconds)
    rung = affordable(problem, seconds)[-1]
    found = chosen_together(rung, seconds)
    assert found.peak < rung.peak and found.seconds <= seconds
    new = apply_plan(graph.copy(), problem, found.plan)
    verify(graph, new, {op.id: op.origin for op in new.walk() if op.origin is not None})
    done = plan(graph, COLLECTING, {}, PlanOptions(max_overhead=share))
    assert done.after.peak_bytes <= found.peak
    assert done.recomputed is not None and done.recomputed.seconds <= share * done.step_seconds


@pytest.mark.parametrize('count, width', [(3, 1), (6, 4), (12, 3), (16, 2)])
def test_what_is_chosen_together_is_never_higher_nor_takes_more_than_it_may(count: int,
                                                                            width: int) -> None:
    problem = _problem(_blocks(count, width * 1024))
    for percent in range(2, 40, 4):
        seconds = percent / 100 * sum(problem.seconds)
        rung = affordable(problem, seconds)[-1]
        found = chosen_together(rung, seconds)
        assert found is rung or found.peak < rung.peak
        assert found.seconds <= seconds and profile(problem, found.plan).peak == found.peak
