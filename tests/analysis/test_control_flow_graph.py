"""Liveness over nested regions is what listing every path gives."""
from __future__ import annotations

from typing import Dict, FrozenSet, Set, Tuple

import pytest

from tests.graphs import Draft, entry_of, generated, live_after, traces
from transpiler.analysis.control_flow_graph import ControlFlowGraph
from transpiler.ir import Graph, RegionKind


def live_by_paths(graph: Graph) -> Dict[int, Set[int]]:
    """For each plain op, the values that some path reads after it before writing them again."""
    found: Dict[int, Set[int]] = {}
    for trace in traces(graph):
        for event, live in zip(trace, live_after(trace)):
            if event.op >= 0 and not graph.ops[event.op].regions:
                found.setdefault(event.op, set()).update(live)
    return found


def outlive_the_program(graph: Graph) -> FrozenSet[int]:
    """Read after the last op by whoever fetches: the analysis knows ops only."""
    return frozenset(v.id for v in graph.values if v.fetched or v.persistable)


@pytest.mark.parametrize('seed', range(80))
def test_liveness_equals_the_union_over_all_paths(seed: int) -> None:
    graph = generated(seed)
    analysis = ControlFlowGraph(graph)
    outside = outlive_the_program(graph)
    for op, live in live_by_paths(graph).items():
        assert analysis.live_out(analysis.node_of[op]) - outside == live - outside, graph.ops[op]


@pytest.mark.parametrize('seed', range(80))
def test_live_in_is_what_the_op_reads_and_what_it_lets_pass(seed: int) -> None:
    graph = generated(seed)
    analysis = ControlFlowGraph(graph)
    for op in graph.walk():
        if not op.regions:
            node = analysis.node_of[op.id]
            passed = analysis.live_out(node) - set(op.writes())
            assert analysis.live_in(node) == passed | set(op.data_reads())


def loop_with_gradient() -> Tuple[Draft, int, int]:
    """h = f(h) in a loop over x; the gradient reads the body's `inner`, kept per trip."""
    draft = Draft()
    draft.values('x h g')
    draft.op('fill', '', 'h')
    loop = draft.op('while', 'x h', 'h')
    body = draft.region(loop, RegionKind.LOOP, keeps_scopes=True)
    draft.values('inner scratch', region=body)
    draft.op('mul', 'x h', 'inner', body)
    draft.op('tanh', 'inner', 'scratch', body)
    draft.op('assign', 'scratch', 'h', body)
    gradient = draft.op('while_grad', 'x h', 'g')
    back = draft.region(gradient, RegionKind.LOOP_GRADIENT, forward=body)
    draft.op('mul_grad', 'inner x', 'g', back)
    return draft, body, back


def test_a_loop_carried_value_is_live_from_the_end_of_the_body_to_its_start() -> None:
    draft, body, _ = loop_with_gradient()
    analysis = ControlFlowGraph(draft.graph)
    assert draft.id('h') in analysis.live_out(analysis.exit_of[body])
    assert draft.id('h') in analysis.live_in(analysis.entry_of[body])


def test_a_value_that_the_gradient_reads_is_live_past_the_end_of_the_body() -> None:
    draft, body, _ = loop_with_gradient()
    analysis = ControlFlowGraph(draft.graph)
    assert draft.id('inner', body) in analysis.live_out(analysis.exit_of[body])
    assert draft.id('scratch', body) not in analysis.live_out(analysis.exit_of[body])


def test_a_value_of_the_parent_is_live_up_to_its_use_in_a_branch() -> None:
    draft = Draft()
    draft.values('x a b y')
    first = draft.op('scale', 'x', 'a')
    between = draft.op('scale', 'x', 'b')
    branch = draft.op('conditional_block', 'a b', 'y')
    arm = draft.region(branch, RegionKind.BRANCH)
    use = draft.op('add', 'a b', 'y', arm)
    draft.op('scale', 'y', 'b')
    analysis = ControlFlowGraph(draft.graph)
    live_out = lambda op: analysis.live_out(analysis.node_of[op.id])
    assert draft.id('a') in live_out(first) and draft.id('a') in live_out(between)
    assert draft.id('a') not in live_out(use)


def test_what_a_branch_may_not_overwrite_stays_live_around_it() -> None:
    draft = Draft()
    draft.values('x y z')
    first = draft.op('scale', 'x', 'y')
    branch = draft.op('conditional_block', 'x', 'y')
    draft.op('scale', 'x', 'y', draft.region(branch, RegionKind.BRANCH))
    draft.op('scale', 'y', 'z')
    analysis = ControlFlowGraph(draft.graph)
    assert draft.id('y') in analysis.live_out(analysis.node_of[first.id])


def test_a_region_of_unknown_rules_uses_all_that_it_names() -> None:
    draft = Draft()
    draft.values('x y z')
    first = draft.op('scale', 'x', 'y')
    opaque = draft.op('recurrent')
    draft.op('scale', 'y', 'z', draft.region(opaque, RegionKind.OPAQUE))
    analysis = ControlFlowGraph(draft.graph)
    assert {draft.id('y'), draft.id('z')} <= analysis.live_out(analysis.node_of[first.id])


def carried_by_paths(graph: Graph) -> Set[int]:
    """Values of inner regions of which some path reads, from an entry on, what they held before it."""
    found: Set[int] = set()
    home = {entry_of(region.id): region.id for region in graph.regions[1:]}
    for trace in traces(graph):
        for event, live in zip(trace, live_after(trace)):
            if event.op in home:
                found.update(v for v in live if graph.values[v].region == home[event.op])
    return found


@pytest.mark.parametrize('seed', range(80))
def test_carried_values_are_those_read_before_they_are_written_on_some_path(seed: int) -> None:
    graph = generated(seed)
    assert ControlFlowGraph(graph).carried() == carried_by_paths(graph)


def test_some_generated_values_are_carried() -> None:
    assert sum(bool(carried_by_paths(generated(seed))) for seed in range(80)) > 3
