"""What gradients read of their forward regions: found in one pass, as by looking into each."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterator, List, Set

import pytest

from tests.graphs import generated
from transpiler.analysis.positions import Positions
from transpiler.analysis.writers import Writers
from transpiler.ir import Graph, Op, Region
from transpiler.passes.inner_remat.readers import Readers

SEEDS = range(200)


def gradients(graph: Graph) -> Iterator[Region]:
    return (region for region in graph.regions if region.forward >= 0)


def looked_into(graph: Graph, gradient: Region) -> Dict[int, Set[int]]:
    """By value of the forward region: the ops inside the gradient that read it."""
    found: Dict[int, Set[int]] = {}
    for op in graph.walk(gradient.id):
        for value in op.reads():
            if graph.values[value].region == gradient.forward:
                found.setdefault(value, set()).add(op.id)
    return found


def test_they_are_found_as_by_looking_into_each_gradient() -> None:
    seen = 0
    for graph in map(generated, SEEDS):
        readers = Readers(graph, Positions(graph))
        for gradient in gradients(graph):
            found = looked_into(graph, gradient)
            assert readers.of(gradient) == set(found)
            assert {op.id for op in readers.ops(gradient)} == set().union(*found.values())
            seen += len(found)
    assert seen > len(SEEDS) // 4


def test_who_reads_it_no_more_is_left_out() -> None:
    seen = 0
    for graph in map(generated, SEEDS):
        readers = Readers(graph, Positions(graph))
        for gradient in gradients(graph):
            for value in sorted(readers.of(gradient)):
                _forget(graph, readers.ops(gradient), value)
                assert value not in readers.of(gradient)
                assert readers.of(gradient) == set(looked_into(graph, gradient))
                seen += 1
    assert seen > len(SEEDS) // 4


def _forget(graph: Graph, ops: List[Op], value: int) -> None:
    for op in ops:
        graph.ops[op.id] = replace(op, operands=tuple(-1 if v == value else v for v in op.operands))


@pytest.mark.parametrize('seed', SEEDS[:20])
def test_writers_are_counted(seed: int) -> None:
    graph = generated(seed)
    writers = Writers(graph)
    for value in graph.values:
        assert writers.count(value.id) == sum(value.id in op.writes() for op in graph.walk())
