"""Dependences: what must stay, stays in every order that they allow; what need not is free to move."""
from __future__ import annotations

import random
from dataclasses import replace
from typing import Set, Tuple

import pytest

from tests.graphs import Draft, generated
from tests.orders import allows, random_order, reordered
from transpiler.analysis.accesses import Accesses
from transpiler.analysis.dependences import ancestors, dependences
from transpiler.ir import Graph, RegionKind
from transpiler.verify import verify


def edges(graph: Graph, region: int = 0) -> Set[Tuple[int, int]]:
    """All (earlier, later) pairs, implied ones included."""
    before = dependences(graph, region).before
    return {(p, op) for op, mask in enumerate(ancestors(before)) for p in range(op) if mask >> p & 1
           }


def test_reads_stay_behind_the_write_and_writes_behind_the_reads() -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('fill', '', 'a')  # 0
    draft.op('op', 'a', 'b')  # 1
    draft.op('op', 'a', 'c')  # 2
    draft.op('fill', '', 'a')  # 3 overwrites it
    assert edges(draft.graph) == {(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)}


def test_a_read_of_the_shape_stays_before_the_next_write() -> None:
    draft = Draft()
    draft.values('a b')
    draft.op('fill', '', 'a')
    draft.op('like', 'a', 'b', shape_only=frozenset({0}))
    draft.op('fill', '', 'a')
    assert (1, 2) in edges(draft.graph)


def test_values_in_one_storage_depend_on_each_other() -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('fill', '', 'a')
    draft.op('op', 'a', 'c')
    draft.op('fill', '', 'b')
    assert edges(draft.graph) == {(0, 1)}
    draft.graph.values[draft.id('b')].storage = draft.id('a')
    assert edges(draft.graph) == {(0, 1), (0, 2), (1, 2)}


def test_an_op_stays_behind_those_that_it_has_to() -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('fill', '', 'a')  # 0
    first = draft.op('op', 'a', 'b')  # 1
    draft.op('op', 'a', 'c').behind = (first.id,)  # 2
    assert edges(draft.graph) == {(0, 1), (0, 2), (1, 2)}


def test_kernels_with_layouts_stay_behind_who_may_work_in_place_on_what_they_read() -> None:
    """They read a copy in the same memory, of which the executor has another name."""
    draft = Draft()
    draft.values('a b c d')
    draft.op('fill', '', 'a')  # 0
    draft.op('op', 'a', 'b', in_place=((0, 0),))  # 1
    draft.op('op', 'a', 'c', converts=True)  # 2
    draft.op('op', 'a', 'd')  # 3 reads what the executor knows by its name
    assert edges(draft.graph) == {(0, 1), (0, 2), (0, 3), (1, 2)}


@pytest.mark.parametrize('inside', ('taker', 'reader', 'both'))
def test_so_they_do_inside_of_branches(inside: str) -> None:
    draft = Draft()
    draft.values('a b c d')
    draft.op('fill', '', 'a')  # 0
    for name, result, facts in (('taker', 'b', dict(in_place=((0, 0),))), ('reader', 'c',
                                                                           dict(converts=True))):
        region = 0
        if inside in (name, 'both'):
            region = draft.region(draft.op('cond', 'a', ''), RegionKind.BRANCH)
            draft.values(result, region=region)
        draft.op('op', 'a', result, region=region, **facts)
    draft.op('cond', 'a', '')  # 3
    assert edges(draft.graph) == {(0, 1), (0, 2), (0, 3), (1, 2)}


@pytest.mark.parametrize('fact', ('random', 'side_effect', 'collective'))
def test_ordered_ops_keep_their_order_and_no_more(fact: str) -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('op', '', 'a', **{fact: True})
    draft.op('op', '', 'b')
    draft.op('op', '', 'c', **{fact: True})
    assert edges(draft.graph) == {(0, 2)}


def test_nothing_moves_across_a_boundary() -> None:
    draft = Draft()
    draft.values('a b c d')
    draft.op('fill', '', 'a')  # 0
    draft.op('fill', '', 'b')  # 1
    draft.op('boundary', '', 'c', boundary=True)  # 2
    draft.op('op', 'a', 'd')  # 3
    assert edges(draft.graph) == {(0, 2), (1, 2), (0, 3), (1, 3), (2, 3)}


def test_nothing_moves_across_an_unknown_op() -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('op', '', 'a')
    draft.op('mystery', '', 'b', known=False)
    draft.op('op', '', 'c')
    assert edges(draft.graph) == {(0, 1), (0, 2), (1, 2)}


def test_an_op_with_a_region_stands_for_what_its_ops_touch_outside() -> None:
    draft = Draft()
    draft.values('a b c d')
    draft.op('fill', '', 'a')  # 0
    loop = draft.op('while')  # 1
    inner = draft.region(loop, RegionKind.LOOP)
    draft.value('t', region=inner)
    draft.op('op', 'a', 't', region=inner)
    draft.op('op', 't', 'b', region=inner)
    draft.op('op', 'b', 'c')  # 2
    draft.op('fill', '', 'd')  # 3 is free
    reads, writes = Accesses(draft.graph).of(loop)
    assert reads == {draft.id('a')} and writes == {draft.id('b')}
    assert edges(draft.graph) == {(0, 1), (0, 2), (1, 2)}


