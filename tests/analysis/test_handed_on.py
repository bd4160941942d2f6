"""Arrays of which only the newest element matters, and values that a gradient reads from an array again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, List

import pytest

from tests.graphs import Draft
from transpiler.analysis.arrays import array_parts
from transpiler.analysis.handed_on import handed_on_arrays
from transpiler.analysis.reloads import reloads
from transpiler.backends.operators import by_name
from transpiler.errors import VerificationError
from transpiler.ir import RELEASE, Graph, RegionKind, Size, ValueKind
from transpiler.passes.context import PassContext
from transpiler.passes.releases.emptied_arrays import empty_arrays
from transpiler.runtime import COLLECTING
from transpiler.verify import verify

TRIPS = Size.dim('T')


@dataclass(frozen=True)
class Loop:
    """h[c + 1] = f(h[c]) and its gradient, which hands g from trip to trip. Each field is something that may differ."""

    start: float = 0.0  # of the counter
    read_at: float = 0.0  # index at which g is read after the gradient
    write_early: bool = False  # write g before counting back
    read_late: bool = False  # read it after that
    also_read: str = ''  # kind of an op after the gradient that names g
    second_write: bool = False  # the loop writes h twice
    renamed: bool = False  # g has another name inside

    def draft(self) -> Draft:
        draft = Draft()
        for name in ('h', 'g'):
            draft.value(name, kind=ValueKind.ARRAY)
        draft.values('first out last')
        for name, filled in (('c', self.start), ('zero', self.start), ('other', self.read_at)):
            draft.value(name, rows=1)
            draft.graph.values[draft.id(name)].dtype = 'INT64'
            draft.op('fill', '', name, fills=filled)
        draft.op('fill', '', 'first')
        draft.op('write_to_array', 'zero first', 'h')
        self._loop(draft)
        self._gradient(draft)
        draft.op('read_from_array', 'other g', 'last')
        if self.also_read:
            draft.op(self.also_read, 'g', 'out')
        draft.graph.values[draft.id('last')].fetched = True
        return draft

    def _loop(self, draft: Draft) -> None:
        body = draft.region(draft.op('while', 'h c', 'h c'),
                            RegionKind.LOOP,
                            keeps_scopes=True,
                            trips=TRIPS)
        draft.values('ht new', region=body)
        draft.op('read_from_array', 'c h', 'ht', body)
        draft.op('cell', 'ht', 'new', body)
        draft.op('increment', 'c', 'c', body, adds=1.0)
        for _ in range(1 + self.second_write):
            draft.op('write_to_array', 'c new', 'h', body)

    def _gradient(self, draft: Draft) -> None:
        op = draft.op('while_grad', 'h c g', 'g')
        back = draft.region(op, RegionKind.LOOP_GRADIENT, forward=1, trips=TRIPS)
        inner = draft.value('inside' if self.renamed else 'g', region=back, kind=ValueKind.ARRAY)
        region, name = draft.graph.regions[back], 'inside' if self.renamed else 'g'
        region.arguments, region.results = ((draft.id('g'), inner),), ((inner, draft.id('g')),)
        draft.values('incoming grad', region=back)
        ops = [('read_from_array', f'c {name} new', 'incoming'), ('increment', 'c', 'c'),
               ('cell_grad', 'new incoming', 'grad'), ('write_to_array', 'c grad', name)]
        if self.read_late:
            ops[0], ops[1] = ops[1], ops[0]
        if self.write_early:
            ops = [ops[0], ops[2], ops[3], ops[1]]
        for kind, reads, writes in ops:
            draft.op(kind, reads, writes, back, adds=-1.0 if kind == 'increment' else 0.0)


OTHERWISE = (dict(read_at=1.0), dict(start=1.0), dict(write_early=True), dict(read_late=True),
             dict(also_read='array_to_lod_tensor'), dict(renamed=True))


def accepted(old: Graph, new: Graph) -> bool:
    """Added ops have no origin."""
    try:
        verify(old, new, {op.id: op.origin for op in new.ops if op.origin is not None})
    except VerificationError:
        return False
    return True


def emptied(graph: Graph, at: int) -> Graph:
    """`graph` with the inner g emptied at position `at` of the gradient."""
    inner = graph.regions[2].arguments[0][1]
    return added(graph, at, RELEASE, (), (inner,))


def added(graph: Graph, at: int, kind: str, operands: tuple, results: tuple) -> Graph:
    op = graph.new_op(kind,
                      2,
                      operands=operands,
                      results=results,
                      facts=replace(by_name(kind), side_effect=kind == RELEASE),
                      origin=None)
    graph.regions[2].ops.remove(op.id)
    graph.regions[2].ops.insert(at, op.id)
    return graph


def test_an_array_that_hands_a_gradient_on_is_found() -> None:
    graph = Loop().draft().graph
    found, = handed_on_arrays(graph, graph.regions[2])
    assert graph.values[found.value].name == 'g'
    assert graph.ops[found.last_read].kind == 'read_from_array' and not found.emptied


@pytest.mark.parametrize('change', OTHERWISE)
def test_one_of_which_an_older_element_may_be_read_is_not(change: Dict) -> None:
    graph = replace(Loop(), **change).draft().graph
    assert handed_on_arrays(graph, graph.regions[2]) == []


def test_the_pass_empties_it_between_its_read_and_its_write_and_the_verifier_agrees() -> None:
    graph = empty_arrays(Loop().draft().graph, PassContext(COLLECTING, {'T': 8}))
    kinds = [op.kind for op in graph.region_ops(2)]
    assert kinds.index('read_from_array') < kinds.index(RELEASE) < kinds.index('write_to_array')
    assert accepted(Loop().draft().graph, graph)


def test_emptying_it_anywhere_else_is_rejected() -> None:
    assert [accepted(Loop().draft().graph, emptied(Loop().draft().graph, at)) for at in range(5)
           ] == [False, True, True, True, False]


@pytest.mark.parametrize('change', OTHERWISE)
def test_emptying_an_array_whose_older_elements_are_read_is_rejected(change: Dict) -> None:
    loop = replace(Loop(), **change)
    assert not any(accepted(loop.draft().graph, emptied(loop.draft().graph, at)) for at in range(5))


def test_an_emptied_array_is_as_large_as_one_element() -> None:
    graph = Loop().draft().graph
    storage = graph.regions[2].arguments[0][0]
    element = graph.values[next(
        op.operands[1] for op in graph.region_ops(2) if op.kind == 'write_to_array')].size
    assert array_parts(graph)[storage] == [element * TRIPS]
    assert array_parts(emptied(graph, 1))[storage] == [element]


# ---------------------------------------------------------------------------------------------------
# Values that are read again


def reloading(loop: Loop, at: int) -> Graph:
    """The gradient reads `new` from the array h at position `at`, and no longer from the trip's scope."""
    draft = loop.draft()
    graph = draft.graph
    new = draft.id('new', 1)
    again = graph.clone_value(new, 'new@AGAIN', 2).id
    for op in list(graph.region_ops(2)):
        operands = tuple(again if v == new else v for v in op.operands)
        graph.ops[op.id] = replace(op, operands=operands)
    return added(graph, at, 'read_from_array', (draft.id('h'), draft.id('c')), (again,))


