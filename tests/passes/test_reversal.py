"""Plans of chains by dynamic programming: against the optimum, and as the rewriter and the verifier take them."""
from __future__ import annotations

import heapq
import math
import random
from dataclasses import replace
from typing import List, Tuple

import pytest

from benchmarks.optimum import reversal
from tests.graphs import Draft
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph
from transpiler.passes.context import PassContext
from transpiler.passes.remat.holding import by_stages
from transpiler.passes.remat.ladder import Rung, front, ladder
from transpiler.passes.remat.remat_problem import RematProblem, remat_problem
from transpiler.passes.remat.restore import restore
from transpiler.passes.remat.rewrite import apply_plan
from transpiler.passes.remat.stages import is_chain
from transpiler.passes.remat.steps import least_peak, profile, untouched
from transpiler.runtime import COLLECTING
from transpiler.verify import verify

_ROWS = 1024
_UNIT = 4 * _ROWS  # bytes of a value of so many rows
_ROUNDING = 1e-9  # seconds


def _chain(rows: List[int], forward_in_place: bool = True) -> Graph:
    """x0 -> x1 -> ... and back; each gradient reads what its op made. Both work in place where sizes are equal."""
    draft = Draft()
    draft.value('x0', rows[0], fed=True)
    for i, count in enumerate(rows[1:], 1):
        draft.value(f'x{i}', count)
        draft.op('tanh',
                 f'x{i - 1}',
                 f'x{i}',
                 in_place=_pairs(0, rows[i - 1], count) if forward_in_place else ())
    last = len(rows) - 1
    draft.value(f'g{last}', rows[last])
    _backward(draft, '', f'g{last}')
    for i in range(last, 0, -1):
        draft.value(f'g{i - 1}', rows[i - 1])
        _backward(draft, f'x{i} g{i}', f'g{i - 1}', in_place=_pairs(1, rows[i], rows[i - 1]))
    draft.graph.values[draft.id('g0')].fetched = True
    return draft.graph


def _pairs(operand: int, given: int, made: int) -> Tuple[Tuple[int, int], ...]:
    return ((operand, 0),) if given == made else ()


def _backward(draft: Draft, reads: str, writes: str, **facts: object) -> None:
    op = draft.op('tanh_grad' if reads else 'fill', reads, writes, **facts)
    draft.graph.ops[op.id] = replace(op, backward=True)


def _problem(graph: Graph) -> RematProblem:
    timeline = Timeline(graph, COLLECTING, {})
    return remat_problem(graph, PassContext(COLLECTING, {}, recompute='max'), timeline)


def _drawn(seed: int, steps: int) -> Tuple[Graph, RematProblem]:
    """A chain of values of 1 to 4 units whose steps take 1 to 9 milliseconds. No tanh is in place."""
    draw = random.Random(seed)
    graph = _chain([_ROWS * draw.randint(1, 4) for _ in range(steps + 1)], False)
    problem = _problem(graph)
    return graph, replace(problem, seconds=[draw.randint(1, 9) * 1e-3 for _ in problem.seconds])


def _rungs(problem: RematProblem) -> List[Rung]:
    """What the dynamic program alone leads to."""
    most = profile(problem, untouched(problem)).peak
    found = []
    for plan in by_stages(problem, most, 1_000):
        seen = profile(problem, plan)
        better = restore(problem, plan, seen)
        found.append(Rung(seen.peak, better.seconds, better, problem))
    return front(found)


