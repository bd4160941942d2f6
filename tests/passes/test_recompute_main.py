"""Rematerialization of the main block, on graphs that no Paddle made."""
from __future__ import annotations

import itertools
from dataclasses import replace
from typing import List, Optional

import pytest

from tests.graphs import Draft
from transpiler.analysis.timeline import Timeline
from transpiler.errors import MemoryBudgetError, VerificationError
from transpiler.planning.fitting import Fitter
from transpiler.ir import Graph
from transpiler.passes.context import PassContext
from transpiler.passes.remat import exact_remat
from transpiler.passes.remat.bound import least_seconds
from transpiler.passes.remat.evict import Eviction, evict
from transpiler.passes.remat.ladder import Rung, affordable, front, ladder, proved
from transpiler.passes.remat.remat_problem import RematProblem, remat_problem
from transpiler.passes.remat.rewrite import apply_plan
from transpiler.passes.remat.steps import least_peak, profile, untouched
from transpiler.passes.remat.turns import Turns
from transpiler.planning import Plan, PlanOptions, plan
from transpiler.runtime import COLLECTING
from transpiler.verify import verify

UNIT = 4096  # bytes of a value of the drafts


def _chain(length: int, kind: str = 'tanh') -> Graph:
    """x0 -> x1 -> ... and back; each gradient reads the output of its op, and works in place."""
    draft = Draft()
    draft.value('x0', fed=True)
    for i in range(length):
        draft.value(f'x{i + 1}')
        draft.op(kind, f'x{i}', f'x{i + 1}')
    draft.value(f'g{length}')
    _backward(draft, 'fill', '', f'g{length}')
    for i in range(length, 0, -1):
        draft.value(f'g{i - 1}')
        _backward(draft, f'{kind}_grad', f'x{i} g{i}', f'g{i - 1}', in_place=((1, 0),))
    draft.graph.values[draft.id('g0')].fetched = True
    return draft.graph


def _backward(draft: Draft, kind: str, reads: str, writes: str, **facts: object) -> None:
    op = draft.op(kind, reads, writes, **facts)
    draft.graph.ops[op.id] = replace(op, backward=True)


def _context(mode: str = 'max') -> PassContext:
    return PassContext(COLLECTING, {}, recompute=mode)


def _problem(graph: Graph, mode: str = 'max') -> RematProblem:
    timeline = Timeline(graph, COLLECTING, {})
    return remat_problem(graph, _context(mode), timeline)


def _verified(graph: Graph, new: Graph) -> Graph:
    verify(graph, new, {op.id: op.origin for op in new.walk() if op.origin is not None})
    return new


def _peak(graph: Graph) -> int:
    return Timeline(graph, COLLECTING, {}).peak_bytes


def _rungs(graph: Graph) -> List[Rung]:
    return ladder(graph, _problem(graph))


def _clones(graph: Graph) -> List[str]:
    return [op.kind for op in graph.walk() if op.origin not in (None, op.id)]


@pytest.mark.parametrize('own, other, clones', [(True, False, True), (True, True, False),
                                                (False, True, False), (False, False, True)])