def test_a_branch_reads_what_it_hands_out_under_a_name_that_no_op_inside_has_made() -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('fill', '', 'a')  # 0
    branch = draft.op('conditional_block_grad')  # 1 hands out `a` as `b`, and its own `t` as `c`
    inner = draft.region(branch, RegionKind.BRANCH)
    draft.value('t', region=inner)
    draft.op('fill', '', 't', region=inner)
    handed = (('a', 'b'), ('t', 'c'))
    draft.graph.regions[inner].results = tuple((draft.id(v, inner), draft.id(u)) for v, u in handed)
    draft.op('fill', '', 'a')  # 2
    reads, writes = Accesses(draft.graph).of(branch)
    assert reads == {draft.id('a')} and writes == {draft.id('b'), draft.id('c')}
    assert edges(draft.graph) == {(0, 1), (0, 2), (1, 2)}


def test_names_in_one_memory_are_one_storage() -> None:
    draft = Draft()
    draft.values('a b c d e f')
    draft.op('fill', '', 'a')  # 0
    draft.op('op', 'a', 'c')  # 1
    draft.op('share_data', 'a', 'b', aliases=True)  # 2
    draft.op('op', 'b', 'd')  # 3
    draft.op('op', 'a', 'e')  # 4 is free of 3
    draft.op('fill', '', 'f')  # 5 is free
    draft.op('update', 'a', 'a')  # 6 changes what `b` holds, too
    made = {(0, 1), (0, 2), (1, 2), (2, 3), (2, 4), (3, 6), (4, 6)}
    implied = {(0, 3), (0, 4), (1, 3), (1, 4), (0, 6), (1, 6), (2, 6)}
    assert edges(draft.graph) == made | implied


def test_who_may_work_in_place_on_one_of_the_names_stays_where_it_is_among_who_reads_any() -> None:
    """The executor lets it do so behind the last that reads that name."""
    draft = Draft()
    draft.values('a b c d e')
    draft.op('fill', '', 'a')  # 0
    draft.op('share_data', 'a', 'b', aliases=True)  # 1
    draft.op('op', 'a', 'c')  # 2
    draft.op('op', 'b', 'd', in_place=((0, 0),))  # 3
    draft.op('op', 'a', 'e')  # 4
    assert {(2, 3), (3, 4)} <= edges(draft.graph)


def names_in_one_memory(seed: int) -> Graph:
    """Ops on values of which some are in the memory of others, and are written again."""
    dice, draft = random.Random(seed), Draft()
    names = ['v0']
    draft.value('v0', fed=True)
    for i in range(1, 14):
        name = f'v{i}'
        kind = dice.choice(('op', 'op', 'in place', 'share', 'update'))
        read = dice.choice(names)
        if kind == 'update' and read != 'v0':
            draft.op('update', read, read)
            continue
        draft.value(name)
        if kind == 'share':
            draft.op('share_data', read, name, aliases=True)
        else:
            draft.op('op',
                     f'{read} {dice.choice(names)}',
                     name,
                     in_place=((0, 0),) if kind == 'in place' else ())
        names.append(name)
    for name in names:
        draft.graph.values[draft.id(name)].fetched = dice.random() < 0.3
    return draft.graph


@pytest.mark.parametrize('seed', range(40))
def test_orders_that_are_allowed_are_proved_where_names_are_in_one_memory(seed: int) -> None:
    graph, dice = names_in_one_memory(seed), random.Random(seed)
    origins = {op.id: op.id for op in graph.ops}
    orders = [random_order(graph, 0, dice) for _ in range(10)]
    assert any(order != sorted(order) for order in orders)
    for order in orders:
        verify(graph, reordered(graph, order), origins)


def test_an_op_that_makes_names_share_memory_freezes_its_region() -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('fill', '', 'a')
    draft.op('share_data', 'a', 'b')
    draft.op('fill', '', 'c')
    assert edges(draft.graph) == {(0, 1), (0, 2), (1, 2)}


@pytest.mark.parametrize('seed', range(150))
@pytest.mark.parametrize('layouts', (False, True))
def test_every_allowed_order_is_proved_equal(seed: int, layouts: bool) -> None:
    graph, dice = generated(seed), random.Random(seed)
    for op in graph.ops if layouts else ():
        op.facts = replace(op.facts, converts=not op.regions and dice.random() < 0.5)
    origins = {op.id: op.id for op in graph.ops}
    for _ in range(3):
        other = graph
        for region in graph.regions:
            order = random_order(other, region.id, dice)
            assert allows(dependences(other, region.id), order)
            other = reordered(other, order, region.id)
        verify(graph, other, origins)
