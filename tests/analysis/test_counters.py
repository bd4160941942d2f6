"""Counters that a loop's gradient runs backwards, and arrays with one element a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Optional

import pytest

from tests.graphs import Draft
from transpiler.analysis.counters import mirrored_counters
from transpiler.errors import VerificationError
from transpiler.ir import Graph, RegionKind, ValueKind
from transpiler.verify import verify


@dataclass(frozen=True)
class Loop:
    """h[c + 1] = f(x[c], h[c]) for c = 0, 1, ..., and its gradient. Each field is something that may be otherwise."""

    step: float = 1.0
    back: float = -1.0
    counter_type: str = 'INT64'
    write_first: bool = False  # write the array before counting
    read_late: bool = False  # read it after counting
    extra_count: bool = False  # count twice a trip
    touched: str = ''  # name that an op between the loop and its gradient writes
    written_back: str = ''  # name that the gradient writes too
    other_index: bool = False  # read the array at a constant

    def draft(self) -> Draft:
        draft = Draft()
        draft.value('x', kind=ValueKind.ARRAY, fed=True)
        draft.value('h', kind=ValueKind.ARRAY)
        draft.values('start out')
        for name in ('c', 'zero'):
            draft.value(name, rows=1)
            draft.graph.values[draft.id(name)].dtype = self.counter_type
            draft.op('fill', '', name)
        draft.op('fill', '', 'start')
        draft.op('write_to_array', 'zero start', 'h')
        self._loop(draft)
        if self.touched:
            draft.op('fill', '', self.touched)
        self._gradient(draft)
        draft.graph.values[draft.id('out')].fetched = True
        return draft

    def _loop(self, draft: Draft) -> None:
        body = draft.region(draft.op('while', 'x h c', 'h c'), RegionKind.LOOP, keeps_scopes=True)
        draft.values('xt ht new', region=body)
        draft.op('read_from_array', 'c x', 'xt', body)
        if not self.read_late:
            draft.op('read_from_array', 'zero h' if self.other_index else 'c h', 'ht', body)
        draft.op('cell', 'xt ht', 'new', body)
        if self.write_first:
            draft.op('write_to_array', 'c new', 'h', body)
        for _ in range(1 + self.extra_count):
            draft.op('increment', 'c', 'c', body, adds=self.step)
        if self.read_late:
            draft.op('read_from_array', 'c h', 'ht', body)
        if not self.write_first:
            draft.op('write_to_array', 'c new', 'h', body)

    def _gradient(self, draft: Draft) -> None:
        draft.op('fill', '', 'out')
        op = draft.op('while_grad', 'x h c out', 'out c')
        back = draft.region(op, RegionKind.LOOP_GRADIENT, forward=1)
        draft.op('early', 'c out', 'out', back)
        draft.op('increment', 'c', 'c', back, adds=self.back)
        draft.op('grad', 'xt ht out', 'out', back)
        if self.written_back:
            draft.op('fill', '', self.written_back, back)


def names(loop: Loop) -> Optional[Dict[str, int]]:
    """Names of the arrays of the one counter; None if there is none."""
    graph = loop.draft().graph
    found = mirrored_counters(graph, graph.regions[2])
    if not found:
        return None
    assert [graph.values[c.storage].name for c in found] == ['c']
    return {graph.values[a].name for a in found[0].arrays}


def test_a_counter_and_its_arrays_are_found() -> None:
    assert names(Loop()) == {'x', 'h'}


@pytest.mark.parametrize('change', [
    dict(back=-2.0),
    dict(back=1.0),
    dict(counter_type='FP32'),
    dict(extra_count=True),
    dict(touched='c'),
    dict(written_back='c')
])
def test_what_is_no_mirrored_counter_is_none(change: Dict) -> None:
    assert names(replace(Loop(), **change)) is None


@pytest.mark.parametrize('change', [
    dict(write_first=True),
    dict(read_late=True),
    dict(touched='h'),
    dict(written_back='h'),
    dict(other_index=True)
])
def test_an_array_that_may_change_after_its_read_is_left_out(change: Dict) -> None:
    assert names(replace(Loop(), **change)) == {'x'}


def test_counting_down_writes_elements_that_were_read_already() -> None:
    assert names(Loop(step=-1.0, back=1.0)) == set()


# ---------------------------------------------------------------------------------------------------
# What the verifier makes of it


def rebuilt(loop: Loop, name: str, at: int) -> Graph:
    """The graph with `name` read again in the gradient, by a clone at position `at`."""
    draft = loop.draft()
    graph = draft.graph
    reader = next(op for op in graph.region_ops(1) if draft.id(name, 1) in op.results)
    twin = graph.clone_value(reader.results[0], f'{name}@REBUILT', 2).id
    clone = graph.new_op(reader.kind,
                         2,
                         operands=reader.operands,
                         results=(twin,),
                         facts=reader.facts,
                         origin=reader.id)
    gradient = graph.regions[2]
    gradient.ops.remove(clone.id)
    gradient.ops.insert(at, clone.id)
    for op in [graph.ops[i] for i in gradient.ops if graph.ops[i].kind == 'grad']:
        operands = tuple(twin if v == reader.results[0] else v for v in op.operands)
        graph.ops[op.id] = replace(op, operands=operands)
    return graph


def accepted(loop: Loop, name: str, at: int) -> bool:
    new = rebuilt(loop, name, at)
    try:
        verify(loop.draft().graph, new, {op.id: op.origin for op in new.ops})
    except VerificationError:
        return False
    return True


@pytest.mark.parametrize('name', ['xt', 'ht'])
def test_a_read_may_be_repeated_behind_the_op_that_counts_back_and_not_before(name: str) -> None:
    assert accepted(Loop(), name, at=2)
    assert not accepted(Loop(), name, at=1)
    assert not accepted(Loop(), name, at=0)


@pytest.mark.parametrize('change', [
    dict(back=-2.0),
    dict(extra_count=True),
    dict(counter_type='FP32'),
    dict(touched='c'),
    dict(touched='h'),
    dict(write_first=True)
])
def test_a_read_that_may_find_something_else_is_not_repeated(change: Dict) -> None:
    assert not accepted(replace(Loop(), **change), 'ht', at=2)