def test_no_clone_works_in_place_on_what_another_kernel_with_a_layout_of_its_own_reads(
        own: bool, other: bool, clones: bool) -> None:
    """Nothing says that the other has read its copy by then, whatever layout the clone has."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('a b c')
    draft.op('op', 'x', 'a')
    cloned = draft.op('op', 'a', 'b', in_place=((0, 0),), converts=own)
    draft.op('op', 'a', 'c', converts=other)
    draft.value('g', fetched=True)
    _backward(draft, 'op', 'a b c', 'g')
    problem = _problem(draft.graph)
    assert bool(problem.results[problem.ops.index(cloned.id)]) == clones


@pytest.mark.parametrize('length', [1, 2, 5, 20])
def test_the_judge_agrees_with_the_timeline_on_every_rung(length: int) -> None:
    graph = _chain(length)
    for rung in _rungs(graph):
        new = _verified(graph, apply_plan(graph.copy(), rung.problem, rung.plan))
        assert _peak(new) == rung.peak


def test_a_ladder_falls_in_peak_and_rises_in_time() -> None:
    rungs = _rungs(_chain(30))
    assert len(rungs) > 10
    for before, after in zip(rungs, rungs[1:]):
        assert after.peak < before.peak and after.seconds > before.seconds


def test_a_chain_is_segmented_to_the_square_root_by_one_more_forward() -> None:
    length = 50
    once = [r for r in _rungs(_chain(length)) if r.plan.clones <= length]
    # Segments of 10, 9, 8 ...: the triangular number of k is at least 50 for k = 10, and x0 is fed.
    assert min(r.peak for r in once) <= 12 * UNIT


@pytest.mark.parametrize('length', [3, 5, 7])
def test_small_plans_are_proved_and_greedy_ones_are_close(length: int) -> None:
    problem = _problem(_chain(length))
    for rung in ladder(_chain(length), problem)[1:]:
        best = exact_remat.cheapest(problem, rung.peak)
        assert best is not None and best.seconds <= rung.seconds
        assert rung.plan.clones <= 1.3 * best.clones + 1
        assert least_seconds(problem, rung.peak) <= best.seconds * (1 + 1e-6)


def test_of_two_bisections_the_lower_peak_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One looks at how long a value is not read, the other does not; neither is always better."""
    problem = _problem(_chain(24))
    seconds = sum(problem.seconds) / 2
    both = affordable(problem, seconds)
    monkeypatch.setattr('transpiler.passes.remat.ladder._OPS_OF_TWO', 0)
    one = affordable(problem, seconds)
    assert both[0].seconds == one[0].seconds == 0
    assert both[-1].peak < one[-1].peak and both[-1].seconds <= seconds


def test_below_the_least_peak_nothing_is_found() -> None:
    problem = _problem(_chain(4))
    assert exact_remat.cheapest(problem, least_peak(problem) - 1) is None
    assert evict(problem, Eviction(0, hopeless=least_peak(problem))) is None


_NO_CELL = -1


def _shared_inputs(steps: int) -> Graph:
    """Attention-like: each step reads the same x, and x's gradient is a sum of all steps'."""
    draft = Draft()
    draft.value('x', fed=True)
    for i in range(steps):
        draft.values(f'y{i} a{i} t{i}')
        draft.op('scale', 'x', f'y{i}')
        draft.op('add', f'x y{i}', f'a{i}', in_place=((1, 0),))
        draft.op('tanh', f'a{i}', f't{i}', in_place=((0, 0),))
    for i in reversed(range(steps)):
        draft.values(f'gt{i} gx{i}')
        _backward(draft, 'back', f't{i}', f'gt{i}')
        _backward(draft, 'tanh_grad', f't{i} gt{i}', f'gx{i}', in_place=((1, 0),))
    draft.graph.values[draft.id('gx0')].fetched = True
    return draft.graph


@pytest.mark.parametrize('power', [0.0, 1.0])
@pytest.mark.parametrize('graph', [_chain(30), _shared_inputs(7)], ids=['chain', 'steps'])
def test_a_simulation_that_starts_where_memory_runs_short_is_the_whole_one(
        graph: Graph, power: float) -> None:
    problem = _problem(graph)
    turns, peak, most_clones = Turns(problem, power), _peak(graph), 0
    for limit in range(0, peak + 4096, 2048):
        found = evict(problem, Eviction(limit, distance_power=power), turns)
        whole = evict(problem, Eviction(limit, dropped=frozenset({_NO_CELL}), distance_power=power),
                      turns)
        assert found == whole
        most_clones = max(most_clones, found.clones)
        start = turns.start(limit)
        assert start.at == len(problem) or limit < peak
    assert most_clones > 0


