"""What a picture of memory is drawn from: bytes over ops, and bars of storages. Plain data, ready for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.timeline import Timeline
from transpiler.ir import MEMORY_KINDS, Graph, Op, Region, RegionKind
from transpiler.planning import Plan

# What bars stand for, from the bottom up.
GROUPS = ('kept', 'input', 'activation', 'recomputed', 'gradient', 'optimizer', 'other')
_LOOPS = (RegionKind.LOOP, RegionKind.LOOP_GRADIENT)


@dataclass(frozen=True)
class Bar:
    """One tenant of a storage, from step `first` to step `last`, both included.

    `bytes` are those of its storage, times `count`: more than 1 for what a loop keeps of each trip. `group` is one of GROUPS,
    by what the variable is for, the same before and after.
    """

    name: str
    storage: str
    first: int
    last: int
    bytes: int
    count: int
    maker: str
    line: str
    group: str = 'other'
    made_at: int = -1  # the step of its maker


@dataclass(frozen=True)
class Loop:
    """The steps of a loop's body, drawn once for all its trips."""

    label: str
    first: int
    last: int
    trips: int


@dataclass(frozen=True)
class Picture:
    """A program at run time: step i is op i in the order of execution; `bytes` are above resting."""

    bytes: List[int] = field(default_factory=list)
    ops: List[str] = field(default_factory=list)
    lines: List[str] = field(default_factory=list)
    kinds: List[str] = field(default_factory=list)
    bars: List[Bar] = field(default_factory=list)
    loops: List[Loop] = field(default_factory=list)

    @property
    def peak(self) -> int:
        """The step of the peak; -1 for an empty program."""
        return self.bytes.index(max(self.bytes)) if self.bytes else -1

    @property
    def peak_bytes(self) -> int:
        return max(self.bytes, default=0)

    def at_peak(self) -> List[Bar]:
        """What exists at the peak, the largest first, each storage once."""
        found: Dict[Tuple[str, int], Bar] = {}
        peak = self.peak
        for bar in self.bars:
            if bar.first <= peak <= bar.last:
                found[bar.storage, bar.count] = bar
        return sorted(found.values(), key=lambda b: -b.bytes)


def pictures(plan: Plan) -> Tuple[Picture, Picture]:
    """The program before and after."""
    return _Drawing(plan.original, plan.before).picture(), _Drawing(plan.graph,
                                                                    plan.after).picture()


def makers(graph: Graph) -> Dict[int, int]:
    """The op that writes each value first; the one inside a region rather than the one that runs the region."""
    ops = list(graph.walk())
    moving = [op for op in ops if op.kind in MEMORY_KINDS]  # they compute nothing
    plain, running = ([
        op for op in ops if bool(op.regions) is runs and op.kind not in MEMORY_KINDS
    ] for runs in (False, True))
    return {v: op.id for op in moving[::-1] + running[::-1] + plain[::-1] for v in op.writes()}


def doing_op(graph: Graph, op: int) -> Op:
    """`op`, or the only op of the region that it runs: what a reader knows it by."""
    found = graph.ops[op]
    while len(found.regions) == 1 and len(graph.regions[found.regions[0]].ops) == 1:
        found = graph.ops[graph.regions[found.regions[0]].ops[0]]
    return found


def op_text(graph: Graph, op: int) -> str:
    """`op` as a reader knows it: kind, number, source line."""
    if op < 0:
        return 'no operator'
    shown = doing_op(graph, op)
    return f'{shown.kind} (op {shown.id})' + (f', {shown.label}' if shown.label else '')


