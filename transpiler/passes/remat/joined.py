"""What a joined value is made of, held until that value is read for the last time.

A simulation that drops values one by one takes what it would have to make again from values that are dead for the dear way: it
makes those again, too, or keeps them for this one value, which saves nothing. Where a value is joined of several, and is no smaller than
they are together, keeping them in its place costs nothing, and they often serve other joins: so a dense block (Huang et
al., CVPR 2017) keeps what its layers have made, once, and joins it wherever a gradient reads it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterator, List, Optional, Tuple

from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import RematPlan, without_unread

_SMALL = 64  # times the size, and an operand is still smaller than the result: an axis, no part of it


def holding_joined(problem: RematProblem) -> Optional[RematProblem]:
    """`problem` as if the last op that reads a joined value read what that is made of, too; None if nothing is joined there."""
    held: Dict[int, List[int]] = {}
    for at, cell in _held(problem):
        held.setdefault(at, []).append(cell)
    if not held:
        return None
    touches = [
        tuple(dict.fromkeys((*cells, *held.get(at, ()))))
        for at, cells in enumerate(problem.memory.touches)
    ]
    return replace(problem, memory=replace(problem.memory, touches=touches))


def released(problem: RematProblem, plan: RematPlan) -> RematPlan:
    """`plan`, of `holding_joined(problem)`, as one of `problem`: nothing is held, or made again, for who does not read it."""
    steps = [
        step if step.clone else replace(step,
                                        reads=step.reads[:len(problem.memory.touches[step.op])])
        for step in plan.steps
    ]
    return without_unread(problem, replace(plan, steps=steps))


def _held(problem: RematProblem) -> Iterator[Tuple[int, int]]:
    """(position, cell that is held to it)."""
    sizes, users = problem.memory.sizes, problem.memory.users
    for op, results in enumerate(problem.results):
        made = sum(sizes[c] for c in results)
        parts = [c for c in problem.operands[op] if sizes[c] * _SMALL > made]
        if len(parts) < 2 or sum(sizes[c] for c in parts) > made:
            continue
        last = max(users[c][-1] for c in results)
        if problem.boundary <= last <= problem.deadline[op]:
            yield from ((last, c) for c in parts if users[c][-1] < last)