def test_orders_that_came_out_equal_get_one_ladder() -> None:
    graph = _chain(20)
    timeline = Timeline(graph, COLLECTING, {})
    bases = [Plan(graph, each, timeline, timeline) for each in (graph, graph.copy())]
    curves = [
        Fitter(chosen, bases[0], _context()).lowest().recomputed.curve
        for chosen in (bases, bases[:1])
    ]
    assert len(curves[0]) > 3 and curves[0] == curves[1]


def test_no_rung_is_below_the_least_peak() -> None:
    for length in (3, 10, 25):
        problem = _problem(_chain(length))
        assert all(r.peak >= least_peak(problem) for r in ladder(_chain(length), problem))


def test_a_proof_is_never_slower_than_a_ladder() -> None:
    graph = _chain(6)
    problem = _problem(graph)
    for rung in ladder(graph, problem)[1:]:
        cheapest_rung = proved(problem, rung.peak)
        assert cheapest_rung is not None and cheapest_rung.peak <= rung.peak
        assert cheapest_rung.seconds <= rung.seconds


def _rnn_cell() -> Graph:
    """MXNet's first case: two products, their sum, tanh."""
    draft = Draft()
    draft.values('x y', rows=64, fed=True)
    draft.values('v w', rows=64 * 64, persistable=True)
    draft.values('a b s h g gs ga gb gv gw', rows=4096)
    draft.op('mul', 'x v', 'a')
    draft.op('mul', 'y w', 'b')
    draft.op('elementwise_add', 'a b', 's')
    draft.op('tanh', 's', 'h', in_place=((0, 0),))
    _backward(draft, 'fill', '', 'g')
    _backward(draft, 'tanh_grad', 'h g', 'gs', in_place=((1, 0),))
    _backward(draft, 'elementwise_add_grad', 'gs', 'ga gb', in_place=((0, 0),))
    _backward(draft, 'mul_grad', 'y w gb', 'gw')
    _backward(draft, 'mul_grad', 'x v ga', 'gv')
    for name in ('gv', 'gw'):
        draft.graph.values[draft.id(name)].fetched = True
    return draft.graph


def test_case_1_what_would_double_the_stash_is_not_computed_again() -> None:
    graph = _rnn_cell()
    assert not _clones(plan(graph, COLLECTING, {}, PlanOptions()).graph)


def _attention(steps: int) -> Graph:
    """MXNet's second case: tanh(x + y_t) for one wide x and a narrow y_t a step, with a shared head."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.value('w', persistable=True)
    for t in range(steps):
        draft.value(f'y{t}', rows=16, fed=True)
        draft.values(f's{t} h{t} gh{t} gs{t}')
        draft.values(f'o{t} gy{t} gw{t}', rows=1)
        draft.op('elementwise_add', f'x y{t}', f's{t}')
        draft.op('tanh', f's{t}', f'h{t}', in_place=((0, 0),))
        draft.op('matmul', f'h{t} w', f'o{t}')
    draft.value('go', rows=1)
    _backward(draft, 'loss_grad', ' '.join(f'o{t}' for t in range(steps)), 'go')
    for t in reversed(range(steps)):
        _backward(draft, 'matmul_grad', f'h{t} w go', f'gh{t} gw{t}')
        _backward(draft, 'tanh_grad', f'h{t} gh{t}', f'gs{t}', in_place=((1, 0),))
        _backward(draft, 'elementwise_add_grad', f'gs{t}', f'gy{t}')
        draft.graph.values[draft.id(f'gy{t}')].fetched = True
    return draft.graph


def test_case_2_all_sums_and_tanhs_are_computed_again() -> None:
    steps = 8
    found = plan(_attention(steps), COLLECTING, {}, PlanOptions(recompute='cheap'))
    _verified(found.original, found.graph)
    # What the last step made may still be there when the backward part begins.
    assert sorted(set(_clones(found.graph))) == ['elementwise_add', 'tanh']
    assert len(_clones(found.graph)) >= 2 * (steps - 2)
    assert found.after.peak_bytes <= 4 * UNIT + 2048


def _product() -> Graph:
    """MXNet's third case: tanh, tanh, a product whose gradient reads its input and not its output."""
    draft = Draft()
    draft.values('x', rows=4096, fed=True)
    draft.values('w', rows=64, persistable=True)
    draft.values('y z f g gz gy gx', rows=4096)
    draft.value('gw', rows=64)
    draft.op('tanh', 'x', 'y')
    draft.op('tanh', 'y', 'z')
    draft.op('mul', 'z w', 'f')
    _backward(draft, 'fill', 'f', 'g')
    _backward(draft, 'mul_grad', 'z w g', 'gz gw')
    _backward(draft, 'tanh_grad', 'z gz', 'gy', in_place=((1, 0),))
    _backward(draft, 'tanh_grad', 'y gy', 'gx', in_place=((1, 0),))
    draft.graph.values[draft.id('gx')].fetched = True
    return draft.graph


