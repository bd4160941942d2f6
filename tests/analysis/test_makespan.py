"""How long ops take side by side: by hand where the schedule is plain, and within the bounds that hold for every list schedule."""
from __future__ import annotations

import random
from typing import Callable, List, Set

import pytest

from tests.graphs import Draft, dims_of, generated
from transpiler.analysis.cost import CostModel
from transpiler.analysis.dependences import Dependences, dependences
from transpiler.analysis.makespan import clock_seconds, makespan
from transpiler.ir import Graph, Op, RegionKind, Size

PROCESSORS = (1, 2, 3, 4)


def _longest_path(before: List[List[int]], seconds: List[float]) -> float:
    ends: List[float] = []
    for at, earlier in enumerate(before):
        ends.append(seconds[at] + max((ends[other] for other in earlier), default=0.0))
    return max(ends)


@pytest.mark.parametrize('before, seconds, processors, expected', [
    ([[], [0], [1]], [1.0, 2.0, 4.0], 2, 7.0),
    ([[], [], []], [4.0, 1.0, 2.0], 2, 4.0),
    ([[], [], []], [4.0, 1.0, 2.0], 1, 7.0),
    ([[], [0], [0], [1, 2]], [1.0, 5.0, 3.0, 1.0], 2, 7.0),
    ([[], [], [], []], [3.0, 3.0, 3.0, 3.0], 3, 6.0),
    ([[], [0], []], [2.0, 2.0, 3.0], 2, 4.0),
    ([[], [0], [0]], [1.0, 2.0, 1.0], 2, 3.0),
])
def test_of_a_schedule_that_can_be_drawn_by_hand(before: List[List[int]], seconds: List[float],
                                                 processors: int, expected: float) -> None:
    assert makespan(_graph(before), seconds, processors, waking=0.0) == expected


@pytest.mark.parametrize(
    'before, seconds, processors, expected',
    [
        ([[], [0], [1]], [1.0, 2.0, 4.0], 2, 7.0),  # no processor was idle: one does it all
        ([[], []], [4.0, 4.0], 1, 8.0),
        ([[], []], [4.0, 4.0], 2, 4.5),
        ([[], [0], [0]], [1.0, 2.0, 2.0], 2, 3.5),  # the one goes on, the other is woken
        ([[], [0], [0], [1, 2]], [1.0, 2.0, 1.0, 1.0], 2, 4.0),
        ([[], [], [0], [1]], [2.0, 1.0, 1.0, 3.0], 2, 4.5),
    ])
def test_a_processor_that_was_idle_starts_later(before: List[List[int]], seconds: List[float],
                                                processors: int, expected: float) -> None:
    assert makespan(_graph(before), seconds, processors, waking=0.5) == expected


def _loop_of_two_chains(trips: int) -> Graph:
    """In a loop's body an op, two that wait for it alone, and one that waits for both."""
    draft = Draft()
    draft.values('x h', fed=True)
    body = draft.region(draft.op('while', 'x h', 'h'), RegionKind.LOOP, trips=Size.of(trips))
    draft.values('a b c', region=body)
    draft.op('a', 'x', 'a', region=body)
    draft.op('b', 'a', 'b', region=body)
    draft.op('c', 'a', 'c', region=body)
    draft.op('d', 'b c', 'h', region=body)
    return draft.graph


@pytest.mark.parametrize('held, trip', [({0, 1}, 8.0), ({1}, 8.0), ({0}, 6.0), (set(), 6.0)])
def test_a_loop_whose_order_is_held_takes_longer_in_each_trip(held: Set[int], trip: float) -> None:
    graph, trips = _loop_of_two_chains(5), 5
    seconds = dict(a=1.0, b=4.0, c=2.0, d=1.0)

    def op_seconds(op: Op, of_region: Callable[[int], float]) -> float:
        return trips * of_region(op.regions[0]) if op.regions else seconds[op.kind]

    assert clock_seconds(graph, held, op_seconds, processors=2) == trips * trip


@pytest.mark.parametrize('seed', range(20))
def test_what_is_held_takes_the_sum_and_what_is_not_no_more(seed: int) -> None:
    graph, cost = generated(seed), CostModel()
    dims = dims_of(graph, trips=3)

    def op_seconds(op: Op, of_region: Callable[[int], float]) -> float:
        return cost.whole_seconds(graph, op, dims, of_region)

    in_turn = sum(cost.whole_seconds(graph, op, dims) for op in graph.region_ops(0))
    everything = range(len(graph.regions))
    assert clock_seconds(graph, everything, op_seconds, 2) == pytest.approx(in_turn, rel=1e-12)
    aside = clock_seconds(graph, (), op_seconds, 2)
    assert aside <= clock_seconds(graph, {0}, op_seconds, 2) <= in_turn * (1 + 1e-12)


def _graph(before: List[List[int]]) -> Dependences:
    return Dependences(list(range(len(before))), before)


@pytest.mark.parametrize('seed', range(20))
def test_it_is_between_the_longest_path_and_grahams_bound(seed: int) -> None:
    found = dependences(generated(seed), 0)
    chance = random.Random(seed)
    seconds = [float(chance.randint(1, 9)) for _ in found.ops]
    path, total = _longest_path(found.before, seconds), sum(seconds)
    assert makespan(found, seconds, 1, waking=9.0) == total
    for processors in PROCESSORS:
        least = max(path, total / processors)
        most = path + (total - path) / processors
        assert least <= makespan(found, seconds, processors, waking=0.0) <= most + 1e-9
