"""What a plan takes more, priced from its graph, is what its passes have counted; and other sizes have other prices."""
from __future__ import annotations

import math
from typing import List

import pytest

from benchmarks.programs import Options, build, small_options
from tests.builds import needs_cpu_build
from transpiler.backends.installed import live_programs
from transpiler.flow import decide
from transpiler.ir import Graph, RegionKind
from transpiler.planning import Plan, PlanOptions
from transpiler.planning.overhead import extra_seconds, overhead, saved_seconds
from transpiler.request import Request

COST = PlanOptions().cost


def planned(name: str, **options: object) -> Plan:
    case = build(name, small_options(name, **options))
    backend = live_programs(case.main)
    request = Request(list(case.fetch), batch_size=64, trip_count=8)
    request = request.in_names(backend, case.main)
    return decide(backend, case.main, request, PlanOptions(recompute='max')).plan


@pytest.mark.parametrize('name, options',
                         [('transformer', {
                             'dropout': 0.1
                         }),
                          pytest.param('bert', {'dropout': 0.3}, marks=needs_cpu_build),
                          ('gru_loop', {
                              'dropout': 0.1
                          }), ('loop', {}), ('attention_loop', {}), ('nested_loops', {}),
                          ('cond_in_loop', {})])
def test_the_price_of_the_graph_is_what_the_passes_have_counted(name: str, options: dict) -> None:
    plan = planned(name, **options)
    counted = plan.extra_seconds + (plan.recomputed.seconds if plan.recomputed else 0.0)
    dims = plan.after.dims
    assert counted > 0
    assert math.isclose(extra_seconds(plan, COST, dims), counted, rel_tol=1e-9)  # in another order
    assert saved_seconds(plan, COST, dims) >= plan.saved_seconds * (1 - 1e-9)


def loops_around(graph: Graph, region: int) -> List[int]:
    around = loops_around(graph, graph.regions[region].parent) if region else []
    return around + [region] * (graph.regions[region].kind is RegionKind.LOOP_GRADIENT)


def test_an_op_in_loops_in_loops_takes_time_in_all_their_trips() -> None:
    """Of eight trips of the outer loop and eight of the inner one, and none less."""
    plan = planned('nested_loops')
    graph, dims = plan.graph, plan.after.dims
    again = [
        op for op in graph.walk()
        if op.origin is not None and op.backward and not plan.original.ops[op.origin].backward
    ]
    depths = {op.id: len(loops_around(graph, op.region)) for op in again}
    assert 2 in depths.values()
    spent = sum(8**depths[op.id] * COST.seconds(graph, op, dims) for op in again)
    assert math.isclose(plan.extra_seconds, spent, rel_tol=1e-9)


@pytest.mark.parametrize('most', [0.01, 0.03, 0.1])
@pytest.mark.parametrize('name', ['nested_loops', 'cond_in_loop', 'gru_loop', 'attention_loop'])
def test_the_overhead_is_kept_at_the_size_that_a_plan_is_made_for(name: str, most: float) -> None:
    case = build(name, Options(optimizer='momentum'))
    backend = live_programs(case.main)
    request = Request(list(case.fetch), batch_size=case.batch_size, trip_count=case.trip_count)
    request = request.in_names(backend, case.main)
    plan = decide(backend, case.main, request, PlanOptions(max_overhead=most)).plan
    assert plan.changed and overhead(plan, COST, plan.after.dims) <= most * (1 + 1e-9)


def test_more_rows_take_longer_and_nothing_is_taken_where_nothing_runs_again() -> None:
    plan = planned('transformer', dropout=0.1)
    more = {s: 64 * size for s, size in plan.after.dims.items()}
    assert extra_seconds(plan, COST, more) > extra_seconds(plan, COST, plan.after.dims)
    step = COST.region_seconds(plan.original, 0, more)
    assert overhead(plan, COST, more) == extra_seconds(plan, COST, more) / step > 0
    case = build('fc_chain', small_options('fc_chain', inference=True))
    backend = live_programs(case.main)
    request = Request(list(case.fetch)).in_names(backend, case.main)
    nothing = decide(backend, case.main, request, PlanOptions()).plan
    assert [overhead(nothing, COST, dims) for dims in nothing.sizes] == [0.0] * 4
