"""A MemoryReport from a plan."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional

from transpiler.analysis.runtime import RuntimeModel
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, RegionKind
from transpiler.passes.context import Reuse
from transpiler.planner import Plan
from transpiler.report.picture import doing_op, makers, pictures
from transpiler.report.memory_report import LoopReport, MemoryReport, PeakVariable, RecomputeReport, ReuseReport


def build_report(plan: Plan, model: RuntimeModel, dims: Mapping[str, int], assumed: List[str],
                 seconds: float, note: str) -> MemoryReport:
    before, after = pictures(plan)
    bound = Timeline(plan.graph.unshared(), RuntimeModel.IDEAL, dims)
    return MemoryReport(changed=plan.changed,
                        runtime=model.value,
                        peak_bytes_before=plan.before.peak_bytes,
                        peak_bytes_after=plan.after.peak_bytes,
                        lower_bound_bytes=bound.peak_bytes,
                        resting_bytes=resting_bytes(plan.graph, dims),
                        peak_before=repr(plan.before.peak_size()),
                        peak_after=repr(plan.after.peak_size()),
                        lower_bound=repr(bound.peak_size()),
                        peak_op=_op_text(plan.graph, plan.after.peak.op),
                        dims=dict(dims),
                        assumed=assumed,
                        peak_variables=_peak_variables(plan, dims),
                        reuses=[_reuse(plan.graph, r) for r in plan.reuses],
                        left_alone={
                            plan.original.values[v].name: reason
                            for v, reason in plan.left_alone.items()
                            if v < len(plan.original.values)
                        },
                        loops=_loops(plan, dims),
                        savings=plan.savings,
                        recompute=_recompute(plan),
                        planning_seconds=seconds,
                        note=note,
                        picture_before=before,
                        picture_after=after)


def _recompute(plan: Plan) -> Optional[RecomputeReport]:
    done = plan.recomputed
    if done is None:
        return None
    return RecomputeReport(done.clones, done.seconds, done.bound_seconds, done.step_seconds,
                           list(done.curve))


def resting_bytes(graph: Graph, dims: Mapping[str, int]) -> int:
    """Bytes of all persistable tensors."""
    resting = [v.size for v in graph.values if v.persistable and v.size is not None]
    return sum(size.evaluate(dims) for size in resting)


def _op_text(graph: Graph, op: int) -> str:
    if op < 0:
        return 'no operator'
    shown = doing_op(graph, op)
    return f'{shown.kind} (op {shown.id})' + (f', {shown.label}' if shown.label else '')


def _peak_variables(plan: Plan, dims: Mapping[str, int]) -> List[PeakVariable]:
    made_by = makers(plan.graph)
    rows: Dict[str, PeakVariable] = {}
    for resident in plan.after.residents(plan.after.peak.op):
        value = plan.graph.values[resident.storage]
        count = plan.after.evaluate(resident.count)
        size = plan.after.evaluate(resident.size) * count
        seen = rows.get(value.name)
        if seen is not None:
            count, size = count + seen.count, size + seen.bytes
        maker = _op_text(plan.graph, made_by.get(value.id, -1))
        rows[value.name] = PeakVariable(value.name, size, count, maker)
    return sorted(rows.values(), key=lambda r: -r.bytes)


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
