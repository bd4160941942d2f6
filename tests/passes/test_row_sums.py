"""Terms that are added some rows at a time, on graphs that no Paddle made; and what the verifier refuses of it."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, List

import pytest

from tests.graphs import Draft
from transpiler.analysis.timeline import Timeline
from transpiler.errors import VerificationError
from transpiler.ir import ADD_ROWS, ROW_NUMBERS, ROWS, Graph, Op, Size
from transpiler.passes.context import PassContext
from transpiler.passes.row_sums import sum_by_rows
from transpiler.runtime import COLLECTING, Upkeep
from transpiler.verify import verify

ROWS_OF_ALL = 1024
UNIT = 4 * ROWS_OF_ALL  # bytes of a value


def _decayed(elementwise: bool = True, left_fold: bool = True, written: bool = False) -> Graph:
    """A gradient, a weight's decay in two ops, their sum, and the update."""
    draft = Draft()
    draft.value('w', ROWS_OF_ALL, persistable=True)
    draft.values('g sign term total', ROWS_OF_ALL)
    draft.op('product', 'w', 'g')
    draft.op('sign', 'w', 'sign', elementwise=elementwise)
    draft.op('scale', 'sign', 'term', elementwise=elementwise, in_place=((0, 0),))
    if written:
        draft.op('decay', 'w', 'w')
    draft.op('sum', 'g term', 'total', left_fold=left_fold, in_place=((0, 0),))
    draft.op('update', 'w total', 'w')
    return draft.graph


def _split(graph: Graph, **options: Any) -> Graph:
    """Where ops cost the executor nothing."""
    free = replace(COLLECTING, upkeep=Upkeep())
    return sum_by_rows(graph.copy(), PassContext(free, {}, **options))


def _verify(old: Graph, new: Graph) -> None:
    verify(old, new, {op.id: op.origin for op in new.walk() if op.origin is not None})


def test_a_term_is_there_by_rows_alone() -> None:
    old = _decayed()
    new = _split(old)
    _verify(old, new)
    before, after = (Timeline(graph, COLLECTING, {}).peak_bytes for graph in (old, new))
    assert before == 2 * UNIT  # the gradient, and the term, which is made in the memory of the sign
    assert after <= UNIT * 9 // 8
    steps = [op for op in new.walk() if op.kind == ADD_ROWS]
    assert len(steps) > 2 and len(steps) == sum(op.kind == ROWS for op in new.walk())


def test_the_ops_of_a_term_work_in_the_memory_of_its_rows_where_they_may() -> None:
    old = _decayed()
    assert not _split(old).storage_members()
    for op in _of_kind(old, 'sign') + _of_kind(old, 'scale'):
        old.ops[op.id] = replace(op, facts=replace(op.facts, onto=((0, 0),)))
    new = _split(old)
    _verify(old, new)
    rows = [op.results[0] for op in _of_kind(new, ROWS)]
    members = new.storage_members()
    assert rows and sorted(members) == sorted(rows)
    assert {len(members[value]) for value in rows} == {3}


@pytest.mark.parametrize('graph', [
    _decayed(elementwise=False),
    _decayed(left_fold=False),
    _decayed(written=True),
])
def test_what_cannot_be_split_stays(graph: Graph) -> None:
    assert _split(graph) == graph


def test_nothing_is_split_where_ops_may_run_side_by_side() -> None:
    assert _split(_decayed(), parallel=True) == _decayed()


def test_what_saves_less_than_its_ops_cost_stays() -> None:
    """The term has a few kilobytes, and the executor keeps tens of them for each op."""
    assert sum_by_rows(_decayed(), PassContext(COLLECTING, {})) == _decayed()


def test_there_are_as_many_parts_as_save_more_than_their_ops_cost() -> None:
    """The dearer the ops, the fewer; what all of them cost is less than what they save."""
    counts = []
    for op_bytes in (1, 4, 16, 24, 32, 48):
        upkeep = Upkeep(segment_op_bytes=op_bytes)
        new = sum_by_rows(_decayed(), PassContext(replace(COLLECTING, upkeep=upkeep), {}))
        peak = Timeline(new, COLLECTING, {}).peak_bytes
        counts.append(len(_of_kind(new, ADD_ROWS)))
        assert (len(list(new.walk())) - len(list(_decayed().walk()))) * op_bytes < 2 * UNIT - peak
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1] > 1


