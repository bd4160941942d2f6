"""A MemoryReport from a plan."""

from __future__ import annotations

import os
from dataclasses import replace
from types import MappingProxyType
from typing import Callable, Collection, Dict, List, Mapping, Optional, Tuple

from transpiler.analysis.cost import CostModel
from transpiler.analysis.makespan import clock_seconds
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import unknown_workspaces
from transpiler.ir import Graph, Op, RegionKind, ValueKind
from transpiler.passes.context import Reuse
from transpiler.passes.replay import is_choice
from transpiler.planning import Plan, PlanOptions
from transpiler.report.blocks import block_reports
from transpiler.report.data import LoopReport, OrderReport, PeakVariable, RecomputeReport, ReuseReport
from transpiler.report.explain import explain
from transpiler.report.levers import levers
from transpiler.report.memory_report import MemoryReport
from transpiler.report.missing_hints import budget_up_to, sizes_of
from transpiler.report.picture import makers, op_text, pictures
from transpiler.report.stored import StoredPlan
from transpiler.runtime import IDEAL, Runtime

# Regions keep their ids.
_SAME: Mapping[int, int] = MappingProxyType({})


def build_report(plan: Plan,
                 runtime: Runtime,
                 dims: Mapping[str, int],
                 assumed: List[str],
                 seconds: float,
                 note: str,
                 same_region: Mapping[int, int] = _SAME,
                 options: Optional[PlanOptions] = None) -> MemoryReport:
    """The report of a plan; `same_region` maps regions of its original to those that they became, `options` are those of the
    plan, if it has any."""
    bound = Timeline(plan.graph.unshared(), IDEAL, dims)
    kept = (plan.upkeep_before, plan.upkeep_after)
    cost = options.cost if options else CostModel()
    stored = StoredPlan(plan)
    if options is not None:  # what is asked later, nobody waits for
        options = replace(options, progress=PlanOptions().progress)
    return MemoryReport(changed=plan.changed,
                        runtime=runtime.name,
                        peak_bytes_before=plan.before.peak_bytes,
                        peak_bytes_after=plan.after.peak_bytes,
                        lower_bound_bytes=bound.peak_bytes,
                        resting_bytes=resting_bytes(plan.graph, dims),
                        peak_before=repr(plan.before.peak_size()),
                        peak_after=repr(plan.after.peak_size()),
                        lower_bound=repr(bound.peak_size()),
                        peak_op=op_text(plan.graph, plan.after.peak.op),
                        dims=dict(dims),
                        assumed=assumed,
                        sizes=sizes_of(plan, assumed, cost),
                        peak_variables=_peak_variables(plan.graph, plan.after),
                        peak_op_before=op_text(plan.original, plan.before.peak.op),
                        peak_variables_before=_peak_variables(plan.original, plan.before),
                        reuses=[_reuse(plan.graph, r) for r in plan.reuses],
                        left_alone={
                            plan.original.values[v].name: reason
                            for v, reason in plan.left_alone.items()
                            if v < len(plan.original.values)
                        },
                        loops=_loops(plan, dims),
                        blocks=block_reports(plan, same_region),
                        savings=plan.savings,
                        recompute=_recompute(plan, stored),
                        late_peak_bytes=_late_peaks(plan),
                        needed_bytes=plan.needed_bytes,
                        sure_bytes=plan.sure_bytes,
                        budget_bytes=plan.budget_bytes,
                        upkeep_bytes=(kept[0].bytes, kept[1].bytes),
                        upkeep_seconds=(kept[0].seconds, kept[1].seconds),
                        segments=len(plan.segments),
                        unsegmented=plan.unsegmented,
                        unknown_workspaces=unknown_workspaces(plan.graph),
                        unknown_sizes=_unknown_sizes(plan),
                        bounded_sizes=_bounded_sizes(plan),
                        bounded_layouts=any(op.facts.converts for op in plan.graph.region_ops(0)),
                        grows_elsewhere=plan.grows_elsewhere,
                        planning_seconds=seconds,
                        note=note,
                        draw=stored.later(pictures),
                        explained=stored.later(explain),
                        weighed=stored.later(levers, runtime, dict(dims), options),
                        ordered=stored.later(_order, runtime.threads, dict(dims), cost),
                        kept_to=stored.later(budget_up_to, dict(dims), assumed,
                                             options.budget if options else None))


