"""Shapes that are read of somebody else, where the runtime loses those of what is released."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from tests.graphs import Draft, trained_loop
from transpiler.analysis.timeline import Timeline
from transpiler.ir import RELEASE, SHARE, Graph, Size
from transpiler.passes.context import PassContext
from transpiler.passes.releases.in_time import release_surely, without_collector
from transpiler.passes.releases.prompt import hand_on_or_release
from transpiler.passes.releases.stand_ins import read_shapes_of_others
from transpiler.runtime import COLLECTING, EVERYTHING, Can, Runtime
from transpiler.verify import verify

_LOSES = replace(COLLECTING, can=EVERYTHING - {Can.SHAPES}, in_place=frozenset(), ops_per_release=2)


def _draft(other_rows: int = 1024, follows: str = '', other_lives: bool = True) -> Draft:
    """`dead` is read for its shape alone long after its data; `other` is made before that is read, and may live on."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('dead late gradient')
    draft.value('other', other_rows, follows=frozenset(follows))
    draft.value('large', 64 * 1024)
    draft.value('loss', fetched=True)
    draft.op('exp', 'x', 'dead')
    draft.op('exp', 'dead', 'late')
    draft.op('tanh', 'late', 'other')
    draft.op('expand', 'other', 'large')
    draft.op('like', 'dead large', 'gradient', shape_only=frozenset({0}))
    draft.op('sum', 'gradient other' if other_lives else 'gradient large', 'loss')
    return draft


def _verify(old: Graph, new: Graph) -> None:
    verify(old, new, {op.id: op.origin for op in new.walk() if op.origin is not None})


def _looked_at(draft: Draft, runtime: Runtime = _LOSES) -> str:
    """The name of the value whose shape is read behind the pass."""
    graph = draft.graph
    after = read_shapes_of_others(graph.copy(), PassContext(runtime, {}))
    _verify(graph, after)
    read, = (v for op in after.walk() for v in op.shape_reads())
    return after.values[read].name


def test_the_shape_is_read_of_what_is_there_anyway() -> None:
    assert _looked_at(_draft()) == 'other'


def test_the_shape_is_read_of_what_died_later_if_all_that_have_it_are_dead() -> None:
    assert _looked_at(_draft(other_lives=False)) == 'other'


@pytest.mark.parametrize('draft',
                         [_draft(other_rows=2048), _draft(follows='y')],
                         ids=['other dims', 'dims of another input'])
def test_nobody_stands_in_whose_dims_may_be_others(draft: Draft) -> None:
    """But what died later: the one that `dead` was made into."""
    assert _looked_at(draft) == 'late'


def test_what_the_op_reads_itself_does_not_stand_in() -> None:
    """An executor may take what is in such a slot for read by nobody."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('dead given gradient')
    draft.value('loss', fetched=True)
    draft.op('exp', 'x', 'dead')
    draft.op('exp', 'dead', 'given')
    draft.op('like', 'dead given', 'gradient', shape_only=frozenset({0}))
    draft.op('sum', 'gradient given', 'loss')
    assert _looked_at(draft) == 'dead'


def test_whose_memory_is_handed_on_does_not_stand_in_behind_that() -> None:
    """One variable may have other dims by then."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('dead late gradient')
    draft.value('large', 64 * 1024)
    draft.value('row', 1024)
    draft.value('loss', fetched=True)
    draft.op('exp', 'x', 'dead')
    draft.op('exp', 'dead', 'late')
    draft.op('tanh', 'late', 'row', in_place=((0, 0),), same_name=True)
    draft.op('expand', 'row', 'large')
    draft.op('like', 'dead large', 'gradient', shape_only=frozenset({0}))
    draft.op('sum', 'gradient large', 'loss')
    draft.graph.values[draft.id('row')].follows = frozenset('y')
    runtime = replace(_LOSES, in_place=COLLECTING.in_place)
    assert _looked_at(draft, runtime) == 'dead'


def test_what_the_program_lets_go_of_before_does_not_stand_in() -> None:
    """Its shape would be gone, too."""
    draft = _draft(other_lives=False)
    release = draft.op(RELEASE, '', 'other late', side_effect=True)
    release.origin = None
    ops = draft.graph.regions[0].ops
    ops.insert(4, ops.pop())
    assert _looked_at(draft) == 'dead'