def test_a_program_that_is_larger_elsewhere_keeps_its_small_terms() -> None:
    graph, large = _decayed(), Size.of(1000 * UNIT)
    x, y = (graph.new_value(name, 0, shape=(large,), size=large, dtype='U8') for name in 'xy')
    x.fed = y.fetched = True
    graph.new_op('exp', 0, operands=(x.id,), results=(y.id,))
    assert _split(graph) == graph


def _of_kind(graph: Graph, kind: str) -> List[Op]:
    return [op for op in graph.walk() if op.kind == kind]


def _swapped(graph: Graph) -> None:
    """The rows of the second step are added by the third, and those of the third by the second."""
    _, second, third, *_ = _of_kind(graph, ADD_ROWS)
    for op, other in ((second, third), (third, second)):
        graph.ops[op.id] = replace(op, operands=(op.operands[0], *other.operands[1:]))


def _left_out(graph: Graph) -> None:
    graph.regions[0].ops.remove(_of_kind(graph, ADD_ROWS)[1].id)


def _twice(graph: Graph) -> None:
    step = _of_kind(graph, ADD_ROWS)[1]
    ops = graph.regions[0].ops
    ops.insert(
        ops.index(step.id),
        graph.new_op(step.kind,
                     0,
                     operands=step.operands,
                     results=step.results,
                     facts=step.facts,
                     origin=step.origin).id)
    ops.pop()


def _other_numbers(graph: Graph) -> None:
    """What is added to the second rows are the second ones, but their numbers are those of the third."""
    numbers = _of_kind(graph, ROW_NUMBERS)[1]
    graph.ops[numbers.id] = replace(numbers,
                                    facts=replace(numbers.facts,
                                                  rows=_of_kind(graph, ROW_NUMBERS)[2].facts.rows))


def _other_rows(graph: Graph) -> None:
    rows = _of_kind(graph, ROWS)[1]
    graph.ops[rows.id] = replace(rows,
                                 facts=replace(rows.facts, rows=_of_kind(graph,
                                                                         ROWS)[0].facts.rows))


def _unchanged_rows(graph: Graph) -> None:
    """The rows of the weight are added, not what is made of them."""
    step, rows = _of_kind(graph, ADD_ROWS)[1], _of_kind(graph, ROWS)[1]
    graph.ops[step.id] = replace(step,
                                 operands=(step.operands[0], rows.results[0], step.operands[2]))


def _written_before(graph: Graph) -> None:
    """The update runs before the last rows of the weight are read."""
    ops = graph.regions[0].ops
    ops.insert(ops.index(_of_kind(graph, ROWS)[-1].id), ops.pop())


def _over_its_term(graph: Graph) -> None:
    step = _of_kind(graph, ADD_ROWS)[0]
    graph.values[step.results[0]].storage = step.operands[1]


def _over_its_total(graph: Graph) -> None:
    """Its kernel bears no variable that is operand and result."""
    step = _of_kind(graph, ADD_ROWS)[1]
    graph.ops[step.id] = replace(step, facts=replace(step.facts, same_name=False))


def _not_by_elements(graph: Graph) -> None:
    for op in _of_kind(graph, 'sign'):
        graph.ops[op.id] = replace(op, facts=replace(op.facts, elementwise=False))


def _ends_early(graph: Graph) -> None:
    """The update reads what has all rows but the last ones."""
    ops = graph.regions[0].ops
    ops.insert(ops.index(_of_kind(graph, ADD_ROWS)[-1].id), ops.pop())


@pytest.mark.parametrize('damage', [
    _swapped, _left_out, _twice, _other_numbers, _other_rows, _unchanged_rows, _written_before,
    _over_its_term, _over_its_total, _not_by_elements, _ends_early
])
def test_other_rows_are_refused(damage: Callable[[Graph], None]) -> None:
    old = _decayed()
    new = _split(old)
    damage(new)
    with pytest.raises(VerificationError):
        _verify(old, new)


def test_rows_of_one_of_two_operands_are_refused() -> None:
    old = _decayed()
    new = _split(old)
    for graph in (old, new):
        for op in _of_kind(graph, 'scale'):
            graph.ops[op.id] = replace(op, operands=(0, *op.operands))  # the weight, all rows of it
    with pytest.raises(VerificationError):
        _verify(old, new)


def test_sums_of_unknown_shapes_are_refused() -> None:
    old = _decayed()
    new = _split(old)
    for graph in (old, new):
        graph.values[1].shape = None
    with pytest.raises(VerificationError, match='shapes'):
        _verify(old, new)
