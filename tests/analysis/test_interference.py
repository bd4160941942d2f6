"""What never shares memory, and why."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, Tuple

import pytest

from tests.graphs import Draft
from transpiler.analysis.interference import Interference, shape_forbids
from transpiler.ir import RegionKind, Size, ValueKind


def reasons(draft: Draft) -> Dict[str, str]:
    found = Interference(draft.graph).alone
    return {draft.graph.values[v].name: reason for v, reason in found.items()}


def plain(**facts: Any) -> Draft:
    """x -> a -> b; facts are those of a."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.value('a', **facts)
    draft.value('b')
    draft.op('op', 'x', 'a')
    draft.op('op', 'a', 'b')
    return draft


def test_plain_temporaries_may_share() -> None:
    assert set(reasons(plain())) == {'x'}


@pytest.mark.parametrize('facts,reason', [
    ({
        'persistable': True
    }, 'persistable'),
    ({
        'fed': True
    }, 'fed from outside'),
    ({
        'fetched': True
    }, 'fetched'),
    ({
        'skipped': True
    }, 'in skip_opt_set'),
    ({
        'kind': ValueKind.SELECTED_ROWS
    }, ValueKind.SELECTED_ROWS.value),
    ({
        'kind': ValueKind.ARRAY
    }, ValueKind.ARRAY.value),
    ({
        'kind': ValueKind.OTHER
    }, ValueKind.OTHER.value),
])
def test_each_sort_that_must_stay_alone_has_its_reason(facts: Dict[str, Any], reason: str) -> None:
    assert reasons(plain(**facts))['a'] == reason


def test_unknown_sizes_stay_alone() -> None:
    draft = plain()
    draft.graph.values[draft.id('a')].size = None
    assert reasons(draft)['a'] == 'unknown size'


def test_scalars_stay_alone_and_small_rows_of_an_open_batch_do_not() -> None:
    assert 'a' in reasons(plain(rows=1))
    assert 'a' not in reasons(plain(rows=Size.dim('N')))


@pytest.mark.parametrize('facts', [{'known': False}, {'side_effect': True}, {'asynchronous': True}])
def test_all_that_an_opaque_operator_names_stays_alone(facts: Dict[str, bool]) -> None:
    draft = plain()
    draft.value('c')
    draft.op('strange', 'a', 'c', **facts)
    assert {'a', 'c'} <= set(reasons(draft))
    assert 'b' not in reasons(draft)


def test_all_that_a_region_of_unknown_rules_names_stays_alone() -> None:
    draft = plain()
    draft.value('c')
    inner = draft.region(draft.op('recurrent', 'b', ''), RegionKind.OPAQUE)
    draft.op('op', 'a', 'c', inner)
    assert {'a', 'b', 'c'} <= set(reasons(draft))


def test_lod_is_followed_to_all_that_is_computed_from_it() -> None:
    draft = plain(lod_level=1)
    draft.value('c')
    draft.op('op', 'b', 'c')
    assert {'a', 'b', 'c'} <= set(reasons(draft))


def test_lod_that_enters_late_in_a_loop_reaches_what_the_next_trip_computes_earlier() -> None:
    draft = Draft()
    draft.value('x', fed=True, lod_level=1)
    draft.values('h')
    draft.op('fill', '', 'h')
    body = draft.region(draft.op('while', 'x h', 'h'), RegionKind.LOOP)
    draft.values('early late', region=body)
    draft.op('op', 'h', 'early', body)
    draft.op('op', 'x early', 'late', body)
    draft.op('op', 'late', 'h', body)
    assert {'early', 'late', 'h'} <= set(reasons(draft))


def test_a_carried_value_of_a_body_stays_alone() -> None:
    draft = Draft()
    draft.value('x', fed=True)
    body = draft.region(draft.op('while', 'x', ''), RegionKind.LOOP)
    draft.values('state new', region=body)
    draft.op('op', 'x state', 'new', body)
    draft.op('op', 'new', 'state', body)
    assert 'state' in reasons(draft) and 'new' not in reasons(draft)


def test_what_stands_beside_an_array_stays_alone() -> None:
    draft = plain()
    draft.value('array', kind=ValueKind.ARRAY)
    draft.value('index')
    draft.op('write_to_array', 'b index', 'array')
    assert {'b', 'index', 'array'} <= set(reasons(draft))


