"""The judge: a whole run, its steps one after the other, and a count by hand with sets say the same bytes."""
from __future__ import annotations

import random
from typing import List, Set, Tuple

import pytest

from tests.graphs import dims_of, generated
from tests.orders import problem_of, random_order, reordered, straight_graph
from tests.analysis.test_alternatives import branches
from transpiler.analysis.memory_profile import taken_over, turnover
from transpiler.analysis.timeline import Timeline
from transpiler.passes.orders.order_problem import OrderProblem
from transpiler.passes.orders.simulator import Simulator, bytes_at_start, profile
from transpiler.runtime import COLLECTING


def a_problem(seed: int) -> OrderProblem:
    """Random cells, some there from the start or to the end, and pairs of which several meet in one cell."""
    dice = random.Random(seed)
    cells, ops = dice.randint(1, 8), dice.randint(1, 12)
    touches = [
        tuple(sorted(dice.sample(range(cells), dice.randint(0, min(4, cells))))) for _ in range(ops)
    ]
    used = {c for cells in touches for c in cells}
    ends = [[c in used and dice.random() < 0.2 for c in range(cells)] for _ in range(2)]
    before = [{c for cells in touches[:at] for c in cells} for at in range(ops)]
    pairs = [
        tuple((a, b)
              for a in row
              for b in row
              if a != b and not ends[1][a] and (ends[0][a] or a in there) and dice.random() < 0.5)
        for row, there in zip(touches, before)
    ]
    sizes = [64] * cells if seed % 2 else [dice.randint(1, 99) for _ in range(cells)]
    if not seed % 2:
        pairs = [tuple((a, b) for a, b in row if sizes[a] == sizes[b]) for row in pairs]
    amounts = [[dice.choice((0, 0, 7)) for _ in range(ops)] for _ in range(3)]
    return OrderProblem([[] for _ in range(ops)], touches, sizes, *ends, pairs, *amounts)


def count_by_hand(problem: OrderProblem) -> List[int]:
    """Each moment as the set of the buffers that exist."""
    buffer = {c: c for c, there in enumerate(problem.from_start) if there}
    outside, found = 0, []
    for op, touched in enumerate(problem.touches):
        later: Set[int] = {c for cells in problem.touches[op + 1:] for c in cells}
        ends = [c for c in touched if c not in later and not problem.to_end[c]]
        given: Set[int] = set()
        new = [c for c in touched if c not in buffer]
        for a, b in problem.pairs[op]:
            if a in ends and b in new and a not in given and b not in given:
                buffer[b] = buffer[a]
                given.update((a, b))
        buffer.update((c, c) for c in new if c not in given)
        sizes = {buffer[c]: problem.sizes[c] for c in buffer}
        found.append(sum(sizes.values()) + outside + problem.transient[op])
        for c in ends:
            del buffer[c]
        outside += problem.leaves[op] - problem.collects[op]
    return found


@pytest.mark.parametrize('seed', range(200))
def test_a_run_is_counted_as_by_hand(seed: int) -> None:
    problem = a_problem(seed)
    assert profile(problem, range(len(problem))) == count_by_hand(problem)


@pytest.mark.parametrize('seed', range(50))
def test_step_by_step_is_the_same_as_all_at_once(seed: int) -> None:
    problem = problem_of(straight_graph(seed, 20, training=True))
    simulator, live, found = Simulator(problem), bytes_at_start(problem), []
    for op in range(len(problem)):
        during, added = simulator.cost(op)
        found.append(live + during)
        live += added
        simulator.touch(op)
    assert found == profile(problem, range(len(problem)))


@pytest.mark.parametrize('pairs, dying, born, found', [
    (((0, 2), (1, 2)), {0, 1}, {2}, [(0, 2)]),
    (((0, 1), (0, 2)), {0}, {1, 2}, [(0, 1)]),
    (((0, 2), (1, 2), (1, 3)), {0, 1}, {2, 3}, [(0, 2), (1, 3)]),
    (((0, 2),), set(), {2}, []),
])
def test_each_memory_is_taken_over_once(pairs: Tuple, dying: Set[int], born: Set[int],
                                        found: List) -> None:
    assert taken_over(pairs, dying, born) == found
    sizes = [8] * 4
    shared = 8 * len(found)
    assert turnover(sizes, born, dying, pairs) == (8 * len(born) - shared, 8 * len(dying) - shared)


@pytest.mark.parametrize('seed', range(60))
def test_a_rise_of_another_order_is_that_of_its_own_timeline(seed: int) -> None:
    graph = branches(exclusive=True).graph if seed < 10 else generated(seed)
    dims, dice = dims_of(graph, 3), random.Random(seed)
    timeline = Timeline(graph, COLLECTING, dims)
    order = random_order(graph, 0, dice)
    other = Timeline(reordered(graph, order), COLLECTING, dims)
    given = graph.regions[0].ops
    assert timeline.rise_within(0, [given[i] for i in order]) == other.peak_bytes
    for region in graph.regions:
        assert timeline.rise_within(region.id, region.ops) == timeline.rise_of(region.id)
