"""The blocks of a program: what exists while each of them runs, before and after."""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, Tuple

from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, Region
from transpiler.planning import Plan
from transpiler.report.data import BlockReport
from transpiler.report.picture import op_text


def block_reports(plan: Plan, same: Mapping[int, int]) -> List[BlockReport]:
    """One row a block of the original that is not empty; `same` maps its region to the one that it became."""
    before, after = _peaks(plan.original, plan.before), _peaks(plan.graph, plan.after)
    rows = []
    for region in plan.original.regions:
        if region.id not in before:
            continue
        became = same.get(region.id, region.id)
        peak, op = before[region.id]
        rows.append(
            BlockReport(region.label or 'main', region.kind.value,
                        op_text(plan.original, region.op) if region.op >= 0 else '',
                        len(region.ops), plan.before.evaluate(region.trips), peak,
                        after.get(became, (0, -1))[0], op_text(plan.original, op),
                        _own(region, plan.before), _own(plan.graph.regions[became], plan.after)))
    return rows


def _peaks(graph: Graph, timeline: Timeline) -> Dict[int, Tuple[int, int]]:
    """By region: the most bytes while an op of it, or of a region within, runs; and that op."""
    peaks: Dict[int, Tuple[int, int]] = {}
    for point in timeline.points:
        for region in _enclosing(graph, graph.ops[point.op].region):
            if region not in peaks or point.bytes > peaks[region][0]:
                peaks[region] = (point.bytes, point.op)
    return peaks


def _enclosing(graph: Graph, region: int) -> Iterator[int]:
    while region >= 0:
        yield region
        region = graph.regions[region].parent


def _own(region: Region, timeline: Timeline) -> int:
    """The most that the variables declared in `region` need at one op of it."""
    changes = [0] * (len(region.ops) + 1)
    for lifetime in timeline.lifetimes.by_region[region.id].values():
        size = timeline.evaluate(lifetime.size)
        changes[lifetime.first] += size
        changes[lifetime.last + 1] -= size
    live = peak = 0
    for change in changes:
        live += change
        peak = max(peak, live)
    return peak
