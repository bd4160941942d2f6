"""What recomputation starts from where workers talk."""
from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import pytest

from benchmarks.programs import build, small_options
from tests.builds import needs_cpu_build
from transpiler.backends.paddle2.programs import LivePrograms
from transpiler.ir import Graph
from transpiler.planning import PlanOptions, plan
from transpiler.runtime import COLLECTING, Can


def data_parallel(name: str) -> Tuple[Graph, int]:
    """A small training program whose gradients are summed over the workers, in front of all updates; and its batch size."""
    case = build(name, small_options(name, optimizer='momentum'))
    block = case.main.global_block()
    updates = [op for op in block.ops if op.type == 'momentum']
    first = next(at for at, op in enumerate(block.ops) if op.type == 'momentum')
    for gradient in [op.input('Grad')[0] for op in updates[::-1]]:
        block._insert_op(first,
                         type='c_allreduce_sum',
                         inputs={'X': gradient},
                         outputs={'Out': gradient},
                         attrs={
                             'ring_id': 0,
                             'use_calc_stream': True
                         })
    return LivePrograms().read(case.main, frozenset(case.fetch), frozenset()).graph, case.batch_size


@needs_cpu_build
@pytest.mark.parametrize('name', ['transformer', 'transformer_gelu', 'bert'])
def test_products_that_can_be_made_one_by_one_cost_workers_nothing(name: str) -> None:
    graph, rows = data_parallel(name)
    assert any(op.facts.collective for op in graph.region_ops(0))
    assert any(op.facts.separate for op in graph.region_ops(0))
    whole = replace(COLLECTING, can=COLLECTING.can - {Can.SEPARATE})
    found = [
        plan(graph, each, {
            'N': rows,
            'N(segments)': rows
        }, PlanOptions()) for each in (COLLECTING, whole)
    ]
    assert found[0].after.peak_bytes <= found[1].after.peak_bytes < found[0].before.peak_bytes