def test_a_value_that_is_read_before_it_is_written_stays_alone() -> None:
    draft = Draft()
    draft.values('a b')
    draft.op('op', 'a', 'b')
    draft.op('op', 'b', 'a')
    assert 'a' in reasons(draft)


def test_links_between_a_loop_and_its_gradient_stay_alone() -> None:
    draft = plain()
    body = draft.region(draft.op('while', 'a', ''), RegionKind.LOOP)
    draft.values('copy handed', region=body)
    draft.op('op', 'copy', 'handed', body)
    draft.graph.regions[body].arguments = ((draft.id('a'), draft.id('copy', body)),)
    draft.graph.regions[body].results = ((draft.id('handed', body), draft.id('b')),)
    assert {'copy', 'handed'} <= set(reasons(draft))


def test_what_an_op_with_regions_names_keeps_its_name() -> None:
    draft = plain()
    draft.value('c')
    draft.op('op', 'b', 'c')
    draft.region(draft.op('while', 'a', 'c'), RegionKind.LOOP)
    named = {draft.graph.values[v].name for v in Interference(draft.graph).closed}
    assert named == {'a', 'c'}


def test_gradients_of_parameters_keep_their_names_on_request() -> None:
    draft = plain()
    draft.value('w', persistable=True, parameter=True)
    draft.value('w@GRAD', parameter_gradient=True)
    draft.value('other@GRAD')
    assert Interference(draft.graph).closed == {draft.id('w@GRAD')}
    assert Interference(draft.graph, skip_grads=False).closed == set()


IN_PLACE: Dict[str, Any] = dict(in_place=((0, 0),), same_name=True)


def why_not(change: Callable[[Draft], None], **facts: Any) -> str:
    """x -> a -> b -> c, after a change; why b may not take the place of a."""
    draft = plain()
    change(draft)
    draft.value('c')
    op = draft.graph.region_ops(0)
    second = next(o for o in op if draft.id('b') in o.results)
    second.facts = replace(second.facts, **{**IN_PLACE, **facts})
    draft.op('op', 'b', 'c')
    at = draft.graph.regions[0].ops.index(second.id)
    return Interference(draft.graph).why_not_in_place(second, 0, 0, at)


def reads_again(draft: Draft) -> None:
    draft.value('d')
    draft.op('op', 'a', 'd')


def of(name: str, **facts: Any) -> Callable[[Draft], None]:

    def change(draft: Draft) -> None:
        for fact, what in facts.items():
            setattr(draft.graph.values[draft.id(name)], fact, what)

    return change


@pytest.mark.parametrize('change, facts, reason', [
    (of('a'), {}, ''),
    (of('a'), dict(same_name=False), 'the operator can not work on one variable'),
    (of('a'), dict(in_place=()), 'the operator can not work on one variable'),
    (of('a', dtype='FP64'), {}, 'of another type or shape'),
    (of('b', shape=(Size.of(512), Size.of(2))), {}, 'of another type or shape'),
    (of('a', lod_level=1), {}, 'of another type or shape'),
    (reads_again, {}, 'alive together'),
    (of('a', fetched=True), {}, 'fetched'),
    (of('a', parameter_gradient=True), {}, 'found by its name later'),
    (of('b', skipped=True), {}, 'in skip_opt_set'),
])
def test_each_refusal_to_work_in_place_has_its_reason(change: Callable[[Draft], None],
                                                      facts: Dict[str, Any], reason: str) -> None:
    assert why_not(change, **facts) == reason


@pytest.mark.parametrize('read_until, shape, forbidden', [(4, (2, 3), False), (4, (3, 2), False),
                                                          (5, (2, 3), False), (5, (3, 2), True)])
def test_a_shape_that_is_read_stays_until_then(read_until: int, shape: Tuple[int, int],
                                               forbidden: bool) -> None:
    assert shape_forbids((2, 3), read_until, shape, 5) is forbidden


def test_what_is_sent_to_servers_is_known_by_its_name() -> None:
    draft = plain(skipped=True)
    draft.op('send', 'x a', '', by_names=True, side_effect=True)
    assert reasons(draft)['x'] == 'fed from outside'
    assert reasons(draft)['a'] == 'known by its name to servers'
