"""Which inputs the dims of values follow, by hand on small graphs."""
from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Tuple

import pytest

from tests.graphs import Draft
from transpiler.ir import RegionKind, Size, extents
from transpiler.ir.extents import has_one_extent, note_extents

ROWS = (Size.dim('N'), Size.of(8))
Shape = Tuple[Size, ...]
Found = Dict[str, FrozenSet[str]]


def declare(draft: Draft, name: str, shape: Shape = ROWS, **facts: Any) -> None:
    draft.graph.change(draft.value(name, **facts), shape=shape)


def two_inputs() -> Draft:
    draft = Draft()
    for name in 'ab':
        declare(draft, name, fed=True)
    return draft


def made(draft: Draft, names: str) -> None:
    for name in names.split():
        declare(draft, name)


def follows(draft: Draft, names: str, runs_as_declared: bool = True) -> Found:
    note_extents(draft.graph, runs_as_declared)
    return {name: draft.graph.values[draft.id(name)].follows for name in names.split()}


def test_what_is_made_of_one_input_follows_it_and_what_broadcasts_both_follows_both() -> None:
    draft = two_inputs()
    made(draft, 'c d e f')
    draft.op('tanh', 'a', 'c')
    draft.op('add', 'c b', 'd', broadcasts=0)
    draft.op('add', 'd a', 'e', broadcasts=0)
    draft.op('anything', 'a b', 'f')
    found = follows(draft, 'a b c d e f')
    assert found == {
        'a': {'a'},
        'b': {'b'},
        'c': {'a'},
        'd': {'a', 'b'},
        'e': {'a', 'b'},
        'f': {f'f ({draft.id("f")})'}
    }


def test_a_gradient_has_the_dims_of_what_it_is_the_gradient_of() -> None:
    draft = two_inputs()
    made(draft, 'c dc da db')
    draft.op('add', 'a b', 'c', broadcasts=0)
    draft.op('fill', 'c', 'dc')
    draft.op('add_grad', 'a b dc', 'da db', alike=((0, 0), (1, 1)))
    assert follows(draft, 'dc da db') == {'dc': {'a', 'b'}, 'da': {'a'}, 'db': {'b'}}


def test_what_may_have_its_dims_in_another_order_is_like_nothing_else() -> None:
    """Rows of one input by rows of the other, and turned."""
    draft = two_inputs()
    square = (Size.dim('N'), Size.dim('N'))
    for name in ('scores', 'turned'):
        declare(draft, name, square)
    draft.op('matmul', 'a b', 'scores')
    draft.op('transpose', 'scores', 'turned')
    found = follows(draft, 'scores turned')
    assert found['scores'] != found['turned']


def test_rows_that_are_given_may_be_more_than_those_of_an_input() -> None:
    draft = two_inputs()
    declare(draft, 'table', (Size.of(64), Size.of(8)), persistable=True)
    declare(draft, 'bias', (Size.of(8),), persistable=True)
    made(draft, 'c d')
    draft.op('add', 'a table', 'c', broadcasts=0, in_place=((0, 0),))
    draft.op('add', 'a bias', 'd', broadcasts=0, in_place=((0, 0),))
    assert follows(draft, 'c d') == {'c': {f'c ({draft.id("c")})'}, 'd': {'a'}}
    assert [has_one_extent(draft.graph, op) for op in draft.graph.ops] == [False, True]


def test_what_a_loop_carries_follows_what_it_begins_with_if_each_trip_leaves_the_like() -> None:
    for other, expected in (('a', {'a'}), ('b', None)):
        draft = two_inputs()
        made(draft, 'h')
        draft.op('zeros', 'a', 'h')
        body = draft.region(draft.op('while', 'h', 'h'), RegionKind.LOOP)
        declare(draft, 'inner', region=body)
        draft.op('add', f'h {other}', 'inner', body, broadcasts=0)
        draft.op('assign', 'inner', 'h', body)
        found = follows(draft, 'h')['h']
        assert found == (expected or {f'h ({draft.id("h")})'})


def test_a_run_may_have_other_dims_than_are_declared_where_nobody_looks() -> None:
    draft = Draft()
    fixed = (Size.of(64), Size.of(8))
    declare(draft, 'a', fixed, fed=True)
    declare(draft, 'c', fixed)
    draft.op('tanh', 'a', 'c')
    assert follows(draft, 'a c') == {'a': frozenset(), 'c': frozenset()}
    assert follows(draft, 'a c', runs_as_declared=False) == {'a': {'a'}, 'c': {'a'}}


def nested(depth: int) -> Draft:
    """Branches one inside of the other, each of which makes of what the one in it hands on what it hands on itself."""
    draft, region = two_inputs(), 0
    for level in range(depth):
        declare(draft, f'y{level}', region=region)
        op = draft.op('cond', '', f'y{level}', region)
        region = draft.region(op, RegionKind.BRANCH)
        declare(draft, f'z{level}', region=region)
        draft.graph.regions[region].results = ((draft.id(f'z{level}',
                                                         region), draft.id(f'y{level}',
                                                                           op.region)),)
    for level in reversed(range(depth)):
        last = 'a' if level == depth - 1 else f'y{level + 1}'
        draft.op('tanh', last, f'z{level}', region)
        region = draft.graph.regions[region].parent
    return draft


def test_what_branches_hand_on_is_found_in_few_passes_however_deep_they_are(
        monkeypatch: pytest.MonkeyPatch) -> None:
    passes: List[int] = []
    plain = extents._Extents._pass
    monkeypatch.setattr(extents._Extents, '_pass', lambda self, before:
                        (passes.append(depth), plain(self, before)))
    for depth in (2, 30):
        draft = nested(depth)
        note_extents(draft.graph, True)
        made = [value.follows for value in draft.graph.values if value.name[0] in 'yz']
        assert len(made) == 2 * depth and set(made) == {frozenset('a')}
    assert passes.count(30) == passes.count(2) == 2
