"""Releases where the runtime retains: none where the executor would then make a buffer more."""
from __future__ import annotations

from tests.graphs import Draft
from transpiler.analysis.timeline import Timeline
from transpiler.ir import RELEASE
from transpiler.passes.context import PassContext
from transpiler.passes.releases.at_once import release_storages
from transpiler.runtime import RETAINING


def test_what_gets_the_buffer_of_a_value_that_stays_is_not_released() -> None:
    """`a` may be looked for by its name: it stays to the end, whatever is written into its buffer."""
    draft = Draft()
    draft.values('a b c')
    draft.graph.values[draft.id('a')].skipped = True
    draft.value('d', fetched=True)
    draft.op('fill', '', 'a')
    draft.op('op', 'a', 'b', in_place=((0, 0),))
    draft.op('op', 'b', 'c')
    draft.op('op', 'c', 'd')
    before = Timeline(draft.graph, RETAINING, {}).peak_bytes
    done = release_storages(draft.graph.copy(), PassContext(RETAINING, {}))
    released = {v for op in done.walk() if op.kind == RELEASE for v in op.writes()}
    assert released == {draft.id('c')}
    assert Timeline(done, RETAINING, {}).peak_bytes <= before
