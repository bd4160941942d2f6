"""Clones are to other ops what their origins are."""
from __future__ import annotations

from tests.graphs import Draft
from transpiler.passes.cloning import Cloner


def test_what_was_a_slice_of_an_operand_is_one_of_what_the_clone_reads() -> None:
    draft = Draft()
    draft.values('a cache b')
    fill = draft.op('fill', '', 'a')
    product = draft.op('op', 'a', 'cache b')
    graph = draft.graph
    graph.values[draft.id('a')].buffer = graph.values[draft.id('cache')].buffer = draft.id('a')
    cloner = Cloner(graph, 0)
    again, cache, result = (cloner.value(draft.id(name)) for name in ('a', 'cache', 'b'))
    cloner.op(fill, (), (again,))
    cloner.op(product, (again,), (cache, result))
    assert graph.buffers() == {
        draft.id('a'): (draft.id('a'), draft.id('cache')),
        again: (again, cache)
    }
