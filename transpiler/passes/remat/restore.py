"""Takes clones out of a plan again where there is room to keep the value after all.

A greedy choice under a limit drops more than it had to. Keeping an instance alive until the readers of its copy needs its
size in the gap between the two; if the profile has that much room under the peak everywhere in the gap, the clone goes,
and with it all clones that only it read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Set

import numpy

from transpiler.analysis.memory_profile import MemoryProfile
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.remat.steps import RematPlan, profile, without_unread


def restore(problem: RematProblem, plan: RematPlan, seen: MemoryProfile) -> RematPlan:
    """A plan of no higher peak than that of `plan` with fewer clones, or `plan`. `seen` is its profile."""
    found = _Restorer(problem, plan, seen).run()
    return found if found is plan or profile(problem, found).peak <= seen.peak else plan


class _Restorer:

    def __init__(self, problem: RematProblem, plan: RematPlan, seen: MemoryProfile) -> None:
        self._problem = problem
        self._plan = plan
        self._limit = seen.peak
        self._profile = seen
        self._bytes: numpy.ndarray = seen.bytes.copy()
        self._earlier = self._previous_instances()
        self._last = list(self._profile.last)
        self._replaced: Dict[int, int] = {}  # instance -> the one that stands in for it
        self._gone: Set[int] = set()  # steps

    def run(self) -> RematPlan:
        clones = [at for at, step in enumerate(self._plan.steps) if step.clone]
        for at in sorted(clones, key=lambda at: -self._problem.seconds[self._plan.steps[at].op]):
            if at not in self._gone:
                self._try(at)
        return self._rebuilt() if self._gone else self._plan

    def _previous_instances(self) -> Dict[int, int]:
        latest = list(range(len(self._problem.cells)))
        earlier = {}
        for instance, cell in enumerate(self._plan.cell_of[len(latest):], len(latest)):
            earlier[instance] = latest[cell]
            latest[cell] = instance
        return earlier

    def _try(self, at: int) -> None:
        """Removes the clone at step `at` if what it makes can be kept from before."""
        step = self._plan.steps[at]
        kept = {i: self._root(self._earlier[i]) for i in step.writes}
        gaps = [(self._end(before), at, self._size(before)) for before in kept.values()]
        for start, end, size in gaps:
            self._bytes[start:end] += size
        if all(self._bytes[s:e].max(initial=0) <= self._limit for s, e, _ in gaps):
            self._gone.add(at)
            for instance, before in kept.items():
                self._replaced[instance] = before
                self._last[before] = max(self._last[before], self._last[instance])
        else:
            for start, end, size in gaps:
                self._bytes[start:end] -= size

    def _end(self, instance: int) -> int:
        """The first step at which `instance` has no memory, or shares it with its heir."""
        return self._last[instance] + (0 if instance in self._profile.heir else 1)

    def _root(self, instance: int) -> int:
        while instance in self._replaced:
            instance = self._replaced[instance]
        return instance

    def _size(self, instance: int) -> int:
        return self._problem.memory.sizes[self._plan.cell_of[instance]]

    def _rebuilt(self) -> RematPlan:
        """The plan without the clones that are gone, and without those that nobody reads any more."""
        kept = [
            replace(step, reads=tuple(self._root(i)
                                      for i in step.reads))
            for at, step in enumerate(self._plan.steps)
            if at not in self._gone
        ]
        return without_unread(self._problem, RematPlan(kept, self._plan.cell_of))
