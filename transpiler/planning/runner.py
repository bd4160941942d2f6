"""Runs sequences of passes from a graph, each step once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Dict, Mapping, Optional, Sequence, Tuple

from transpiler.ir import Graph
from transpiler.passes.context import PassContext
from transpiler.planning.plans import Plan, PlanOptions
from transpiler.planning.sequences import (AFTER_ORDER, FOR_INNER_REGIONS, IN_PLACE, RELEASE, REUSE,
                                           SCHEDULE, NamedPass)
from transpiler.planning.work import Done, Work
from transpiler.runtime import Runtime


class Runner:
    """Runs sequences of passes. What several of them begin with is run once; a pass that changes nothing is as if it
    had not been."""

    def __init__(self,
                 graph: Graph,
                 runtime: Runtime,
                 dims: Mapping[str, int],
                 options: PlanOptions,
                 loose: bool = False,
                 work: Optional[Work] = None) -> None:
        """`work` is what others have done for the same runtime, dims and options."""
        self._work = work or Work()
        self._progress = options.progress
        self._for_peak = options.budget is None
        self.context = PassContext(runtime,
                                   dims,
                                   options.level,
                                   options.skip_grads,
                                   options.recompute,
                                   options.max_overhead,
                                   options.cost,
                                   parallel=options.parallel,
                                   solved=self._work.solved)
        graph, before = self._work.met(graph, runtime, dims, None)
        self._start = Plan(graph, graph, before, before, loose=loose)
        # (id of the plan to start from, pass) -> that plan, which keeps its id, and the one it leads to
        self._steps: Dict[Tuple[int, NamedPass], Tuple[Plan, Plan]] = {}

    @cached_property
    def step_seconds(self) -> float:
        """Of the program as it is."""
        context = self.context
        return context.cost.region_seconds(self._start.graph, 0, context.dims)

    @cached_property
    def work_if_freed(self) -> Work:
        """What is done for the same program on a runtime that frees."""
        return Work()

    def may_help(self, sequence: Sequence[NamedPass]) -> bool:
        """False for what this runtime does by itself, for what the caller forbids, and for a given order that is
        known to need more."""
        flat = len(self._start.graph.regions) == 1
        if flat and FOR_INNER_REGIONS.intersection(sequence):
            return False
        if self.context.runtime.collects:
            if RELEASE in sequence:
                return False
            # In the main block it frees after the last use and works in place by itself: fewer names are no gain.
            if flat and {IN_PLACE, REUSE}.intersection(sequence):
                return False
            # In branches it frees, too; but what has fewer names leaves less to it when it is late.
            if self._for_peak and REUSE in sequence and not self._start.graph.in_loops():
                return False
        if SCHEDULE in sequence:
            # Where nothing is freed or shared, an order alone says when kernels allocate for themselves; and it isn't held, nor is
            # that of no plan.
            can = self.context.runtime.can
            matters = self.context.runtime.collects or any(
                s in AFTER_ORDER and s.needs <= can for s in sequence)
            return matters and not self.context.parallel
        given = self.run([s for s in sequence if s not in AFTER_ORDER])
        ordered = self._steps.get((id(given), SCHEDULE))
        return ordered is None or ordered[1].after.peak_bytes >= given.after.peak_bytes

    def grows_elsewhere(self, plan: Plan) -> bool:
        """Whether `plan` needs more than no plan where it was not made for, or where the collector is late."""
        start = self._start
        late = self.context.runtime.collects and (plan.after.lagging_peak_bytes
                                                  > start.before.lagging_peak_bytes)
        return late or self._work.grows_elsewhere(plan.graph, plan.after, start.graph, start.before)

    def run(self, sequence: Sequence[NamedPass], start: Optional[Plan] = None) -> Plan:
        """The plan after the passes of `sequence`, on top of `start`."""
        plan = start or self._start
        for step in (s for s in sequence if s.needs <= self.context.runtime.can):
            key = (id(plan), step)
            if key not in self._steps:
                self._steps[key] = (plan, self._step(plan, step))
            plan = self._steps[key][1]
        return plan

    def _step(self, start: Plan, step: NamedPass) -> Plan:
        done = self._work.done(start.graph, step, start.saved_seconds, start.extra_seconds,
                               lambda: self._rewritten(start, step))
        start.left_alone.update(done.left_alone)
        if done.graph is start.graph:
            return start
        saved = start.after.peak_bytes - done.after.peak_bytes
        return replace(start,
                       graph=done.graph,
                       after=done.after,
                       reuses=start.reuses + done.reuses,
                       left_alone=dict(start.left_alone),
                       savings=start.savings + [(step.name, saved)],
                       steps=start.steps + (step,),
                       saved_seconds=done.saved_seconds,
                       extra_seconds=done.spent_seconds)

    def _rewritten(self, start: Plan, step: NamedPass) -> Done:
        self._progress(f'planning: {step.name}')
        runtime, dims = self.context.runtime, self.context.dims
        context = replace(self.context,
                          known=self._work.known_of(start.graph, start.after, runtime),
                          given=start.graph,
                          reuses=[],
                          left_alone={},
                          saved_seconds=start.saved_seconds,
                          spent_seconds=start.extra_seconds)
        graph = step.rewrite(start.graph.fork(), context)
        if start.graph == graph:
            graph, after = start.graph, start.after
        else:
            graph, after = self._work.met(graph, runtime, dims, context.after)
        return Done(graph, after, context.reuses, context.left_alone, context.saved_seconds,
                    context.spent_seconds)
