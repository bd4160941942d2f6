"""Predicted times: what a product computes, however its matrices are batched."""

from __future__ import annotations

from typing import Tuple

import pytest

from transpiler.analysis.cost import CostModel
from transpiler.ir import Graph, OpFacts, RegionKind, Size, Work

ALL_COMPUTING = CostModel(bytes_per_second=float('inf'), flops_per_second=1.0, seconds_per_op=0.0)
BATCH, ROWS, INNER, COLUMNS = 6, 5, 7, 3
FLOPS = 2.0 * ROWS * INNER * COLUMNS


def flops(*shapes: Tuple[int, ...], backward: bool = False) -> float:
    """Of a product whose operands have `shapes`, the last of which is its result's; of its gradient, all are operands."""
    graph = Graph()
    graph.new_region(RegionKind.BLOCK)
    values = [
        graph.new_value(f'v{at}', 0, shape=tuple(map(Size.of, shape)), size=Size.of(4)).id
        for at, shape in enumerate(shapes)
    ]
    made = [graph.new_value(f'g{at}', 0, size=Size.of(4)).id for at in range(2)]
    reads, writes = (values, made) if backward else (values[:-1], values[-1:])
    op = graph.new_op('product', 0, operands=tuple(reads), results=tuple(writes),
                      facts=OpFacts(work=Work(heavy=True, backward=backward)))  # yapf: disable
    return ALL_COMPUTING.seconds(graph, op, {})


@pytest.mark.parametrize('batch', [(), (BATCH,), (2, 3)])
@pytest.mark.parametrize('backward', [False, True])
def test_a_batch_of_products_computes_as_much_as_its_products(batch: Tuple[int, ...],
                                                              backward: bool) -> None:
    found = flops((*batch, ROWS, INNER), (*batch, INNER, COLUMNS), (*batch, ROWS, COLUMNS),
                  backward=backward)
    times = (BATCH if batch else 1) * (2 if backward else 1)
    assert found == pytest.approx(times * FLOPS)


def test_one_matrix_for_a_whole_batch_makes_one_product_of_it() -> None:
    found = flops((BATCH, ROWS, INNER), (INNER, COLUMNS), (BATCH, ROWS, COLUMNS))
    assert found == pytest.approx(BATCH * FLOPS)
