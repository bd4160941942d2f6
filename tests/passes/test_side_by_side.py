"""Sharing for every order, against all orders of small graphs."""
from __future__ import annotations

from itertools import permutations

import pytest

from tests.graphs import Draft
from tests.orders import straight_graph, topological_orders
from transpiler.analysis.dependences import ancestors, dependences
from transpiler.ir import Graph
from transpiler.passes.context import PassContext
from transpiler.passes.inplace import coalesce_in_place
from transpiler.passes.reuse import reuse_storages
from transpiler.passes.side_by_side import EveryOrder
from transpiler.runtime import RETAINING


def touching(graph: Graph, value: int) -> set:
    ops = graph.regions[0].ops
    return {
        i for i, op in enumerate(ops) if value in graph.ops[op].reads() + graph.ops[op].writes()
    }


@pytest.mark.parametrize('seed', range(25))
def test_precedes_is_what_all_orders_say(seed: int) -> None:
    graph = straight_graph(seed, 6)
    every = EveryOrder(graph)
    orders = [{
        op: at for at, op in enumerate(order)
    } for order in topological_orders(dependences(graph, 0).before)]
    values = [v.id for v in graph.values if touching(graph, v.id)]
    for a, b in permutations(values, 2):
        always = all(position[i] < position[j]
                     for position in orders
                     for i in touching(graph, a)
                     for j in touching(graph, b))
        assert every.precedes([a], [b]) == always


def longest_path(graph: Graph) -> int:
    length = []
    for earlier in dependences(graph, 0).before:
        length.append(1 + max((length[p] for p in earlier), default=0))
    return max(length)


@pytest.mark.parametrize('seed', range(80))
def test_parallel_sharing_adds_no_dependence(seed: int) -> None:
    graph = straight_graph(seed, 14, training=seed % 2 == 0)
    context = PassContext(RETAINING, {}, parallel=True)
    shared = reuse_storages(coalesce_in_place(graph.copy(), context), context)
    before, after = (ancestors(dependences(g, 0).before) for g in (graph, shared))
    assert before == after
    assert longest_path(graph) == longest_path(shared)


def test_branches_share_nothing_but_a_chain_does() -> None:
    draft = Draft()
    draft.value('x', fed=True)
    for branch in 'ab':
        draft.values(' '.join(f'{branch}{i}' for i in range(4)))
        for source, target in (('x', '0'), ('0', '1'), ('1', '2'), ('2', '3')):
            source = source if source == 'x' else branch + source
            draft.op('op', source, branch + target)
    shared = {}
    for parallel in (True, False):
        context = PassContext(RETAINING, {}, parallel=parallel)
        graph = reuse_storages(draft.graph.copy(), context)
        shared[parallel] = {
            frozenset(graph.values[v].name[0]
                      for v in members)
            for members in graph.storage_members().values()
        }
    assert shared[True] == {frozenset('a'), frozenset('b')}
    assert frozenset('ab') in shared[False]