@pytest.mark.parametrize('steps', (2, 3, 10, 31, 60))
def test_a_uniform_chain_is_reversed_by_the_fewest_steps_there_are_at_every_size(
        steps: int) -> None:
    rungs = _rungs(_problem(_chain([_ROWS] * (steps + 1))))
    fewest = {rung.peak // _UNIT: rung.plan.clones for rung in rungs}
    # What is fed, a gradient, and what is computed; the other tensors are checkpoints. Below four the last gradient, which is
    # fetched and so is not in place, does not fit.
    assert min(fewest) == 4
    for slots in range(4, steps + 3):
        ours = min(clones for peak, clones in fewest.items() if peak <= slots)
        assert ours == reversal(steps, slots - 3) - steps, slots


def _fewest_seconds(problem: RematProblem, steps: int, limit: int) -> float:
    """The least extra seconds over all schedules of a drawn chain that keep to `limit` bytes (Dijkstra).

    A state is which values are there, what is fed always, and how many gradients are left; until the first runs, there is none.
    """
    touches, sizes = problem.memory.touches, problem.memory.sizes
    # touches[i - 1]: what step i reads and makes.
    value = [next(c for c in touches[0] if problem.memory.from_start[c])]
    for at in range(steps):
        value.append(next(c for c in touches[at] if problem.producer[c] == at))
    start = (frozenset({0}), steps, False)
    queue, done, number = [(0.0, 0, start)], set(), 0
    while queue:
        cost, _, state = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        there, left, backward = state
        if left == 0:
            return cost - sum(problem.seconds[:steps])
        bytes_there = sum(sizes[value[i]] for i in there)
        gradient = sizes[value[left]] if backward else 0
        following = [(0.0, 0, (there - {i}, left, backward)) for i in there - {0}]
        for i in there - {steps}:
            following.append(
                (problem.seconds[i], sizes[value[i + 1]], (there | {i + 1}, left, backward)))
        if left in there and not backward:
            following.append((0.0, sizes[value[left]], (there, left, True)))
        elif left in there:
            before = sizes[value[left - 1]]
            in_place = before == gradient and left > 1  # the last one is fetched
            following.append((0.0, 0 if in_place else before, (there, left - 1, True)))
        for more, allocated, state in following:
            if bytes_there + gradient + allocated <= limit:
                number += 1
                heapq.heappush(queue, (cost + more, number, state))
    raise AssertionError('no schedule keeps to the limit')


def _at(rungs: List[Rung], peak: int) -> float:
    """The least extra seconds of those that need at most `peak` bytes."""
    return min((rung.seconds for rung in rungs if rung.peak <= peak), default=math.inf)


def test_of_drawn_chains_nearly_all_rungs_are_at_the_optimum_or_within_5_percent() -> None:
    """Not all: the dynamic program never holds a value for some of the gradients before its own and drops it for others."""
    compared = near = 0
    for seed in range(40):
        steps = 4 + seed % 4
        graph, problem = _drawn(seed, steps)
        rungs = ladder(graph, problem)
        for peak in {rung.peak for rung in rungs}:
            fewest, ours = _fewest_seconds(problem, steps, peak), _at(rungs, peak)
            assert ours >= fewest - _ROUNDING
            compared += 1
            near += ours <= 1.05 * fewest + _ROUNDING
    assert compared > 200 and near >= 0.95 * compared


@pytest.mark.parametrize('seed', range(8))
def test_plans_of_a_drawn_chain_are_verified_and_need_what_they_say(seed: int) -> None:
    graph, problem = _drawn(seed, 20)
    rungs = _rungs(problem)
    assert len(rungs) > 5 and any(rung.plan.clones > 20 for rung in rungs)
    for rung in rungs:
        new = apply_plan(graph.copy(), problem, rung.plan)
        verify(graph, new, {op.id: op.origin for op in new.walk() if op.origin is not None})
        assert Timeline(new, COLLECTING, {}).peak_bytes == rung.peak


def test_the_least_peak_there_is_is_found_on_a_long_chain() -> None:
    problem = _problem(_chain([_ROWS] * 51))
    assert min(rung.peak for rung in _rungs(problem)) == least_peak(problem)


def test_what_is_overwritten_is_never_computed_again_too_late() -> None:
    """x0 is overwritten in the backward part: what is made from it is kept from then on."""
    graph, problem = _drawn(3, 6)
    first = problem.producer[next(c for c, op in enumerate(problem.producer) if op >= 0)]
    deadline = list(problem.deadline)
    deadline[first] = problem.boundary + 1
    rungs = _rungs(replace(problem, deadline=deadline))
    assert len(rungs) > 1
    for rung in rungs:
        runs = [at for at, step in enumerate(rung.plan.steps) if step.clone and step.op == first]
        late = [
            at for at, step in enumerate(rung.plan.steps)
            if not step.clone and step.op > problem.boundary + 1
        ]
        assert not runs or max(runs) < min(late)


def _residual(blocks: int) -> Graph:
    """Blocks of two steps, with what came in added to what they make: two values cross inside."""
    draft = Draft()
    draft.value('x0', fed=True)
    for i in range(blocks):
        draft.values(f'a{i} b{i} x{i + 1}')
        draft.op('tanh', f'x{i}', f'a{i}')
        draft.op('tanh', f'a{i}', f'b{i}')
        draft.op('add', f'x{i} b{i}', f'x{i + 1}')
    draft.value(f'g{blocks}')
    _backward(draft, '', f'g{blocks}')
    for i in range(blocks, 0, -1):
        draft.value(f'g{i - 1}')
        _backward(draft, f'a{i - 1} b{i - 1} g{i}', f'g{i - 1}')
    draft.graph.values[draft.id('g0')].fetched = True
    return draft.graph


def test_only_chains_are_planned_so() -> None:
    assert is_chain(_problem(_chain([_ROWS] * 9)))
    branching = _problem(_residual(4))
    assert not is_chain(branching) and not list(by_stages(branching, 1 << 20, 10))
