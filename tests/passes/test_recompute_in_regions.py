"""How much is computed again inside loops and branches: levels for budgets, all regions at one exchange rate."""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, List, Tuple

import pytest

paddle = pytest.importorskip('paddle')  # make test-core has none

from benchmarks.programs import Options, build
from tests.harness import fingerprint, new_programs
from tests.passes.test_readers import gradients, looked_into
from tests.scenarios.common import Variable
from transpiler import MemoryBudgetError
from transpiler.analysis.cost import is_heavy
from transpiler.analysis.positions import Positions
from transpiler.arguments import dim_values
from transpiler.backends.paddle2.importer import import_program
from transpiler.ir import Graph
from transpiler.passes.context import PassContext
from transpiler.passes.inner_remat.readers import Readers
from transpiler.passes.recompute import recompute_in_regions, recompute_levels
from transpiler.planning import Plan, PlanOptions, plan
from transpiler.runtime import COLLECTING

LOOPS = ('gru_loop', 'attention_loop', 'nested_loops', 'loop_in_cond', 'cond_in_loop',
         'dynamic_rnn', 'demo')
each_program = pytest.mark.parametrize('name', LOOPS, scope='module')
_MODEL = COLLECTING
_BUDGETS = 6


@lru_cache(maxsize=None)
def _program(name: str) -> Tuple[Graph, Dict[str, int]]:
    """A program of a size at which products and arrays matter, not scalars."""
    case = build(name, Options())
    program = import_program(fingerprint(case.main), case.fetch)
    dims, _ = dim_values(program.symbols(), case.batch_size, case.trip_count)
    return program.graph, dims


@lru_cache(maxsize=8)
def _planned(name: str, **options: object) -> Plan:
    """Tests of one program follow each other, and ask for some of the same plans."""
    graph, dims = _program(name)
    return plan(graph, _MODEL, dims, PlanOptions(**options))


def _extra(found: Plan) -> float:
    return found.extra_seconds + (found.recomputed.seconds if found.recomputed else 0.0)


@each_program
def test_levels_rebuild_more_and_more(name: str) -> None:
    graph, dims = _program(name)
    spent: List[float] = []
    for level in recompute_levels(graph, PassContext(_MODEL, dims)):
        context = PassContext(_MODEL, dims)
        level(graph.copy(), context)
        spent.append(context.spent_seconds)
        assert spent[-1] <= sum(seconds for _, seconds in level.limits) * (1 + 1e-9)
    everything = PassContext(_MODEL, dims, recompute='max')
    recompute_in_regions(graph.copy(), everything)
    assert spent == sorted(spent) and spent[0] == 0.0
    assert spent[-1] == pytest.approx(everything.spent_seconds)


def _branch_in_branch() -> Graph:
    """What the outer one makes the inner one's gradient reads, too."""
    with new_programs() as (main, _):
        x = paddle.static.data('x', [None, 16])
        inner, outer = (paddle.create_parameter([16, 16], 'float32') for _ in range(2))

        def way() -> Variable:
            made = paddle.tanh(paddle.matmul(x, outer))
            return paddle.static.nn.cond(
                paddle.max(x) > 1, lambda: paddle.tanh(paddle.matmul(made, inner)) * made,
                lambda: made * 2.0)

        chosen = paddle.static.nn.cond(paddle.mean(x) > 0, way, lambda: paddle.matmul(x, outer))
        loss = paddle.mean(chosen)
        paddle.optimizer.SGD(0.1).minimize(loss)
    return import_program(fingerprint(main), [loss.name]).graph


def test_what_nested_gradients_read_is_found_in_one_pass() -> None:
    nested = 0
    for graph in [_branch_in_branch(), *(_program(name)[0] for name in LOOPS)]:
        readers = Readers(graph, Positions(graph))
        for gradient in gradients(graph):
            found = looked_into(graph, gradient)
            ops = readers.ops(gradient)
            assert readers.of(gradient) == set(found)
            assert {op.id for op in ops} == set().union(*found.values())
            nested += sum(op.region != gradient.id for op in ops)
    assert nested


@each_program
def test_a_budget_takes_no_more_time_inside_loops_than_it_must(name: str) -> None:
    """Not nothing or all: what lies between is chosen where that is enough, and more budget is never slower."""
    lowest = _planned(name, recompute='max')
    least, most = lowest.budget_bytes, lowest.before.peak_bytes
    found = [
        _planned(name, budget=least + (most - least) * share // (2 * _BUDGETS))
        for share in range(_BUDGETS)
    ]
    assert all(each.sure_bytes <= least + (most - least) * share // (2 * _BUDGETS)
               for share, each in enumerate(found))
    extras = [_extra(each) for each in found]
    assert extras == sorted(extras, reverse=True)
    # Half the way down the memory costs less than half of the time.
    assert extras[-1] < extras[0] / 2


@each_program
def test_a_budget_as_low_as_the_lowest_peak_is_not_refused(name: str) -> None:
    """Releases in loops, which come after the choice, lower the peak further: they count."""
    least = _planned(name, recompute='max').budget_bytes
    assert _planned(name, budget=least).sure_bytes <= least
    with pytest.raises(MemoryBudgetError) as caught:
        _planned(name, budget=least // 4)
    told = caught.value.best_bytes
    assert least // 4 < told <= least
    assert _planned(name, budget=told).sure_bytes <= told


@pytest.mark.parametrize('name', ['gru_loop', 'demo'], scope='module')
def test_a_budget_is_no_leave_to_recompute(name: str) -> None:
    plain = _planned(name, recompute='')
    found = _planned(name, recompute='', budget=plain.budget_bytes)
    assert found.sure_bytes <= plain.budget_bytes and not _extra(found)
    with pytest.raises(MemoryBudgetError):
        _planned(name, recompute='', budget=_planned(name, recompute='max').budget_bytes)


def test_cheap_levels_leave_products_alone() -> None:
    graph, dims = _program('gru_loop')
    for level in recompute_levels(graph, PassContext(_MODEL, dims, recompute='cheap')):
        found = level(graph.copy(), PassContext(_MODEL, dims, recompute='cheap'))
        assert not [op for op in found.walk() if op.origin not in (None, op.id) and is_heavy(op)]