def values(loop: Loop) -> List[str]:
    graph = loop.draft().graph
    return [graph.values[v].name for v in reloads(graph, graph.regions[2])]


def test_a_value_that_is_written_at_the_counter_after_it_has_counted_can_be_read_again() -> None:
    assert values(Loop()) == ['new']


def test_one_that_is_written_twice_is_left_alone() -> None:
    assert values(Loop(second_write=True)) == []
    assert not accepted(
        Loop(second_write=True).draft().graph, reloading(Loop(second_write=True), 0))


def test_reading_it_again_is_accepted_before_the_gradient_has_counted_back_and_not_later() -> None:
    assert accepted(Loop().draft().graph, reloading(Loop(), 0))
    late = [op.kind for op in reloading(Loop(read_late=True), 1).region_ops(2)]
    assert late[:2] == ['increment', 'read_from_array']
    assert not accepted(Loop(read_late=True).draft().graph, reloading(Loop(read_late=True), 1))


def test_an_array_has_what_each_op_writes_and_what_comes_all_at_once_is_no_more_than_that() -> None:
    draft = Draft()
    draft.value('a', kind=ValueKind.ARRAY)
    draft.values('x y')
    draft.value('at', rows=1)
    draft.op('write_to_array', 'x at', 'a')
    body = draft.region(draft.op('while', 'a', 'a'), RegionKind.LOOP, trips=TRIPS)
    draft.op('write_to_array', 'y at', 'a', body)
    tensor = draft.graph.values[draft.id('x')].size
    assert tensor is not None
    array = draft.id('a')
    assert array_parts(draft.graph)[array] == [tensor + tensor * TRIPS]
    draft.value('whole', rows=TRIPS * 1024)
    draft.op('tensor_array_to_tensor_grad', 'whole', 'a')
    assert sorted(map(repr,
                      array_parts(draft.graph)[array])) == sorted(
                          map(repr, [tensor + tensor * TRIPS, tensor * TRIPS]))


def test_what_is_made_of_arrays_is_as_large_as_the_largest_of_them() -> None:
    draft = Draft()
    draft.value('at', rows=1)
    for name in ('a', 'b', 'both', 'copy'):
        draft.value(name, kind=ValueKind.ARRAY)
    draft.values('x')
    draft.value('y', rows=TRIPS * 1024)
    draft.op('write_to_array', 'x at', 'a')
    draft.op('write_to_array', 'y at', 'b')
    draft.op('sum', 'a b', 'both')
    draft.op('assign', 'both', 'copy')
    found = array_parts(draft.graph)
    a, b, both, copy = map(draft.id, ('a', 'b', 'both', 'copy'))
    assert found[a] != found[b] and found[both] == found[copy] == found[a] + found[b]
