"""In-place coalescing: a result takes over an operand that nobody needs any more."""
from __future__ import annotations

from typing import Any, Dict

import pytest

from tests.graphs import Draft, dims_of, generated, trained_loop
from transpiler.analysis.timeline import Timeline
from transpiler.ir import RegionKind, Size
from transpiler.passes.context import PassContext
from transpiler.passes.inplace import coalesce_in_place
from transpiler.runtime import COLLECTING, IDEAL, RETAINING, Runtime

IN_PLACE: Dict[str, Any] = {'in_place': ((0, 0),), 'same_name': True}


def merged(draft: Draft) -> Dict[str, str]:
    graph = draft.graph.copy()
    coalesce_in_place(graph, PassContext(RETAINING, dims_of(graph, 4)))
    return {v.name: graph.values[v.storage].name for v in graph.values if v.storage != v.id}


def pair(**facts: Any) -> Draft:
    """x -> a -> b -> end; a and b may share at the op between them, by these facts."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('a b')
    draft.op('op', 'x', 'a')
    draft.op('op', 'a', 'b', **facts)
    return draft


def test_a_result_takes_over_an_operand_that_dies() -> None:
    assert merged(pair(**IN_PLACE)) == {'b': 'a'}


def test_an_operator_that_may_not_work_in_place_does_not() -> None:
    assert merged(pair()) == {}


def test_a_kernel_that_shares_a_buffer_but_bears_no_single_name_is_left_alone() -> None:
    assert merged(pair(in_place=((0, 0),), same_name=False)) == {}


def test_a_chain_of_in_place_ops_uses_one_storage() -> None:
    draft = pair(**IN_PLACE)
    draft.values('c d')
    draft.op('op', 'b', 'c', **IN_PLACE)
    draft.op('op', 'c', 'd', **IN_PLACE)
    assert merged(draft) == {'b': 'a', 'c': 'a', 'd': 'a'}


def test_an_operand_that_is_read_later_is_kept() -> None:
    draft = pair(**IN_PLACE)
    draft.op('op', 'a', '')
    assert merged(draft) == {}


def test_an_operand_whose_shape_alone_is_read_later_is_taken() -> None:
    draft = pair(**IN_PLACE)
    draft.value('c')
    draft.op('like', 'a b', 'c', shape_only=frozenset({0}))
    assert merged(draft) == {'b': 'a'}


def test_a_fed_operand_and_a_fetched_result_are_left_alone() -> None:
    draft = Draft()
    draft.value('x', fed=True)
    draft.value('a')
    draft.value('y', fetched=True)
    draft.op('op', 'x', 'a', **IN_PLACE)
    draft.op('op', 'a', 'y', **IN_PLACE)
    assert merged(draft) == {}


@pytest.mark.parametrize('change', [{
    'dtype': 'FP16'
}, {
    'shape': (Size.of(2), Size.of(512))
}, {
    'shape': None,
    'size': None
}, {
    'lod_level': 1
}, {
    'skipped': True
}, {
    'persistable': True
}])
def test_pairs_that_differ_or_must_stay_apart_do(change: Dict[str, Any]) -> None:
    draft = pair(**IN_PLACE)
    for name, value in change.items():
        setattr(draft.graph.values[draft.id('b')], name, value)
    assert merged(draft) == {}


def test_an_operand_goes_to_one_result_only() -> None:
    draft = pair()
    draft.value('c')
    draft.graph.ops.pop()
    draft.graph.regions[0].ops.pop()
    draft.op('op', 'a', 'b c', in_place=((0, 0), (0, 1)), same_name=True)
    draft.op('last', 'b c', '')
    assert merged(draft) == {'b': 'a'}


def test_an_operand_named_twice_is_left_alone() -> None:
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('a b')
    draft.op('op', 'x', 'a')
    draft.op('op', 'a a', 'b', **IN_PLACE)
    assert merged(draft) == {}


def test_what_the_gradient_of_a_loop_reads_is_not_overwritten() -> None:
    draft, body = trained_loop('a b c')
    draft.op('op', 'x h', 'a', body)
    draft.op('op', 'a', 'b', body, **IN_PLACE)
    draft.op('op', 'b', 'c', body, **IN_PLACE)
    draft.op('op', 'c', 'h', body)
    back = draft.region(draft.op('while_grad', 'h', 'g'), RegionKind.LOOP_GRADIENT, forward=body)
    draft.op('grad', 'a', 'g', back)
    assert merged(draft) == {'c': 'b'}


def test_a_value_written_before_is_not_taken_as_a_target() -> None:
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('a b c')
    draft.op('op', 'x', 'b')
    draft.op('op', 'x b', 'a')
    draft.op('op', 'a', 'b', **IN_PLACE)
    draft.op('last', 'b', '')
    assert merged(draft) == {}


@pytest.mark.parametrize('seed', range(60))
@pytest.mark.parametrize('model', [COLLECTING, RETAINING, IDEAL])
def test_the_peak_never_rises(seed: int, model: Runtime) -> None:
    graph = generated(seed)
    told = PassContext(model, dims_of(graph, 4))
    before = Timeline(graph, model, told.dims).peak_bytes
    after = Timeline(coalesce_in_place(graph.copy(), told), model, told.dims).peak_bytes
    assert after <= before
