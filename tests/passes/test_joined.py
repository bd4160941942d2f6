"""Values that are joined of several: kept as what they are joined of. On graphs that no Paddle made."""
from __future__ import annotations

from typing import List

import pytest

from tests.graphs import Draft
from tests.passes.test_recompute_main import UNIT, _backward, _chain, _problem
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph
from transpiler.passes.remat.joined import holding_joined, released
from transpiler.passes.remat.ladder import Rung, affordable, ladder
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.rewrite import apply_plan
from transpiler.passes.remat.steps import profile, untouched
from transpiler.runtime import COLLECTING
from transpiler.verify import verify

_WIDE = 32  # units that a layer needs at once


def _dense(layers: int) -> Graph:
    """A dense block: each layer reads what all before it have made, joined, and so does its gradient. A layer takes as long as several
    joins."""
    draft = Draft()
    draft.value('axis', 4, fed=True)
    draft.value('c0', fed=True)
    for i in range(layers):
        draft.value(f'x{i + 1}')
        draft.value(f'c{i + 1}', (i + 2) * UNIT // 4)
        draft.value(f'wide{i}', _WIDE * UNIT // 4)
        draft.op('tanh', f'c{i}', f'wide{i}')
        draft.op('tanh', f'wide{i}', f'x{i + 1}')
        draft.op('concat', f'c{i} x{i + 1} axis', f'c{i + 1}')
    draft.value(f'g{layers}')
    _backward(draft, 'fill', '', f'g{layers}')
    for i in range(layers, 0, -1):
        draft.value(f'g{i - 1}')
        _backward(draft, 'tanh_grad', f'c{i} g{i}', f'g{i - 1}')
    draft.graph.values[draft.id('g0')].fetched = True
    return draft.graph


def _joins(graph: Graph, problem: RematProblem) -> float:
    """Seconds of all joins."""
    return sum(s for s, op in zip(problem.seconds, problem.ops) if graph.ops[op].kind == 'concat')


def _checked(graph: Graph, rung: Rung) -> List[str]:
    """Kinds of the clones of a plan that the verifier takes, and that needs what it says."""
    new = apply_plan(graph.copy(), rung.problem, rung.plan)
    verify(graph, new, {op.id: op.origin for op in new.walk() if op.origin is not None})
    assert Timeline(new, COLLECTING, {}).peak_bytes == rung.peak
    return [op.kind for op in new.walk() if op.origin not in (None, op.id)]


@pytest.mark.parametrize('layers', [12, 18, 24])
def test_what_layers_made_is_kept_once_and_joined_for_each_gradient(
        layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _dense(layers)
    problem = _problem(graph)
    found = affordable(problem, _joins(graph, problem))[-1]
    clones = _checked(graph, found)
    assert clones and set(clones) == {'concat'}
    monkeypatch.setattr('transpiler.passes.remat.ladder.holding_joined', lambda problem: None)
    one_by_one = affordable(problem, _joins(graph, problem))[-1]
    assert 3 * found.peak < 2 * one_by_one.peak


@pytest.mark.parametrize('layers', [12, 24])
def test_a_ladder_has_such_plans(layers: int) -> None:
    graph = _dense(layers)
    clones = [_checked(graph, rung) for rung in ladder(graph, _problem(graph))[1:]]
    assert max(len(kinds) for kinds in clones if set(kinds) == {'concat'}) >= layers // 2


def test_a_plan_of_what_is_held_is_one_of_the_program_and_needs_no_more() -> None:
    graph = _dense(8)
    problem = _problem(graph)
    held = holding_joined(problem)
    assert held is not None
    rung = Rung(0, 0.0, released(problem, untouched(held)), problem)
    assert rung.plan == untouched(problem)
    assert profile(problem, rung.plan).peak < profile(held, untouched(held)).peak


def test_nothing_is_held_where_nothing_is_joined() -> None:
    assert holding_joined(_problem(_chain(8))) is None
