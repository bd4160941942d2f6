"""Programs that train nothing: order and what runs again, chosen together, beside the best of all ways to run them."""
from __future__ import annotations

from dataclasses import replace
from typing import Dict

import pytest

from tests.branchy import Trial, branchy
from tests.graphs import Draft
from transpiler.analysis.timeline import Timeline
from transpiler.errors import MemoryBudgetError
from transpiler.ir import Graph
from transpiler.passes.context import PassContext
from transpiler.passes.remat.bound import least_seconds
from transpiler.passes.remat.exact_remat import cheapest, is_small
from transpiler.passes.remat.remat_problem import RematProblem, remat_problem
from transpiler.passes.remat.steps import profile
from transpiler.planning import Plan, PlanOptions, plan
from transpiler.runtime import COLLECTING, RETAINING
from transpiler.verify import verify

SEEDS = range(60)
SIZES = (6, 8, 10)


def _planned(graph: Graph, runtime=COLLECTING, **options: object) -> Plan:
    done = plan(graph, runtime, {}, PlanOptions(**options))
    verify(graph, done.graph,
           {op.id: op.origin for op in done.graph.walk() if op.origin is not None})
    return done


def _problem(graph: Graph) -> RematProblem:
    context = PassContext(COLLECTING, {}, recompute='max')
    return remat_problem(graph, context, Timeline(graph, COLLECTING, {}))


def _prices(problem: RematProblem) -> Dict[int, float]:
    return dict(enumerate(problem.seconds))


@pytest.mark.parametrize('size', SIZES)
def test_nothing_needs_less_than_the_best_of_all_ways_and_most_plans_need_no_more(
        size: int) -> None:
    reached = ordered = 0
    for seed in SEEDS:
        graph = branchy(seed, size)
        least = Trial(graph).least_peak()
        peak = _planned(graph, recompute='max').after.peak_bytes
        assert peak >= least
        reached += peak == least
        ordered += _planned(graph, recompute='').after.peak_bytes == least
    print(size, reached, ordered)
    assert reached >= 0.9 * len(SEEDS) and reached > ordered


@pytest.mark.parametrize('seed', range(12))
def test_the_cheapest_plan_in_an_order_is_that_of_all_ways_to_run_it(seed: int) -> None:
    graph = branchy(seed, 7)
    problem, trial = _problem(graph), Trial(graph)
    assert is_small(problem)
    highest, solved = Timeline(graph, COLLECTING, {}).peak_bytes, 0
    for limit in range(highest, trial.least_peak() - 1, -4096):
        best = trial.least_seconds(limit, _prices(problem))
        found = cheapest(problem, limit)
        assert (found is None) == (best is None)
        if found is not None and best is not None:
            assert found.seconds == pytest.approx(best, abs=1e-9 *
                                                  len(problem))  # CP-SAT counts in nanoseconds
            assert profile(problem, found).peak <= limit
            assert least_seconds(problem, limit) <= best + 1e-9 * len(problem)
            solved += 1
    assert solved


def _skip(blocks: int) -> Draft:
    """A cheap value that the end reads again, kept over blocks that need room of their own."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.value('skip', 4096)
    draft.op('exp', 'x', 'skip')
    last = 'skip'
    for number in range(blocks):
        draft.values(f'a{number} b{number}', 4096)
        draft.op('matmul', last, f'a{number}')
        draft.op('matmul', f'a{number} {last}', f'b{number}')
        last = f'b{number}'
    draft.value('y', 4096, fetched=True)
    draft.op('add', f'{last} skip', 'y')
    return draft


def _again(done: Plan) -> int:
    return sum(op.again for op in done.graph.walk())


def test_a_skip_connection_is_made_again_for_a_budget_and_where_all_may_be() -> None:
    graph = _skip(3).graph
    free = _planned(graph)
    assert _again(free) == 0 and not free.changed  # nobody has asked for it
    lowest = _planned(graph, recompute='max')
    assert _again(lowest) == 1 and lowest.after.peak_bytes == Trial(graph).least_peak()
    assert lowest.after.peak_bytes == free.after.peak_bytes - 4 * 4096
    tight = _planned(graph, budget=lowest.sure_bytes)
    assert _again(tight) == 1 and tight.sure_bytes <= lowest.sure_bytes
    assert tight.recomputed is not None and tight.recomputed.seconds == lowest.recomputed.seconds
    assert tight.recomputed.bound()() == pytest.approx(tight.recomputed.seconds, abs=1e-9)
    roomy = _planned(graph, budget=free.budget_bytes)
    assert _again(roomy) == 0


@pytest.mark.parametrize('runtime', [COLLECTING, RETAINING], ids=lambda r: r.name)
def test_what_no_plan_keeps_to_is_refused_with_the_least_there_is(runtime) -> None:
    graph = _skip(3).graph
    with pytest.raises(MemoryBudgetError) as refused:
        _planned(graph, runtime, budget=1)
    least = refused.value.best_bytes
    done = _planned(graph, runtime, budget=least)
    assert done.sure_bytes <= least and _again(done) == 1
    with pytest.raises(MemoryBudgetError):
        _planned(graph, runtime, budget=least - 1)
    with pytest.raises(MemoryBudgetError) as kept:
        _planned(graph, runtime, budget=least, recompute='')
    assert kept.value.best_bytes == least + 4 * 4096


def test_what_may_not_run_again_does_not() -> None:
    """Products where only what is cheap may, what is random, and all of it where ops may run side by side."""
    draft = _skip(3)
    graph = draft.graph
    maker = graph.ops[0]
    graph.ops[0] = replace(maker, facts=replace(maker.facts, random=True))
    assert _again(_planned(graph, recompute='max')) == 0
    graph.ops[0] = replace(maker, kind='matmul', facts=graph.ops[1].facts)
    assert _again(_planned(graph, recompute='cheap')) == 0
    assert _again(_planned(graph, recompute='max')) == 1
    assert _again(_planned(graph, recompute='max', parallel=True)) == 0


def test_what_is_overwritten_meanwhile_is_not_made_again_from_it() -> None:
    draft = _skip(3)
    graph, ops = draft.graph, draft.graph.regions[0].ops
    draft.op('increment', 'x', 'x')
    ops.insert(1, ops.pop())
    product = graph.ops[ops[2]]
    graph.ops[product.id] = replace(product, operands=(*product.operands, draft.id('x')))
    assert _again(_planned(graph, recompute='max')) == 0


def test_a_larger_budget_never_takes_more_time() -> None:
    for seed in SEEDS[:10]:
        graph = branchy(seed, 9)
        least, spent = None, []
        with pytest.raises(MemoryBudgetError) as refused:
            _planned(graph, budget=1)
        least, most = refused.value.best_bytes, _planned(graph).budget_bytes
        for budget in range(least, max(least, most) + 1, 4096):
            done = _planned(graph, budget=budget)
            assert done.sure_bytes <= budget
            spent.append(done.recomputed.seconds if done.recomputed is not None else 0.0)
        assert spent == sorted(spent, reverse=True) and spent
