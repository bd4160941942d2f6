"""What is kept between the parts of a program that runs in two: less of it, at the peak that a plan has.

The caller's own code runs there, and holds what it likes. A plan for the lowest peak leaves more than it must where something
else makes the peak, as all gradients at the end do. So the op between the parts is taken to need so much more that what is kept has
to be less, and a plan is sought that has the same peak even so. Where half of what is kept can't go at that peak, a slightly higher
one may be had for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from transpiler.passes.remat.evict import Eviction, evict
from transpiler.passes.remat.ladder import BEFORE_RESTORING, DISTANCE_POWERS, Rung
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.restore import restore
from transpiler.passes.remat.steps import RematPlan, profile, untouched

_SHARE = 0.5  # of what is kept untouched: less is not asked for
_GIVEN = 1 / 16  # of the peak: at most so much more may be needed where that halves what is kept
_HALVINGS = 3
_POWERS = (DISTANCE_POWERS[0], 0.5, *DISTANCE_POWERS[1:])


def keeping_less(rung: Rung, between: int, seconds: float, highest: float) -> Rung:
    """The plan of `rung`, or one that keeps less, down to half of what there is, and takes at most `seconds`.

    Its peak is no higher; or a sixteenth at most where it keeps no more than half, and none of no higher peak does.

    Args:
        between: the op between the parts, by its index in the problem.
        highest: no plan that needs more bytes is of use.
    """
    problem = rung.problem
    enough = _SHARE * _kept(problem, untouched(problem), between)
    best = _at_its_peak(rung, between, seconds, enough)
    higher = min(highest, rung.peak * (1 + _GIVEN))
    if _kept(problem, best.plan, between) <= enough or higher <= rung.peak:
        return best
    return _keeping(rung, int(higher), between, enough, seconds) or best


def _at_its_peak(rung: Rung, between: int, seconds: float, enough: float) -> Rung:
    """That of the least kept, down to `enough` bytes, that a bisection finds; `rung` if none."""
    least, most, best = enough, float(_kept(rung.problem, rung.plan, between)), rung
    target = least
    for _ in range(1 + _HALVINGS if most > enough else 0):
        found = _keeping(rung, rung.peak, between, target, seconds)
        if found is None:
            least = target
        else:
            best, most = found, target
        if most <= enough:
            break
        target = (least + most) / 2
    return best


def _kept(problem: RematProblem, plan: RematPlan, between: int) -> int:
    """Bytes there while the op between the parts runs."""
    at = next(at for at, step in enumerate(plan.steps) if step.op == between and not step.clone)
    return int(profile(problem, plan).bytes[at])


def _keeping(rung: Rung, peak: int, between: int, target: float, seconds: float) -> Optional[Rung]:
    """A plan that needs at most `peak` bytes and keeps no more than `target`."""
    transient = list(rung.problem.memory.transient)
    transient[between] += int(peak - target)
    loaded = replace(rung.problem, memory=replace(rung.problem.memory, transient=transient))
    for power in _POWERS:
        plan = evict(loaded,
                     Eviction(peak, peak + 1, seconds * BEFORE_RESTORING, distance_power=power))
        if plan is not None:
            plan = restore(loaded, plan, profile(loaded, plan))
            if plan.seconds <= seconds:
                return Rung(profile(rung.problem, plan).peak, plan.seconds, plan, rung.problem)
    return None