def test_case_3_the_input_of_a_product_is_computed_again_and_the_product_is_not() -> None:
    graph = _product()
    problem = _problem(graph)
    cell = problem.cells.index(next(v.id for v in graph.values if v.name == 'z'))
    found = evict(problem, Eviction(float('inf'), dropped=frozenset({cell})))
    new = _verified(graph, apply_plan(graph.copy(), problem, found))
    assert _clones(new) == ['tanh']
    reader = next(op for op in new.walk() if op.kind == 'mul_grad')
    assert new.values[reader.operands[0]].name == 'z@REBUILT'


@pytest.mark.parametrize('facts', [{
    'random': True
}, {
    'collective': True
}, {
    'side_effect': True
}, {
    'known': False
}])
def test_ops_with_more_effects_than_their_results_never_run_twice(facts: dict) -> None:
    graph = _chain(12)
    graph.ops[4] = replace(graph.ops[4], facts=replace(graph.ops[4].facts, **facts))
    for rung in _rungs(graph):
        runs = [op.origin for op in apply_plan(graph.copy(), rung.problem, rung.plan).walk()]
        assert runs.count(4) == 1


def test_nothing_is_cloned_after_what_it_reads_was_overwritten() -> None:
    length, updated = 24, 8
    draft = Draft()
    draft.value('x0', fed=True)
    draft.value('w', persistable=True)
    for i in range(1, length + 1):
        draft.value(f'x{i}')
        draft.op('scale_by', f'x{i - 1} w', f'x{i}')
    draft.value(f'g{length}')
    _backward(draft, 'fill', '', f'g{length}')
    for i in range(length, 0, -1):
        draft.value(f'g{i - 1}')
        _backward(draft, 'back', f'x{i} g{i}', f'g{i - 1}', in_place=((1, 0),))
        if i == updated:
            _backward(draft, 'sgd', f'w g{i - 1}', 'w')
    clones_before = 0
    for rung in _rungs(draft.graph):
        new = _verified(draft.graph, apply_plan(draft.graph.copy(), rung.problem, rung.plan))
        kinds = [(op.kind, op.origin == op.id) for op in new.walk()]
        update = kinds.index(('sgd', True))
        clones_before += kinds[:update].count(('scale_by', False))
        assert ('scale_by', False) not in kinds[update:]
    assert clones_before > updated


def _with_state() -> Graph:
    draft = Draft()
    draft.value('x', fed=True)
    draft.value('mean', rows=8, persistable=True)
    draft.values('y z a gz gy gx')
    draft.op('batch_norm', 'x mean', 'y mean', updates=((1, 1),))
    draft.op('batch_norm', 'y mean', 'z mean', updates=((1, 1),))
    draft.op('tanh', 'z', 'a')
    _backward(draft, 'fill', 'a', 'gz')
    _backward(draft, 'back', 'z gz', 'gy')
    _backward(draft, 'back', 'y gy', 'gx')
    return draft.graph


