"""What the timeline takes to run in place is what Paddle's executor makes run in place."""
from __future__ import annotations

from typing import Any, List, Set, Tuple

import paddle
import pytest
from paddle.base.executor import _apply_inplace_addto_pass

from benchmarks.programs import build, small_options
from tests.harness import Case, new_programs
from tests.scenarios.common import data, floats, random_feed
from transpiler import memory_optimize
from transpiler.analysis.in_place import hands_on
from transpiler.analysis.lifetimes import Lifetimes
from transpiler.backends.paddle2.broadcasts import works_in_place
from transpiler.backends.paddle2.importer import import_program
from transpiler.ir import Graph
from transpiler.runtime import COLLECTING

PROGRAMS = ('resnet18', 'mobilenet_v2', 'densenet121', 'transformer', 'bert', 'lstm', 'gru',
            'fc_chain', 'wide', 'loop', 'nested_loops', 'cond_in_loop')
OPTIMIZERS = ('momentum', 'adam')

Pairs = Set[Tuple[str, str]]


def _pairs(program: Any) -> Pairs:
    return {(source, target) for op in program.global_block().ops if op.type == 'share_buffer'
            for source, target in zip(op.input('X'), op.output('Out'))}


def shared_by_paddle(case: Any) -> Pairs:
    """(operand, result) of each share_buffer op that the executor inserts before it runs the program."""
    program = case.main.clone()
    _apply_inplace_addto_pass(program, True, False, sorted(case.feed(0)) + list(case.fetch))
    return _pairs(program) - _pairs(case.main)


def shared_by_the_model(graph: Graph) -> Pairs:
    """(storage, next storage) wherever the runtime works in place by itself."""
    name = lambda storage: graph.values[storage].name
    return {(name(a), name(b))
            for op, a, b in Lifetimes(graph, COLLECTING).shared
            if not hands_on(graph.ops[op])}


def graph_of(case: Any) -> Graph:
    return import_program(case.main.desc.serialize_to_string(), case.fetch).graph


def check(case: Any) -> Pairs:
    """Both agree, but for values without a known size, which the timeline leaves out, and results of kernels that take new
    memory all the same."""
    graph = graph_of(case)
    sized = {v.name for v in graph.values if v.size is not None}
    refused = {
        graph.values[v].name for op in graph.walk() if not works_in_place(graph, op)
        for v in op.writes()
    }
    expected = {
        pair for pair in shared_by_paddle(case) if set(pair) <= sized and pair[1] not in refused
    }
    found = shared_by_the_model(graph)
    assert found == expected, (sorted(found - expected)[:5], sorted(expected - found)[:5])
    return found


@pytest.mark.parametrize('name', PROGRAMS)
def test_training_shares_what_paddle_shares(name: str) -> None:
    check(build(name, small_options(name)))


@pytest.mark.parametrize('name', ['resnet18', 'transformer'])
def test_inference_shares_what_paddle_shares(name: str) -> None:
    check(build(name, small_options(name, inference=True)))


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
def test_optimizers_share_what_paddle_shares(optimizer: str) -> None:
    check(build('fc_chain', small_options('fc_chain', optimizer=optimizer)))


def test_the_comparison_is_not_of_empty_sets() -> None:
    assert check(build('transformer', small_options('transformer')))


def test_a_fetched_intermediate_is_shared_by_neither() -> None:
    case = build('resnet18', small_options('resnet18'))
    graph = graph_of(case)
    given: List[str] = sorted(a for a, _ in shared_by_the_model(graph))
    fetched = import_program(case.main.desc.serialize_to_string(), [*case.fetch, given[0]]).graph
    assert given[0] not in {a for a, _ in shared_by_the_model(fetched)}
    program = case.main.clone()
    _apply_inplace_addto_pass(program, True, False, [*case.fetch, given[0]])
    assert not any(
        given[0] in op.input('X') for op in program.global_block().ops if op.type == 'share_buffer')


def test_what_shares_its_operands_buffer_is_shared_where_paddle_does() -> None:
    """A value may get a buffer, and gives none away when it is detached: what comes of that has the same one."""
    with new_programs() as (main, startup):
        hidden = paddle.tanh(data('x', 4, 8) * 2.0)
        inside = paddle.sin(hidden) * 3.0
        same = inside.detach()
        loss = paddle.mean(same) + paddle.mean(paddle.exp(inside))
    found = check(Case(main, startup, random_feed(x=floats(4, 8)), [loss.name]))
    assert any(b == inside.name for _, b in found)
    assert not {inside.name, same.name} & {a for a, _ in found}


@pytest.mark.parametrize('name', ['transformer', 'loop'])
def test_what_is_released_is_shared_where_paddle_does(name: str) -> None:
    case = build(name, small_options(name))
    assert memory_optimize(case.main, fetch_list=list(case.fetch), runtime='retaining').changed
    check(case)
