"""Graph: walking, copying, and what an op says that it reads."""
from __future__ import annotations

from typing import Any, Dict

import pytest

from tests.graphs import Draft, generated
from transpiler.ir import RegionKind


def test_walk_visits_each_op_once_and_before_the_ops_of_its_regions() -> None:
    for seed in range(20):
        graph = generated(seed)
        order = [op.id for op in graph.walk()]
        assert sorted(order) == [op.id for op in graph.ops]
        for region in graph.regions[1:]:
            assert all(order.index(region.op) < order.index(inner) for inner in region.ops)


def test_inside_lists_nested_ops_at_any_depth_and_not_the_op_itself() -> None:
    draft = Draft()
    draft.values('a b c')
    outer = draft.op('while', 'a', 'b')
    body = draft.region(outer, RegionKind.LOOP)
    branch = draft.op('conditional_block', 'a', 'b', body)
    arm = draft.region(branch, RegionKind.BRANCH)
    deepest = draft.op('scale', 'a', 'b', arm)
    draft.op('scale', 'b', 'c')
    assert [op.id for op in draft.graph.inside(outer)] == [branch.id, deepest.id]
    assert list(draft.graph.inside(deepest)) == []


def test_reads_name_each_value_once_and_leave_out_empty_slots() -> None:
    draft = Draft()
    draft.values('a b c')
    op = draft.op('op', 'a a b', 'c c')
    op.operands += (-1,)
    op.results += (-1,)
    assert op.reads() == (draft.id('a'), draft.id('b'))
    assert op.writes() == (draft.id('c'),)


def test_a_value_read_for_data_in_one_slot_is_no_shape_read_in_another() -> None:
    draft = Draft()
    draft.values('a b c')
    op = draft.op('op', 'a a b', 'c', shape_only=frozenset({1, 2}))
    assert op.data_reads() == (draft.id('a'),)
    assert op.shape_reads() == (draft.id('b'),)


@pytest.mark.parametrize('facts', ['random', 'side_effect', 'collective'])
def test_ops_that_others_could_notice_are_ordered(facts: str) -> None:
    draft = Draft()
    draft.values('a b')
    assert draft.op('op', 'a', 'b', **{facts: True}).facts.ordered
    assert draft.op('unheard of', 'a', 'b', known=False).facts.ordered
    assert not draft.op('op', 'a', 'b').facts.ordered


def test_storages_of_a_copy_change_without_changing_the_original() -> None:
    draft = Draft()
    draft.values('a b')
    copy = draft.graph.copy()
    copy.values[1].storage = copy.values[0].id
    copy.regions[0].ops.append(7)
    assert draft.graph.values[1].storage == draft.graph.values[1].id
    assert draft.graph.regions[0].ops == []
    assert copy.storage_members() == {0: [0, 1]}
    assert draft.graph.storage_members() == {}


def test_a_fork_has_the_values_themselves_until_one_is_changed() -> None:
    draft = Draft()
    draft.values('a b')
    fork, had = draft.graph.fork(), list(draft.graph.values)
    fork.change(1, storage=0)
    fork.regions[0].ops.append(7)
    assert all(value is other for value, other in zip(draft.graph.values, had))
    assert fork.values[0] is had[0] and fork.values[1] is not had[1]
    assert fork.storage_members() == {0: [0, 1]}
    assert draft.graph.storage_members() == {} and draft.graph.regions[0].ops == []
    fork.change(1, storage=1)
    assert fork.values == had


def test_unshared_gives_every_value_its_own_memory_again() -> None:
    draft = Draft()
    draft.values('a b c')
    draft.graph.values[2].storage = draft.graph.values[0].id
    assert draft.graph.unshared().storage_members() == {}
    assert draft.graph.values[2].storage == draft.graph.values[0].id


def test_what_no_runtime_would_make_in_place_by_itself_stays_there() -> None:
    """A bound that let them go would lie above what the program needs."""
    draft = Draft()
    draft.values('a b c other')
    for source, target in ('ab', 'bc'):
        draft.op('sign', source, target, onto=((0, 0),))
    a, b, c, other = draft.graph.values
    assert draft.graph.unshared().storage_members() == {}
    b.storage = c.storage = other.storage = a.id
    assert draft.graph.unshared().storage_members() == {a.id: [a.id, b.id, c.id]}


def test_an_op_stands_for_itself_unless_told_otherwise() -> None:
    draft = Draft()
    draft.values('a b')
    op = draft.op('op', 'a', 'b')
    clone = draft.graph.new_op('op', 0, operands=op.operands, results=op.results, origin=op.id)
    assert op.origin == op.id and clone.origin == op.id


@pytest.mark.parametrize('facts', [{
    'known': False
}, {
    'aliases': True
}, {
    'in_place': ((0, 0),)
}, {
    'one_memory': ((0, 0),)
}, {
    'side_effect': True
}, {
    'shares_unsaid': True
}],
                         ids=str)
def test_what_may_be_in_memory_of_others_has_none_made_for_it(facts: Dict[str, Any]) -> None:
    draft = Draft()
    draft.values('a b')
    assert draft.op('op', 'a', 'b').makes_memory
    assert not draft.op('op', 'a', 'b', **facts).makes_memory