def test_a_clone_carries_no_state_on() -> None:
    graph = _with_state()
    problem = _problem(graph)
    found = evict(problem, Eviction(0))
    new = _verified(graph, apply_plan(graph.copy(), problem, found))
    clones = [op for op in new.walk() if op.origin not in (None, op.id)]
    assert clones
    for clone in clones:
        assert clone.operands[1] == clone.results[1]
        stand_in = new.values[clone.operands[1]]
        assert not stand_in.persistable and stand_in.name != 'mean'


def test_verification_refuses_a_clone_that_updates_state_again() -> None:
    graph = _with_state()
    problem = _problem(graph)
    new = apply_plan(graph.copy(), problem, evict(problem, Eviction(0)))
    clone = next(op for op in new.walk() if op.id != op.origin)
    origin = new.ops[clone.origin]
    new.ops[clone.id] = replace(clone,
                                operands=(clone.operands[0], origin.operands[1]),
                                results=(clone.results[0], origin.results[1]))
    with pytest.raises(VerificationError):
        _verified(graph, new)


def _within(graph: Graph, budget: int) -> Optional[object]:
    try:
        return plan(graph, COLLECTING, {}, PlanOptions(budget=budget))
    except MemoryBudgetError:
        return None


def test_more_budget_is_never_slower_and_less_never_needs_more() -> None:
    graph = _chain(20)
    enough = plan(graph, COLLECTING, {}, PlanOptions(recompute='')).budget_bytes // UNIT
    found = [_within(graph, units * UNIT) for units in range(2, enough + 1)]
    plans = list(itertools.dropwhile(lambda p: p is None, found))
    assert None not in plans and len(plans) > 15
    seconds = [p.recomputed.seconds if p.recomputed else 0.0 for p in plans]
    assert seconds == sorted(seconds, reverse=True) and seconds[-1] == 0
    assert [p.after.peak_bytes for p in plans] == sorted(p.after.peak_bytes for p in plans)


def test_a_budget_is_kept_or_refused_with_what_stands_in_the_way() -> None:
    """What fed and fetched values earlier runs have left counts, too; the peak of a run is a few units."""
    graph = _chain(10)
    with pytest.raises(MemoryBudgetError, match='the lowest peak reached is') as caught:
        plan(graph, COLLECTING, {}, PlanOptions(budget=UNIT))
    least = caught.value.best_bytes
    free = plan(graph, COLLECTING, {}, PlanOptions(recompute=''))
    assert UNIT < least < free.budget_bytes
    kept = plan(graph, COLLECTING, {}, PlanOptions(budget=least))
    assert kept.sure_bytes <= least and kept.after.peak_bytes <= 8 * UNIT


def test_the_overhead_is_a_limit() -> None:
    graph = _chain(40)
    for share in (0.0, 0.05, 0.2):
        found = plan(graph, COLLECTING, {}, PlanOptions(max_overhead=share))
        spent = found.recomputed.seconds / found.step_seconds if found.recomputed else 0
        assert spent <= share


def test_without_leave_nothing_is_computed_again() -> None:
    found = plan(_chain(20), COLLECTING, {}, PlanOptions(recompute=''))
    assert not _clones(found.graph)


def test_cheap_leaves_products_alone() -> None:
    graph = _chain(10, 'matmul')
    assert not any(_problem(graph, 'cheap').results)
    assert any(_problem(graph, 'max').results)


def test_a_front_keeps_what_no_other_beats() -> None:
    problem = _problem(_chain(2))
    nothing = untouched(problem)
    rungs = [Rung(p, s, nothing, problem) for p, s in ((9, 0), (5, 1), (6, 2), (5, 3), (3, 4))]
    assert [(r.peak, r.seconds) for r in front(rungs)] == [(9, 0), (5, 1), (3, 4)]
    assert profile(problem, nothing).peak == _peak(_chain(2))
