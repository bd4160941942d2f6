"""Checkpoints chosen by a rule: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), as Checkmate generalized it to
nets that are no chains: over all ops of the forward part in their order ("linear"), and over those alone through which all goes
that later ones are made from ("points", articulation points)."""
from __future__ import annotations

import math
from typing import Callable, Iterable, Iterator, List, Mapping, Optional, Sequence

from benchmarks.references.checkmate import clonable
from benchmarks.references.schedules import plan_of_checkpoints
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.stages import droppable, last_readers
from transpiler.passes.remat.steps import RematPlan

_SEGMENTS = 24  # sizes of segments that the greedy rule is tried with
_DISTANCES = 32


def points(problem: RematProblem) -> List[int]:
    """Ops of the forward part whose one result is all that later ones are made from."""
    crossing = [0] * (len(problem) + 1)
    for cell, last in last_readers(problem, droppable(problem)).items():
        for at in range(problem.producer[cell], last):
            crossing[at] += 1
    return [
        op for op in clonable(problem) if crossing[op] == 1 and any(
            last > op for c, last in last_readers(problem, droppable(problem)).items()
            if problem.producer[c] == op)
    ]


def square_root(problem: RematProblem, ops: Sequence[int]) -> Iterator[RematPlan]:
    """Each k-th of n ops, k the root of n."""
    if ops:
        distance = max(1, math.isqrt(len(ops)))
        yield _keeping(problem, ops[distance - 1::distance])


def equal_distances(problem: RematProblem, ops: Sequence[int]) -> Iterator[RematPlan]:
    """Each k-th of the ops, for all small k and some large ones."""
    for distance in dict.fromkeys(
            round(max(1, len(ops))**(number / (_DISTANCES - 1))) for number in range(_DISTANCES)):
        yield _keeping(problem, ops[distance - 1::distance])


def greedy(problem: RematProblem, ops: Sequence[int]) -> Iterator[RematPlan]:
    """An op is kept as soon as so many bytes have been made since the last that is; for many such sizes."""
    allowed, order = set(ops), clonable(problem)
    made = [sum(problem.memory.sizes[c] for c in problem.results[op]) for op in order]
    total, least = sum(made), max(1, min(filter(None, made), default=1))
    for number in range(_SEGMENTS):
        size = least * (max(2, total / least))**(number / (_SEGMENTS - 1))
        kept, since = [], 0
        for op, own in zip(order, made):
            since += own
            if op in allowed and since > size:
                kept.append(op)
                since = 0
        yield _keeping(problem, kept)


def _keeping(problem: RematProblem, ops: Iterable[int]) -> RematPlan:
    return plan_of_checkpoints(problem, [c for op in ops for c in problem.results[op]])


Rule = Callable[[RematProblem, Sequence[int]], Iterator[RematPlan]]
RULES: Mapping[str, Rule] = {
    "sqrt n": square_root,
    "greedy": greedy,
    "equal distances": equal_distances
}


def cheapest(plans: Iterable[tuple], peak: int) -> Optional[float]:
    """Of (peak, seconds) the least seconds that keep to `peak`."""
    return min((seconds for needed, seconds in plans if needed <= peak), default=None)
