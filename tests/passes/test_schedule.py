"""Orders: all valid, judged as the timeline judges, never worse than the given one; exact search against brute force."""
from __future__ import annotations

import random
import sys
from typing import Any, Dict, FrozenSet, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.assignment.checker import partitions
from tests.graphs import Draft, dims_of, generated
from tests.orders import allows, net_with_updates, problem_of, random_order, reordered, straight_graph, topological_orders
from transpiler.analysis.dependences import dependences
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, RegionKind
from transpiler.passes.context import PassContext
from transpiler.passes.hold import regions_to_hold
from transpiler.passes.orders.early_updates import updates_where_they_fit
from transpiler.passes.orders.exact_order import improve_windows, optimal_order
from transpiler.passes.orders.grouped import groups_of, updates_as_one
from transpiler.passes.orders.heuristics import HEURISTICS, backwards, memory_greedy, update_chains
from transpiler.passes.orders.least import bytes_at_least, is_least
from transpiler.passes.orders.order_problem import OrderProblem, region_problem
from transpiler.passes.orders.simulator import peak_bytes, profile
from transpiler.passes.orders.spacing import Kinds, keep_apart
from transpiler.passes.orders.storages import live_ranges, storage_bytes
from transpiler.passes.reuse import reuse_inside
from transpiler.passes.schedule import CANDIDATES, Choice, best_order, schedule, schedule_what_stays
from transpiler.runtime import COLLECTING, RETAINING, Runtime
from transpiler.verify import verify

UNIT = 4096
graphs = st.builds(straight_graph, st.integers(0, 10**6), st.integers(1, 25), st.booleans())


def scheduled(graph: Graph, **dims: int) -> Graph:
    return schedule(graph.copy(), PassContext(COLLECTING, dims))