def _recompute(plan: Plan, stored: StoredPlan) -> Optional[RecomputeReport]:
    """One account of all that runs again, whichever pass did it."""
    done, inner = plan.recomputed, _inner_clones(plan.graph)
    if done is None and not inner:
        return None
    return RecomputeReport(clones=(done.clones if done else 0) + inner,
                           extra_seconds=(done.seconds if done else 0.0) + plan.extra_seconds,
                           least=stored.least_seconds,
                           step_seconds=plan.step_seconds,
                           curve=list(done.curve) if done else [],
                           inner_clones=inner,
                           inner_seconds=plan.extra_seconds,
                           saved_seconds=plan.saved_seconds)


def _order(plan: Plan, threads: int, dims: Mapping[str, int],
           cost: CostModel) -> Optional[OrderReport]:
    """The processors of this machine are meant, as many of them as the runtime has threads for."""
    processors = min(threads, len(os.sched_getaffinity(0)))
    if not plan.held or plan.served or processors < 2:
        return None
    graph = plan.original

    def op_seconds(op: Op, of_region: Callable[[int], float]) -> float:
        return cost.whole_seconds(graph, op, dims, of_region)

    def by_clock(held: Collection[int]) -> float:
        return clock_seconds(graph, held, op_seconds, processors)

    return OrderReport(processors,
                       step_seconds=by_clock(range(len(graph.regions))),
                       clock_seconds=by_clock(()),
                       held_seconds=by_clock(plan.held))


def _inner_clones(graph: Graph) -> int:
    """Ops of loops and branches that run again, and random ones whose result is chosen again."""
    return sum(
        op.region > 0 and (op.origin not in (None, op.id) or is_choice(op)) for op in graph.walk())


def _bounded_sizes(plan: Plan) -> List[str]:
    """Names of what some operator makes, and takes as many of as the data asks for: rows of a table, or what is picked."""
    made = (plan.graph.values[v] for op in plan.graph.walk() for v in op.writes())
    return sorted({
        v.name
        for v in made
        if v.kind is ValueKind.SELECTED_ROWS or (v.size is None and v.at_most is not None)
    })


def _unknown_sizes(plan: Plan) -> List[str]:
    """Names of what some operator makes, and no figure has."""
    values, made = plan.graph.values, {v for op in plan.graph.walk() for v in op.writes()}
    return sorted({values[v].name for v in plan.after.lifetimes.unsized if v in made})


def _late_peaks(plan: Plan) -> Optional[Tuple[int, int]]:
    if not plan.frees_in_time:
        return None
    return plan.before.lagging_peak_bytes, plan.after.lagging_peak_bytes


def resting_bytes(graph: Graph, dims: Mapping[str, int]) -> int:
    """Bytes of all persistable tensors."""
    resting = [v.size for v in graph.values if v.persistable and v.size is not None]
    return sum(size.evaluate(dims) for size in resting)


def _peak_variables(graph: Graph, timeline: Timeline) -> List[PeakVariable]:
    made_by = makers(graph)
    rows: Dict[str, PeakVariable] = {}
    for resident in timeline.residents(timeline.peak.op):
        value = graph.values[resident.storage]
        count = timeline.evaluate(resident.count)
        size = timeline.evaluate(resident.size) * count
        seen = rows.get(value.name)
        if seen is not None:
            count, size = count + seen.count, size + seen.bytes
        maker = 'fed' if value.fed else op_text(graph, made_by.get(value.id, -1))
        rows[value.name] = PeakVariable(value.name, size, count, maker)
    return sorted((r for r in rows.values() if r.bytes), key=lambda r: -r.bytes)


def _reuse(graph: Graph, reuse: Reuse) -> ReuseReport:
    return ReuseReport(graph.values[reuse.value].name, graph.values[reuse.storage].name, reuse.tier,
                       reuse.waste_bytes)


def _loops(plan: Plan, dims: Mapping[str, int]) -> List[LoopReport]:
    rows = []
    for region in plan.original.regions:
        if region.kind is RegionKind.LOOP and region.keeps_scopes:
            before, after = (t.kept_per_trip(region.id) for t in (plan.before, plan.after))
            rows.append(
                LoopReport(region.label, region.trips.evaluate(dims), before.evaluate(dims),
                           after.evaluate(dims), repr(before * region.trips),
                           repr(after * region.trips)))
    return rows
