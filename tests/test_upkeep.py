"""What Paddle's executor keeps for ops, and for pairs of them, besides tensors: measured, against what the model says."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Tuple

import numpy as np
import paddle
import pytest

from benchmarks.apart import apart
from transpiler import memory_optimize
from transpiler.analysis.segments import upkeep
from transpiler.ir import Graph, RegionKind
from transpiler.runtime import COLLECTING, RETAINING, Runtime

OPS = 1000


def _grown(kind: str, ops: int, segments: bool) -> Tuple[int, Tuple[int, int]]:
    """Bytes by which this process grows in the first run of `ops` ops on one number, and the report's figures."""
    paddle.enable_static()
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        given = made = paddle.static.data('x', [1])
        for _ in range(ops):
            made = paddle.scale(made if kind == 'chain' else given, 1.0001)
    report = memory_optimize(main, fetch_list=[made], segments=segments)
    executor = paddle.static.Executor(paddle.CPUPlace())
    before = _resident('VmRSS')
    executor.run(main, feed={'x': np.ones(1, 'float32')}, fetch_list=[made])
    return _resident('VmHWM') - before, report.upkeep_bytes


def _resident(what: str) -> int:
    lines = Path('/proc/self/status').read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what))


def test_ops_take_what_the_model_says_between_those_without_any_order_and_those_in_one() -> None:
    wide, (predicted, same) = apart(_grown, 'wide', OPS, False)
    chain, (again, _) = apart(_grown, 'chain', OPS, False)
    assert predicted == same == again
    assert wide / 2 < predicted < chain


def test_pairs_take_more_than_ops() -> None:
    """Twice the ops take more than twice as much."""
    half, (predicted_half, _) = apart(_grown, 'chain', OPS // 2, False)
    whole, (predicted, _) = apart(_grown, 'chain', OPS, False)
    assert whole > 2.2 * half and predicted > 2.2 * predicted_half


def test_ops_of_a_segment_take_what_the_model_says() -> None:
    grown, (before, after) = apart(_grown, 'chain', OPS, True)
    assert after < before / 2
    assert after / 2 < grown < after * 2


@pytest.mark.parametrize('runtime', (COLLECTING, RETAINING))
def test_upkeep_is_counted_region_by_region(runtime: Runtime) -> None:
    facts = runtime.upkeep
    found = upkeep(_graph(30, 20), runtime)
    assert found.bytes == 51 * facts.op_bytes + (31**2 + 20**2) * facts.pair_bytes
    assert found.seconds == pytest.approx(51 * facts.op_seconds +
                                          (31**2 + 20**2) * facts.pair_seconds)


def test_in_segments_only_the_main_region_is_without_pairs() -> None:
    facts = COLLECTING.upkeep
    graph = _graph(30, 20)
    found = upkeep(graph, COLLECTING, ((0, 29),))
    pairs = (2**2 + 20**2) * facts.pair_bytes
    assert found.bytes == 22 * facts.op_bytes + 30 * facts.segment_op_bytes + pairs


def _graph(main: int, inner: int) -> Graph:
    """Ops on nothing: so many in the main region, and one behind them that runs a loop."""
    graph = Graph()
    graph.new_region(RegionKind.BLOCK)
    for _ in range(main):
        graph.new_op('exp', 0)
    loop: Any = graph.new_op('while', 0)
    body = graph.new_region(RegionKind.LOOP, op=loop.id, parent=0)
    loop.regions = (body.id,)
    for _ in range(inner):
        graph.new_op('exp', body.id)
    return graph
