"""Sums of many terms that are added up early, on graphs that no Paddle made; and what the verifier refuses of it."""
from __future__ import annotations

from dataclasses import replace
from typing import Dict, List

import pytest

from tests.graphs import Draft
from transpiler.analysis.timeline import Timeline
from transpiler.errors import VerificationError
from transpiler.ir import Graph
from transpiler.passes.context import PassContext
from transpiler.passes.sums import sum_early
from transpiler.planning import PlanOptions, plan
from transpiler.runtime import COLLECTING
from transpiler.verify import verify

UNIT = 4096  # bytes of a value


def _terms(count: int, **facts: object) -> Graph:
    """g1, g2, ... made one after the other, and their sum at the end."""
    draft = Draft()
    draft.value('x', fed=True)
    names = [f'g{i}' for i in range(count)]
    for name in names:
        draft.value(name)
        draft.op('scale', 'x', name)
    draft.value('total', fetched=True)
    draft.op('sum', ' '.join(names), 'total', **{'left_fold': True, 'in_place': ((0, 0),), **facts})
    return draft.graph


def _context(**options: object) -> PassContext:
    return PassContext(COLLECTING, {}, **options)


def _split(graph: Graph) -> Graph:
    return sum_early(graph.copy(), _context())


def _verified(old: Graph, new: Graph) -> Graph:
    verify(old, new, {op.id: op.origin for op in new.walk() if op.origin is not None})
    return new


def _sums(graph: Graph) -> List[int]:
    return [op.id for op in graph.walk() if op.kind == 'sum']


@pytest.mark.parametrize('count', [3, 4, 30])
def test_a_sum_needs_two_terms_at_a_time(count: int) -> None:
    graph = _terms(count)
    new = _verified(graph, _split(graph))
    peak = Timeline(new, COLLECTING, {}).peak_bytes
    # x, the new term, the sum so far, and the last one, which is fetched: the others work in place.
    assert peak == 4 * UNIT
    assert len(_sums(new)) == count - 1


def test_a_sum_of_two_stays() -> None:
    assert _split(_terms(2)).ops == _terms(2).ops


@pytest.mark.parametrize('facts', [{'left_fold': False}])
def test_what_does_not_add_from_left_to_right_stays(facts: Dict[str, object]) -> None:
    assert len(_sums(_split(_terms(5, **facts)))) == 1


def test_a_term_that_is_written_twice_or_fed_keeps_the_sum_whole() -> None:
    twice, fed = _terms(4), _terms(4)
    twice.ops[2] = replace(twice.ops[2], results=twice.ops[1].results)
    fed.values[1].fed = True
    for graph in (twice, fed):
        assert len(_sums(_split(graph))) == 1


def test_nothing_is_split_where_ops_may_run_side_by_side() -> None:
    graph = _terms(6)
    assert sum_early(graph.copy(), _context(parallel=True)).ops == graph.ops


def test_the_planner_takes_it_and_is_never_worse_without() -> None:
    graph = _terms(8)
    found = plan(graph, COLLECTING, {}, PlanOptions())
    _verified(graph, found.graph)
    assert found.after.peak_bytes == 4 * UNIT
    assert any(name == 'sums early' for name, _ in found.savings)


def _changed(new: Graph, number: int, **changes: object) -> Graph:
    """`new` with another `number`-th sum."""
    op = _sums(new)[number]
    new.ops[op] = replace(new.ops[op], **changes)
    return new


def _refused(old: Graph, new: Graph) -> bool:
    try:
        _verified(old, new)
    except VerificationError:
        return True
    return False


def test_terms_in_another_order_are_refused() -> None:
    graph = _terms(5)
    new = _split(graph)
    first, second, third, last = (new.ops[i] for i in _sums(new))
    swapped = _changed(new, 1, operands=(second.operands[0], third.operands[1]))
    swapped = _changed(swapped, 2, operands=(third.operands[0], second.operands[1]))
    swapped.regions[0].ops = [o for o in swapped.regions[0].ops if o not in _sums(swapped)
                             ] + [first.id, second.id, third.id, last.id]
    assert _refused(graph, swapped)


@pytest.mark.parametrize('number', range(4))
def test_a_term_that_is_left_out_is_refused(number: int) -> None:
    """Each part in turn reads the sum before the last one."""
    graph = _terms(5)
    new = _split(graph)
    parts = [new.ops[i] for i in _sums(new)]
    total = parts[number - 2].results[0] if number > 1 else new.ops[1].results[0]
    assert parts[number].operands[0] != total
    new = _changed(new, number, operands=(total, parts[number].operands[1]))
    assert _refused(graph, new)


def test_a_term_that_is_added_twice_is_refused() -> None:
    graph = _terms(4)
    new = _split(graph)
    last = new.ops[_sums(new)[-1]]
    assert _refused(graph, _changed(new, -1, operands=(last.operands[1], last.operands[1])))
    new = _split(graph)
    second = new.ops[_sums(new)[1]]
    assert _refused(graph, _changed(new, 1, operands=second.operands[::-1]))


def test_another_reader_of_a_part_is_refused() -> None:
    graph = _terms(4)
    new = _split(graph)
    part = new.ops[_sums(new)[0]].results[0]
    scale = new.ops[3]
    new.ops[scale.id] = replace(scale, operands=(part,))
    assert _refused(graph, new)


def test_a_part_over_its_term_is_refused() -> None:
    graph = _terms(4)
    new = _split(graph)
    part = new.ops[_sums(new)[0]]
    new.values[part.results[0]].storage = part.operands[1]
    assert _refused(graph, new)


def test_parts_of_what_is_no_left_fold_are_refused() -> None:
    graph = _terms(4)
    new = _split(graph)
    for other in (graph, new):
        for op in _sums(other):
            facts = replace(other.ops[op].facts, left_fold=False)
            other.ops[op] = replace(other.ops[op], facts=facts)
    assert _refused(graph, new)