def test_who_is_one_variable_with_something_of_other_dims_by_then_does_not_stand_in() -> None:
    """A release names it later: that is of the variable, not of its dims."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('dead other turned gradient')
    draft.value('large', 64 * 1024)
    draft.value('loss', fetched=True)
    draft.graph.values[draft.id('turned')].shape = (Size.of(512), Size.of(2))
    draft.op('exp', 'x', 'dead')
    draft.op('expand', 'dead', 'large')
    draft.op('first', 'large', 'other')
    draft.op(SHARE, 'other', 'turned', side_effect=True).origin = None
    draft.op('turn', 'other', 'turned', in_place=((0, 0),), same_name=True, same_bytes=True)
    draft.op('like', 'dead large', 'gradient', shape_only=frozenset({0}))
    draft.op('sum', 'gradient turned', 'loss')
    draft.op(RELEASE, '', 'other', side_effect=True).origin = None
    assert _looked_at(draft) == 'dead'
    draft.graph.regions[0].ops.pop(3)
    assert _looked_at(draft) == 'other'


def _loop(of_x: str) -> Draft:
    """In its trips `dead` is read for its shape alone behind its data; `late` has the same, and is dead by then, too. The loop reads
    the fed `x` if the op of that name does."""
    draft, body = trained_loop('dead late gradient next')
    draft.op('exp', 'h', 'dead', region=body)
    draft.op('exp', 'dead', 'late', region=body)
    draft.op('tanh', 'late', 'next', region=body)
    draft.op('like', f'dead {of_x or "next"}', 'gradient', region=body, shape_only=frozenset({0}))
    draft.op('sum', 'gradient next', 'h', region=body)
    draft.value('loss', fetched=True)
    draft.op('mean', 'h', 'loss')
    return draft


def test_in_a_loop_the_shape_is_read_of_what_comes_from_outside_and_stays() -> None:
    """But not of what the loop begins with, which it may let go of, nor of what is dead: in a body nothing waits to be released."""
    assert _looked_at(_loop('')) == 'x'
    assert _looked_at(_loop('x')) == 'next'  # the op reads x itself


def test_in_a_loop_nothing_stands_in_that_has_the_dims_of_the_last_trip() -> None:
    draft = _loop('')
    for value in draft.graph.values:
        value.follows = frozenset({'h (1)'})  # which the loop hands on
    assert _looked_at(draft) == 'dead'


def test_what_a_trip_makes_is_released_in_it_though_its_shape_is_read_later() -> None:
    context = PassContext(_LOSES, {})
    after = hand_on_or_release(read_shapes_of_others(_loop('').graph, context), context)
    released = [
        after.values[v].name for op in after.walk() if op.kind == RELEASE and op.region
        for v in op.writes()
    ]
    assert sorted(released) == ['dead', 'gradient', 'late', 'next']


def _trained(layers: int) -> Graph:
    """Sums of what a chain adds up, whose gradients read no more of them than the shape."""
    draft = Draft()
    draft.value('h0', fed=True)
    for i in range(1, layers + 1):
        draft.values(f'p{i} h{i}')
        draft.op('product', f'h{i - 1}', f'p{i}')
        draft.op('add', f'p{i} h{i - 1}', f'h{i}')
    grad = f'h{layers}'
    for i in range(layers, 0, -1):
        draft.value(f'g{i}')
        draft.op('add_gradient', f'p{i} {grad}', f'g{i}', shape_only=frozenset({0}))
        grad = f'g{i}'
    draft.value('loss', fetched=True)
    draft.op('mean', grad, 'loss')
    return draft.graph


def _sure_bytes(graph: Graph, first: Optional[PassContext] = None) -> int:
    """What `graph` needs if the collector never comes, where the program lets go of all that it may."""
    given = graph if first is None else read_shapes_of_others(graph.copy(), first)
    after = release_surely(given.copy(), PassContext(_LOSES, {}))
    _verify(graph, after)
    return without_collector(after, Timeline(after, _LOSES, {}), True, False)


@pytest.mark.parametrize('layers', [32, 64, 128])
def test_nobody_waits_for_the_gradient_to_read_a_shape(layers: int) -> None:
    """A few vectors, however many layers: without stand-ins those of all layers wait."""
    graph = _trained(layers)
    each = 1024 * 4
    assert _sure_bytes(graph) >= layers * each
    assert _sure_bytes(graph, PassContext(_LOSES, {})) <= 16 * each
