"""Gradients of a product that are made one by one, on graphs that no Paddle made; and what the verifier refuses of it."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Tuple

import pytest

from tests.graphs import Draft
from transpiler.analysis.timeline import Timeline
from transpiler.errors import VerificationError
from transpiler.ir import RELEASE, Graph
from transpiler.passes.context import PassContext
from transpiler.passes.split_products import let_go_of_unread, split_products
from transpiler.planning import plan
from transpiler.runtime import COLLECTING, Can
from transpiler.verify import verify

ROWS = 1024
UNIT = 4 * ROWS  # bytes of a value
SEPARATE = ((0, frozenset({0})), (1, frozenset({1})))


def _trained(separate: Any = SEPARATE,
             later: str = '',
             made: str = 'source',
             y_rows: int = ROWS,
             **facts: Any) -> Graph:
    """y = x * w, and the gradients of both; `later` is read once more in the end."""
    draft = Draft()
    draft.values('source w', ROWS, persistable=True)
    draft.value('y', y_rows)
    draft.values('dy dx dw end', ROWS)
    draft.value('x', ROWS, **facts)
    draft.op('make', made, 'x')
    draft.op('product', 'x w', 'y')
    draft.op('loss', 'y', 'dy')
    draft.op('product_grad', 'x w dy', 'dx dw', separate=separate)
    draft.op('update', 'dw w', 'w')
    draft.op('sum', f'dx {later}', 'end')
    draft.op('write', 'end', 'source')
    return draft.graph


def _split(graph: Graph, **options: Any) -> Graph:
    context = PassContext(COLLECTING, {}, **options)
    return let_go_of_unread(split_products(graph.copy(), context), context)


def _verify(old: Graph, new: Graph) -> None:
    verify(old, new, {op.id: op.origin for op in new.walk() if op.origin is not None})


def _parts(graph: Graph) -> Any:
    return [op for op in graph.region_ops(0) if op.kind == 'product_grad']


def _peak(graph: Graph) -> int:
    return Timeline(graph, COLLECTING, {}).peak_bytes


def test_what_the_second_does_not_read_is_gone_by_then() -> None:
    old = _trained()
    new = _split(old)
    _verify(old, new)
    first, second = _parts(new)
    named = {v.id: v.name for v in new.values}
    assert [named.get(v) for v in first.results] == [None, 'dw']
    assert [named.get(v) for v in second.results] == ['dx', None]
    kinds = [op.kind for op in new.region_ops(0)]
    between = new.ops[new.regions[0].ops[kinds.index('product_grad') + 1]]
    assert between.kind == RELEASE and [named[v] for v in between.results] == ['x']
    assert (_peak(old), _peak(new)) == (4 * UNIT, 3 * UNIT)


def test_what_is_read_later_is_not_released() -> None:
    old = _trained(later='x')
    new = _split(old)
    _verify(old, new)
    assert len(_parts(new)) == 2 and not any(op.kind == RELEASE for op in new.region_ops(0))


def test_what_has_to_stay_counts_as_read() -> None:
    """A value that is fetched is there in the end: nobody may let go of it in between."""
    old = _trained(fetched=True)
    new = _split(old)
    _verify(old, new)
    x = next(v.id for v in old.values if v.name == 'x')
    assert len(_parts(new)) == 2 and all(x in part.data_reads() for part in _parts(new))
    assert _peak(new) == _peak(old)


@pytest.mark.parametrize('graph', [_trained(separate=()), _trained(separate=SEPARATE[:1])])
def test_what_is_not_known_to_be_separate_stays(graph: Graph) -> None:
    assert _split(graph) == graph


def test_nothing_is_split_where_ops_may_run_side_by_side() -> None:
    assert _split(_trained(), parallel=True) == _trained()


def test_small_ones_stay() -> None:
    """Where another op touches ten times as much."""
    graph = _trained()
    draft_size = graph.values[0].size
    assert draft_size is not None
    for name in ('large', 'larger'):
        graph.new_value(name, 0, dtype='FP32', shape=(draft_size,), size=draft_size * 10)
    large, larger = (v.id for v in graph.values if v.name.startswith('large'))
    graph.new_op('fill', 0, results=(large,))
    graph.new_op('exp', 0, operands=(large,), results=(larger,))
    assert _split(graph) == graph


def test_a_plan_has_it_where_it_lowers_the_peak_and_the_runtime_can() -> None:
    done = plan(_trained(), COLLECTING, {})
    assert len(_parts(done.graph)) == 2 and done.after.peak_bytes < done.before.peak_bytes
    _verify(done.original, done.graph)
    cannot = replace(COLLECTING, can=COLLECTING.can - {Can.SEPARATE})
    assert len(_parts(plan(_trained(), cannot, {}).graph)) == 1


def test_parts_that_do_not_lower_the_peak_are_one_again() -> None:
    done = plan(_trained(later='x'), COLLECTING, {})
    assert len(_parts(done.graph)) == 1


def _drop_the_first(new: Graph) -> None:
    new.regions[0].ops.remove(_parts(new)[0].id)


def _leave_out_both(new: Graph) -> None:
    part = _parts(new)[1]
    new.ops[part.id] = replace(part, results=(-1, -1))


def _make_the_same_twice(new: Graph) -> None:
    first, second = _parts(new)
    new.ops[first.id] = replace(first, results=second.results)


def _release_too_early(new: Graph) -> None:
    ops = new.regions[0].ops
    at = next(i for i, op in enumerate(ops) if new.ops[op].kind == RELEASE)
    ops[at - 1], ops[at] = ops[at], ops[at - 1]


def _read_the_shape_of_y(new: Graph) -> None:
    second, y = _parts(new)[1], next(v.id for v in new.values if v.name == 'y')
    assert second.facts.unread_alone == {0}
    new.ops[second.id] = replace(second, operands=(y, *second.operands[1:]))


def _read_the_data_of_y(new: Graph) -> None:
    first, y = _parts(new)[0], next(v.id for v in new.values if v.name == 'y')
    assert 0 not in first.facts.unread_alone
    new.ops[first.id] = replace(first, operands=(y, *first.operands[1:]))


def _lose_the_shape(new: Graph) -> None:
    release = next(op for op in new.region_ops(0) if op.kind == RELEASE)
    new.ops[release.id] = replace(release, facts=replace(release.facts, loses_shape=frozenset({0})))


def _swap_operands(new: Graph) -> None:
    second = _parts(new)[1]
    x, w, dy = second.operands
    new.ops[second.id] = replace(second, operands=(x, dy, w))


@pytest.mark.parametrize('spoil', [
    _drop_the_first, _leave_out_both, _make_the_same_twice, _release_too_early, _read_the_data_of_y,
    _lose_the_shape, _swap_operands
])
def test_the_verifier_refuses_wrong_parts(spoil: Callable[[Graph], None]) -> None:
    old = _trained()
    new = _split(old)
    spoil(new)
    with pytest.raises(VerificationError):
        _verify(old, new)


def test_the_verifier_refuses_parts_of_what_is_made_together() -> None:
    old = _trained(separate=())
    new = _split(_trained())
    with pytest.raises(VerificationError, match='would not make all results'):
        _verify(old, new)


def _in_the_storage_of_x(name: str) -> Tuple[Graph, Graph]:
    old = _trained()
    new = split_products(old.copy(), PassContext(COLLECTING, {}))
    ids = {v.name: v.id for v in new.values}
    new.values[ids[name]] = replace(new.values[ids[name]], storage=ids['x'])
    return old, new


def test_a_result_may_lie_in_what_its_part_does_not_read() -> None:
    _verify(*_in_the_storage_of_x('dx'))


def test_the_verifier_refuses_a_result_in_what_its_part_reads() -> None:
    with pytest.raises(VerificationError, match="would write 'dw' over its operand 0"):
        _verify(*_in_the_storage_of_x('dw'))


def test_what_is_read_for_its_shape_alone_may_be_another_of_the_same_shape() -> None:
    """In one variable with it, for example, that a later value has."""
    old = _trained()
    new = _split(old)
    _read_the_shape_of_y(new)
    _verify(old, new)


def test_the_verifier_refuses_another_shape() -> None:
    old = _trained(y_rows=2 * ROWS)
    new = _split(old)
    _read_the_shape_of_y(new)
    with pytest.raises(VerificationError, match="would have the shape of 'y'"):
        _verify(old, new)
