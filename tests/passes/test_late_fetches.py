"""What the caller fetches is copied for him at the end, where a copy made at once would raise the peak."""

from __future__ import annotations

from typing import List, Tuple

import pytest

from tests.graphs import Draft
from transpiler.ir import UNCOPIED, Graph
from transpiler.passes.context import PassContext
from transpiler.passes.late_fetches import put_off_fetches
from transpiler.runtime import COLLECTING, RETAINING, Runtime

_ROWS = 256  # of a KiB


def fetched_early(kib: int, read_last: bool, copied: bool = True) -> Graph:
    """`early` is made first, and read by the op that needs most, or only by one ahead of that."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.value('early', rows=kib * _ROWS or 1, fetched=True, copied_out=copied)
    draft.value('wide', rows=64 * _ROWS)
    draft.value('end', rows=1, fetched=True, copied_out=True)
    draft.op('relu', 'x', 'early')
    draft.op('read', 'early', 'x')
    draft.op('make', 'x early' if read_last else 'x', 'wide')
    draft.op('mean', 'wide', 'end')
    return draft.graph


def put_off(graph: Graph, runtime: Runtime = COLLECTING) -> List[Tuple[str, int]]:
    """Names of the values whose copies wait, and how many ops of the main region stand behind each op that they wait for."""
    found = put_off_fetches(graph.fork(), PassContext(runtime, {}))
    ops = list(found.region_ops(0))
    return [(found.values[op.operands[0]].name, len(ops) - 1 - at)
            for at, op in enumerate(ops)
            if op.kind == UNCOPIED]


def test_a_copy_that_would_be_there_at_the_peak_waits_for_an_op_behind_all_others() -> None:
    assert put_off(fetched_early(8, read_last=True)) == [('early', 0)]


def test_a_value_that_nobody_reads_at_the_peak_is_copied_at_once() -> None:
    """From then on there is its copy in its place."""
    assert not put_off(fetched_early(8, read_last=False))


@pytest.mark.parametrize('graph, runtime', [
    (fetched_early(0, read_last=True), COLLECTING),
    (fetched_early(8, read_last=True, copied=False), COLLECTING),
    (fetched_early(8, read_last=True), RETAINING),
],
                         ids=['a scalar', 'not copied', 'nothing is freed before the end'])
def test_what_brings_nothing_is_not_done(graph: Graph, runtime: Runtime) -> None:
    assert not put_off(graph, runtime)