def inner_peaks(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    peaks: Dict[int, int] = {}
    for region in reversed(graph.regions):  # inner regions have the larger ids
        problem = region_problem(graph, region.id, timeline, peaks)
        peaks[region.id] = peak_bytes(problem, range(len(problem)))
    return peaks


@pytest.mark.parametrize('name', CANDIDATES)
@settings(max_examples=40, deadline=None)
@given(graph=graphs)
def test_every_heuristic_gives_a_valid_order(name: str, graph: Graph) -> None:
    order = CANDIDATES[name](problem_of(graph))
    assert allows(dependences(graph, 0), order)


layer_sizes = st.lists(st.tuples(st.integers(1, 64), st.integers(1, 16)), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(sizes=layer_sizes, steps=st.integers(1, 24))
def test_groups_of_updates_run_in_valid_orders(sizes: List[Tuple[int, int]], steps: int) -> None:
    graph = net_with_updates(sizes, steps)
    problem = problem_of(graph)
    groups = groups_of(problem, update_chains(problem))
    of_groups = updates_as_one(problem, groups)
    several = [ops for ops in groups.members if len(ops) > 1]
    assert of_groups is not None and several
    for heuristic in HEURISTICS.values():
        order = groups.expanded(heuristic(of_groups))
        assert allows(dependences(graph, 0), order)
        for ops in several:
            assert order[order.index(ops[0]):][:len(ops)] == ops


@settings(max_examples=40, deadline=None)
@given(graph=graphs)
def test_there_is_no_problem_of_groups_of_one_op(graph: Graph) -> None:
    problem = problem_of(graph)
    assert updates_as_one(problem, groups_of(problem, [-1] * len(problem))) is None


@settings(max_examples=60, deadline=None)
@given(sizes=layer_sizes, steps=st.integers(1, 24))
def test_updates_of_several_ops_get_the_orders_of_those_of_one(sizes: List[Tuple[int, int]],
                                                               steps: int) -> None:
    """A term has a unit, and is made in the memory of the rows."""
    bare, chained = (problem_of(net_with_updates(sizes, each)) for each in (0, steps))
    assert best_order(chained).peak <= best_order(bare).peak + UNIT


@settings(max_examples=60, deadline=None)
@given(graph=graphs, seed=st.integers(0, 99))
def test_the_judge_agrees_with_the_timeline(graph: Graph, seed: int) -> None:
    order = random_order(graph, 0, random.Random(seed))
    points = Timeline(reordered(graph, order), COLLECTING, {}).points
    assert profile(problem_of(graph), order) == [point.bytes for point in points]


@pytest.mark.parametrize('seed', range(200))
def test_the_judge_agrees_with_the_timeline_on_loops_and_branches(seed: int) -> None:
    graph = generated(seed)
    dims, dice = dims_of(graph, 3), random.Random(seed)
    for region in graph.regions:
        graph = reordered(graph, random_order(graph, region.id, dice), region.id)
    timeline = Timeline(graph, COLLECTING, dims)
    assert inner_peaks(graph, timeline)[0] == timeline.peak_bytes


@settings(max_examples=40, deadline=None)
@given(graph=graphs)
def test_the_best_order_is_never_worse_than_the_given_one(graph: Graph) -> None:
    problem = problem_of(graph)
    choice = best_order(problem)
    assert allows(dependences(graph, 0), choice.order)
    assert choice.peak == peak_bytes(problem, choice.order)
    assert choice.peak <= peak_bytes(problem, range(len(problem)))


def test_no_order_is_asked_twice_whether_it_needs_least(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: List[Tuple[int, ...]] = []
    monkeypatch.setattr(
        'transpiler.passes.schedule.is_least', lambda problem, order, peak: asked.append(
            (*order, peak)) or is_least(problem, order, peak))
    several = 0
    for seed in range(20):
        asked.clear()
        best_order(problem_of(straight_graph(seed, 20, training=True)))
        assert len(asked) == len(set(asked))
        several += len(asked) > 1
    assert several


@pytest.mark.parametrize('seed', range(60))
def test_exact_search_equals_brute_force(seed: int) -> None:
    graph = straight_graph(seed, 7, training=seed % 2 == 0)
    problem = problem_of(graph)
    least = min(peak_bytes(problem, order) for order in topological_orders(problem.before))
    assert peak_bytes(problem, optimal_order(problem)) == least
    assert optimal_order(problem, below=least) is None
    assert best_order(problem).peak == least


@pytest.mark.parametrize('seed', range(60))
def test_no_order_needs_less_than_what_is_said_to_be_the_least(seed: int) -> None:
    problem = problem_of(straight_graph(seed, 7, training=seed % 2 == 0))
    orders = list(topological_orders(problem.before))
    least = min(peak_bytes(problem, order) for order in orders)
    for order in orders:
        peak = peak_bytes(problem, order)
        assert not is_least(problem, order, peak) or peak == least


def test_orders_are_seen_to_be_the_least_where_all_that_is_there_has_to_be() -> None:
    problems = [problem_of(straight_graph(seed, 7, training=seed % 2 == 0)) for seed in range(60)]
    found = [best_order(problem) for problem in problems]
    seen = [is_least(each, choice.order, choice.peak) for each, choice in zip(problems, found)]
    assert sum(seen) > len(seen) // 2


@pytest.mark.parametrize('seed', range(60))
def test_no_op_of_loops_and_branches_needs_less_than_it_does_in_any_order(seed: int) -> None:
    graph = generated(seed)
    timeline = Timeline(graph, COLLECTING, dims_of(graph, 3))
    peaks: Dict[int, int] = {}
    for region in reversed(graph.regions):
        problem = region_problem(graph, region.id, timeline, peaks)
        peaks[region.id] = peak_bytes(problem, range(len(problem)))
        for dice in map(random.Random, range(8)):
            order = random_order(graph, region.id, dice)
            for op, there in zip(order, profile(problem, order)):
                assert bytes_at_least(problem, op) <= there


def test_exact_search_gives_up_rather_than_run_on() -> None:
    draft = Draft()
    for i in range(16):
        draft.value(f'v{i}', fetched=True)
        draft.op('fill', '', f'v{i}')
    assert optimal_order(problem_of(draft.graph), most_states=100) is None


@pytest.mark.parametrize('seed', range(30))
def test_windows_only_ever_improve(seed: int) -> None:
    graph = straight_graph(seed, 40)
    problem = problem_of(graph)
    order = list(range(len(problem)))
    better = improve_windows(problem, order)
    assert allows(dependences(graph, 0), better)
    assert peak_bytes(problem, better) <= peak_bytes(problem, order)


@settings(max_examples=30, deadline=None)
@given(graph=graphs)
def test_a_mirrored_problem_has_the_reversed_orders(graph: Graph) -> None:
    problem = problem_of(graph)
    twice = problem.mirrored().mirrored()
    assert (twice.before, twice.touches, twice.pairs) == (problem.before, problem.touches,
                                                          problem.pairs)
    assert allows(dependences(graph, 0), backwards(memory_greedy, problem))


@pytest.mark.parametrize('seed', range(100))
def test_a_scheduled_graph_is_proved_equal_and_needs_no_more(seed: int) -> None:
    graph = generated(seed)
    dims = dims_of(graph, 3)
    other = scheduled(graph, **dims)
    verify(graph, other, {op.id: op.id for op in graph.ops})
    before, after = (Timeline(g, COLLECTING, dims).peak_bytes for g in (graph, other))
    assert after <= before * 1.005


def backward_then_updates(layers: int) -> Draft:
    """Gradients one after the other, each of 4 units, all updates at the end."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values(' '.join(f'w{i}' for i in range(layers)), persistable=True)
    for i in range(layers):
        draft.value(f'g{i}', 4096)
        draft.op('f_grad', f'x w{i}', f'g{i}')
    for i in range(layers):
        draft.op('momentum', f'w{i} g{i}', f'w{i}')
    return draft


def test_updates_follow_their_gradients() -> None:
    graph = backward_then_updates(8).graph
    other = scheduled(graph)
    assert [op.kind for op in other.region_ops(0)] == ['f_grad', 'momentum'] * 8
    assert Timeline(other, COLLECTING, {}).peak_bytes == 5 * UNIT


@settings(max_examples=60, deadline=None)
@given(graph=st.builds(straight_graph, st.integers(0, 10**6), st.integers(1, 25), st.just(True)),
       seed=st.integers(0, 99))
def test_updates_that_fit_earlier_never_lift_the_peak(graph: Graph, seed: int) -> None:
    problem = problem_of(graph)
    order = random_order(graph, 0, random.Random(seed))
    early = updates_where_they_fit(problem, order)
    assert allows(dependences(graph, 0), early)
    assert peak_bytes(problem, early) <= peak_bytes(problem, order)


def test_a_small_update_of_two_ops_does_not_wait_behind_a_large_gradient() -> None:
    """Not at once either, where what it makes would not fit."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('w0 w1', persistable=True)
    draft.value('small', 4 * 1024)
    draft.value('term', 4 * 1024)
    draft.value('large', 9 * 1024)
    draft.op('f_grad', 'x w0', 'small')
    draft.op('f_grad', 'x w1', 'large')
    draft.op('momentum', 'w1 large', 'w1')
    draft.op('decay', 'small w0', 'term')
    draft.op('momentum', 'w0 term', 'w0')
    problem = problem_of(draft.graph)
    order = list(range(5))
    assert updates_where_they_fit(problem, order) == [0, 3, 4, 1, 2]
    assert peak_bytes(problem, [0, 3, 4, 1, 2]) < peak_bytes(problem, order)


def test_parts_of_a_sum_are_made_right_before_it() -> None:
    draft = Draft()
    draft.value('x', fed=True)
    for i in range(6):
        draft.values(f'a{i} b{i}', 8 * 1024)
        draft.value(f's{i}', fetched=True)
    for part in 'ab':
        for i in range(6):
            draft.op('op', 'x', f'{part}{i}')
    for i in range(6):
        draft.op('sum', f'a{i} b{i}', f's{i}')
    problem = problem_of(draft.graph)
    assert peak_bytes(problem, HEURISTICS['sums together'](problem)) == (1 + 16 + 6) * UNIT
    assert peak_bytes(problem, range(len(problem))) == (1 + 96 + 1) * UNIT


def _held(graph: Graph, model: Runtime) -> FrozenSet[int]:
    """The regions to hold of a graph whose order is the given one."""
    return regions_to_hold(graph, graph, Timeline(graph, model, {}))


def test_only_orders_that_matter_are_held() -> None:
    chain, wide = Draft(), Draft()
    chain.values('a b c')
    for source, target in (('', 'a'), ('a', 'b'), ('b', 'c')):
        chain.op('op', source, target)
    for i in range(4):
        wide.value(f'big{i}', 64 * 1024)
        wide.value(f'small{i}', fetched=True)
        wide.op('op', '', f'big{i}')
        wide.op('op', f'big{i}', f'small{i}')
    assert _held(chain.graph, COLLECTING) == frozenset()
    assert _held(wide.graph, COLLECTING) == {0}
    assert _held(wide.graph, RETAINING) == frozenset()


@settings(max_examples=40, deadline=None)
@given(graph=graphs, seed=st.integers(0, 99))
def test_keeping_ops_apart_costs_next_to_nothing(graph: Graph, seed: int) -> None:
    problem, dice = problem_of(graph), random.Random(seed)
    order = random_order(graph, 0, dice)
    first = [dice.random() < 0.3 for _ in order]
    second = [not one and dice.random() < 0.3 for one in first]
    between = [not (one or other) and dice.random() < 0.7 for one, other in zip(first, second)]
    apart = keep_apart(problem, order, Kinds(first, second, between))
    assert allows(dependences(graph, 0), apart)
    assert peak_bytes(problem, apart) <= peak_bytes(problem, order) * 1.005


def test_only_an_op_in_between_that_helps_keeps_two_apart() -> None:
    """An update, an op of no help, a product, one that helps: the update moves to where it helps."""
    draft = Draft()
    draft.values('p q', fed=True)
    draft.values('a b c d', fetched=True)
    for source, target in (('p', 'a'), ('q', 'b'), ('b', 'c'), ('c', 'd')):
        draft.op('op', source, target)
    problem = problem_of(draft.graph)
    update, product = [True, False, False, False], [False, False, True, False]
    helped = Kinds(update, product, [False, True, False, True])
    meeting = Kinds(update, product, [False, False, False, True])
    assert not helped.meet(range(4)) and keep_apart(problem, range(4), helped) == [0, 1, 2, 3]
    assert meeting.meet(range(4)) and keep_apart(problem, range(4), meeting) == [1, 2, 0, 3]
    assert not meeting.meet([1, 2, 0, 3])


# ---------------------------------------------------------------------------------------------------
# Orders for a runtime that holds: judged by the storages that they need


def wide_body() -> Draft:
    """A loop body that makes four large values, and then a small one of each."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('h', fetched=True)
    body = draft.region(draft.op('while', 'x h', 'h'), RegionKind.LOOP)
    for i in range(4):
        draft.value(f'big{i}', 64 * 1024, region=body)
        draft.value(f'small{i}', 1024, region=body)
        draft.op('op', 'x', f'big{i}', body)
    for i in range(4):
        draft.op('op', f'big{i}', f'small{i}', body)
    draft.op('sum', ' '.join(f'small{i}' for i in range(4)), 'h', body)
    return draft


def test_a_body_of_a_runtime_that_holds_is_ordered_for_the_fewest_storages() -> None:
    graph = wide_body().graph
    context = PassContext(RETAINING, {})
    given_peak, peak = (Timeline(reuse_inside(g, context), RETAINING, {}).peak_bytes
                        for g in (graph.copy(), schedule(graph.copy(), context)))
    outside = 2  # x and h
    # In the given order one small value finds no large one dead, in the other all four are needed beside one large one.
    assert given_peak == (outside + 4 * 64 + 1) * UNIT
    assert peak == (outside + 64 + 4) * UNIT


@pytest.mark.parametrize('gains', [False, True])
def test_regions_that_look_like_some_in_which_no_order_was_better_are_not_searched(
        gains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the branches of a `switch_case` are all alike, and most of the time went into orders of them."""
    loops, searched = 10, []
    draft = Draft()
    draft.value('x', fed=True)
    for j in range(loops):
        draft.value(f'h{j}', fetched=True)
        body = draft.region(draft.op('while', f'x h{j}', f'h{j}'), RegionKind.LOOP)
        for i in range(2):
            draft.value(f'big{j}{i}', 64, region=body)
            draft.value(f'small{j}{i}', 1, region=body)
        makes = [('x', f'big{j}{i}') for i in range(2)]
        takes = [(f'big{j}{i}', f'small{j}{i}') for i in range(2)]
        for read, made in (*makes, *takes) if gains else (*zip(makes, takes),)[0]:
            draft.op('op', read, made, body)
        draft.op('sum', f'small{j}0 small{j}1' if gains else f'small{j}0', f'h{j}', body)
    judged = sys.modules['transpiler.passes.schedule']

    def counted(problem: OrderProblem, *found: Any, **how: Any) -> Choice:
        searched.extend([problem] if 'judge' in how else [])  # not of groups of its ops
        return best_order(problem, *found, **how)

    monkeypatch.setattr(judged, 'best_order', counted)
    graph = draft.graph
    ordered = scheduled(graph)
    changed = [r.id for r in graph.regions[1:] if ordered.regions[r.id].ops != r.ops]
    assert len(changed) == (loops if gains else 0)
    assert len(searched) == 1 + (loops if gains else 4)


def fewest_bytes(ranges: List, sizes: List) -> int:
    """Of all ways to share in which the first tenant of a storage is its largest."""
    best = sum(sizes)
    for storages in partitions(len(sizes)):
        members: Dict[int, List[int]] = {}
        for value, storage in enumerate(storages):
            members.setdefault(storage, []).append(value)
        total = 0
        for tenants in members.values():
            tenants.sort(key=lambda v: ranges[v])
            alone = all(ranges[a][1] < ranges[b][0] for a, b in zip(tenants, tenants[1:]))
            if not alone or sizes[tenants[0]] < max(sizes[t] for t in tenants):
                break
            total += sizes[tenants[0]]
        else:
            best = min(best, total)
    return best


@pytest.mark.parametrize('seed', range(25))
def test_the_storages_of_an_order_are_the_fewest_possible(seed: int) -> None:
    problem = problem_of(straight_graph(seed, 5))
    for order in list(topological_orders(problem.before))[:6]:
        ranges, sizes = live_ranges(problem, order)
        assert storage_bytes(problem, order) == fewest_bytes(ranges.tolist(), sizes.tolist())


@pytest.mark.parametrize('seed', range(60))
def test_an_order_for_a_runtime_that_holds_is_proved_equal_and_judged_no_worse(seed: int) -> None:
    graph = generated(seed)
    dims = dims_of(graph, 3)
    other = schedule(graph.copy(), PassContext(RETAINING, dims))
    verify(graph, other, {op.id: op.id for op in graph.ops})
    for region in graph.regions[1:]:
        before, after = (problem_of(g, region.id, **dims) for g in (graph, other))
        given_bytes, found = (storage_bytes(p, range(len(p))) for p in (before, after))
        assert found <= given_bytes * 1.005


@settings(max_examples=60, deadline=None)
@given(graph=st.builds(straight_graph, st.integers(0, 10**6), st.integers(1, 25), st.just(True)))
def test_the_order_of_what_stays_is_valid_and_for_few_rows_no_worse(graph: Graph) -> None:
    found = schedule_what_stays(graph.copy(), PassContext(COLLECTING, {}))
    verify(graph, found, {op.id: op.id for op in graph.ops})
    peaks = [Timeline(each, COLLECTING, {}).peak_bytes for each in (graph, found)]
    assert peaks[1] <= peaks[0]  # sizes here are those of any number of rows