class _Drawing:

    def __init__(self, graph: Graph, timeline: Timeline) -> None:
        self._graph = graph
        self._timeline = timeline
        self._step = {point.op: i for i, point in enumerate(timeline.points)}
        self._makers = makers(graph)
        self._copied = {inner: outer for r in graph.regions for outer, inner in r.arguments}
        self._members: Dict[int, List[int]] = {}
        for value in graph.values:
            self._members.setdefault(value.storage, []).append(value.id)
        self._touched = self._touched_steps()

    def picture(self) -> Picture:
        points = self._timeline.points
        ops = [doing_op(self._graph, p.op) for p in points]
        bars: List[Bar] = []
        for region in self._graph.regions:
            if region.ops and region.ops[0] in self._step:
                bars.extend(self._bars_of(region))
        return Picture([p.bytes for p in points],
                       [f'{op.kind} (step {i})' for i, op in enumerate(ops)],
                       [op.label or '' for op in ops], [op.kind for op in ops], bars, self._loops())

    def _touched_steps(self) -> Dict[int, Tuple[int, int]]:
        """First and last step at which an op names each value."""
        found: Dict[int, Tuple[int, int]] = {}
        for op, step in self._step.items():
            for value in self._graph.ops[op].reads() + self._graph.ops[op].writes():
                first, last = found.get(value, (step, step))
                found[value] = min(first, step), max(last, step)
        return found

    def _bars_of(self, region: Region) -> List[Bar]:
        bars = []
        for lifetime in self._timeline.lifetimes.by_region[region.id].values():
            first = self._step[region.ops[lifetime.first]]
            last = self._end(region, lifetime.last)
            bars.extend(self._tenants(lifetime, first, last))
            if lifetime.kept and region.keeps_scopes:
                bars.extend(self._kept(region, lifetime))
        return bars

    def _end(self, region: Region, position: int) -> int:
        """The last step of the op at `position`, the ops of its regions included."""
        op = region.ops[min(position, len(region.ops) - 1)]
        step = self._step[op]
        for inner in self._graph.ops[op].regions:
            if self._graph.regions[inner].ops:
                step = max(step, self._end(self._graph.regions[inner], len(self._graph.ops)))
        return step

    def _tenants(self, lifetime: Lifetime, first: int, last: int) -> List[Bar]:
        """One bar for each value that holds the allocation in turn; the last one keeps it to the end."""
        values = [v for s in lifetime.storages for v in self._members[s] if v in self._touched]
        values = sorted(values or [lifetime.storages[0]],
                        key=lambda v: self._touched.get(v, (0, 0)))
        bars = []
        for i, value in enumerate(values):
            start = first if i == 0 else max(first, min(last, self._touched[value][0]))
            end = last if i + 1 == len(values) else max(start, self._touched[values[i + 1]][0] - 1)
            bars.append(self._bar(value, lifetime, start, end, 1))
        return bars

    def _kept(self, region: Region, lifetime: Lifetime) -> List[Bar]:
        """What the trips leave for the gradient."""
        gradient = next((r.op for r in self._graph.regions if r.forward == region.id), -1)
        start = self._end(region, len(region.ops)) + 1
        trips = self._timeline.evaluate(region.trips)
        if gradient < 0 or gradient not in self._step:
            return []
        parent = self._graph.regions[self._graph.ops[gradient].region]
        end = self._end(parent, self._timeline.lifetimes.position[gradient])
        return [self._bar(lifetime.storages[-1], lifetime, start, max(start, end), trips)]

    def _bar(self, value: int, lifetime: Lifetime, first: int, last: int, count: int) -> Bar:
        values = self._graph.values
        source = self._source(value)
        maker = self._graph.ops[self._makers[source]] if source in self._makers else None
        return Bar(values[value].name, values[lifetime.storages[0]].name, first, last,
                   self._timeline.evaluate(lifetime.size) * count, count,
                   f'{maker.kind} (step {self._step.get(maker.id, 0)})' if maker else 'outside',
                   (maker.label or '') if maker else '', self._group(source, maker, count),
                   self._step.get(maker.id, -1) if maker else -1)

    def _source(self, value: int) -> int:
        """What `value` is a copy of, which a loop makes for its trips, if nobody else makes it."""
        while value not in self._makers and value in self._copied:
            value = self._copied[value]
        return value

    def _group(self, value: int, maker: Optional[Op], count: int) -> str:
        values = self._graph.values
        if count > 1:
            return 'kept'
        if values[value].fed or maker is None:
            return 'input' if values[value].fed else 'other'
        if maker.origin not in (None, maker.id):
            return 'recomputed'
        if not maker.backward:
            return 'activation'
        updates = any(values[v].parameter for v in maker.writes())
        return 'optimizer' if updates else 'gradient'

    def _loops(self) -> List[Loop]:
        return [
            Loop(f'{r.kind.value} {r.label}', self._step[r.ops[0]], self._end(r, len(r.ops)),
                 self._timeline.evaluate(r.trips))
            for r in self._graph.regions
            if r.kind in _LOOPS and r.ops and r.ops[0] in self._step
        ]
