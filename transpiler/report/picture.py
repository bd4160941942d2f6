"""What a picture of memory is drawn from: bytes over ops, and bars of storages. Plain data, ready for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.owners import layers_of_ops
from transpiler.analysis.timeline import Timeline
from transpiler.ir import MEMORY_KINDS, Graph, Op, Region
from transpiler.planning import Plan

# What bars stand for, from the bottom up.
GROUPS = ('kept', 'input', 'activation', 'recomputed', 'gradient', 'optimizer', 'other')


@dataclass(frozen=True)
class Bar:
    """One tenant of a storage, from step `first` to step `last`, both included.

    `bytes` are those of its storage, times `count`: more than 1 for what a loop keeps of each trip. `group` is one of GROUPS,
    by what the variable is for, the same before and after. `memory` says whose the bytes are: bars of one memory that meet at
    a step are counted once. What the running trip has and what others have left are two memories.
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
    memory: int = -1


@dataclass(frozen=True)
class Loop:
    """The steps of a loop's body, drawn once for all its trips."""

    label: str
    first: int
    last: int
    trips: int


@dataclass(frozen=True)
class Picture:
    """A program at run time: step i is op i in the order of execution; `bytes` are above resting.

    `stacks` are the frames of the call that made each op, the user's own first; `scopes` the scope of names that it is in, as 'encoder/layer_1',
    or, in a program without any, the layer by the names of its parameters; '' for none.

    At each step the memories of the bars that are there add up to `bytes`.
    """

    bytes: List[int] = field(default_factory=list)
    ops: List[str] = field(default_factory=list)
    lines: List[str] = field(default_factory=list)
    stacks: List[Tuple[str, ...]] = field(default_factory=list)
    scopes: List[str] = field(default_factory=list)
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
        return sorted(self.at(self.peak), key=lambda b: -b.bytes)

    def at(self, step: int) -> List[Bar]:
        """What exists at `step`: one bar of each memory."""
        return list({b.memory: b for b in self.bars if b.first <= step <= b.last}.values())


class _Run(NamedTuple):
    """An allocation, or `count` of it that trips have left, is there from step `first` to `last`."""

    lifetime: Lifetime
    left: bool
    first: int
    last: int
    count: int


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


def computed_again(graph: Graph) -> Set[int]:
    """Ids of the ops that compute what others compute, too: not parts of a sum, or of what makes two results."""
    return {op.id for op in graph.walk() if op.again}


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


def scopes_of(graph: Graph, ops: Sequence[Op]) -> List[str]:
    """The scope of each op; see Picture. What a plan adds has that of the op before it."""
    found: List[str] = []
    told = _told_scopes(graph)
    for op in ops:
        found.append(found[-1] if op.origin is None and found else told(op))
    return found


def _told_scopes(graph: Graph) -> Callable[[Op], str]:
    if any(op.site.scope for op in graph.ops if not op.backward):
        return lambda op: op.site.scope
    holders = {
        v.name: (v.name.rsplit('.', 1)[0],) for v in graph.values if v.parameter and '.' in v.name
    }
    layers = layers_of_ops(graph, holders, ())
    return lambda op: layers.get(op.id, '')


class _Drawing:

    def __init__(self, graph: Graph, timeline: Timeline) -> None:
        self._graph = graph
        self._timeline = timeline
        self._step = {point.op: i for i, point in enumerate(timeline.points)}
        self._makers = makers(graph)
        self._again = computed_again(graph)
        self._copied = {inner: outer for r in graph.regions for outer, inner in r.arguments}
        self._members = graph.by_storage()
        self._touched = self._touched_steps()
        self._lifetimes = {
            storage: lifetime for own in timeline.lifetimes.by_region.values()
            for storage, lifetime in own.items()
        }
        # Storages of the main block by the position at which they begin and end.
        self._beginning: Dict[int, List[int]] = {}
        self._ending: Dict[int, List[int]] = {}
        for storage, lifetime in timeline.lifetimes.by_region[0].items():
            self._beginning.setdefault(lifetime.first, []).append(storage)
            self._ending.setdefault(lifetime.last, []).append(storage)

    def picture(self) -> Picture:
        points = self._timeline.points
        ops = [doing_op(self._graph, p.op) for p in points]
        bars = [bar for run in self._runs() for bar in self._tenants(run)]
        return Picture([p.bytes for p in points],
                       [f'{op.kind} (step {i})' for i, op in enumerate(ops)],
                       [op.label or '' for op in ops], [op.site.frames for op in ops],
                       scopes_of(self._graph, ops), [op.kind for op in ops], bars, self._loops())

    def _touched_steps(self) -> Dict[int, Tuple[int, int]]:
        """First and last step at which an op names each value."""
        found: Dict[int, Tuple[int, int]] = {}
        for op, step in self._step.items():
            for value in self._graph.ops[op].reads() + self._graph.ops[op].writes():
                first, last = found.get(value, (step, step))
                found[value] = min(first, step), max(last, step)
        return found

    def _runs(self) -> Iterator[_Run]:
        """What exists from which step to which, as the timeline counts it."""
        main = self._graph.regions[0]
        if len(self._graph.regions) > 1 or not self._timeline.counts_as_cells(main.id):
            yield from self._runs_step_by_step()
            return
        for lifetime in self._timeline.lifetimes.by_region[main.id].values():
            first, last = (self._step[main.ops[at]] for at in (lifetime.first, lifetime.last))
            yield _Run(lifetime, False, first, last, 1)

    def _runs_step_by_step(self) -> Iterator[_Run]:
        """The same where lifetimes alone do not say it: trips leave memory, and of branches only one is taken."""
        points = self._timeline.points
        begun: Dict[Tuple[int, bool],
                    Tuple[int, int]] = {}  # the step at which each began, and its count
        for step in range(len(points) + 1):
            if self._goes_on(step):
                gone, new = self._main_changes(points[step].op)
            else:
                new = self._there(points[step].op) if step < len(points) else {}
                gone = [key for key, (_, count) in begun.items() if new.get(key) != count]
            for key in gone:
                first, count = begun.pop(key)
                yield _Run(self._lifetimes[key[0]], key[1], first, step - 1, count)
            for key, count in new.items():
                begun.setdefault(key, (step, count))

    def _goes_on(self, step: int) -> bool:
        """Whether from the step before to this one only lifetimes of the main block begin and end. To ask what exists at each
        of thousands of steps takes long."""
        around = self._timeline.points[max(0, step - 1):step + 1]
        ops = [self._graph.ops[point.op] for point in around]
        plain = len(ops) == 2 and not any(op.region or op.regions for op in ops)
        return plain and self._timeline.counts_as_cells(0)

    def _main_changes(self, op: int) -> Tuple[List[Tuple[int, bool]], Dict[Tuple[int, bool], int]]:
        """What is gone and what is new when `op` of the main block runs."""
        at = self._timeline.lifetimes.position[op]
        return ([(s, False) for s in self._ending.get(at - 1, ())], {
            (s, False): 1 for s in self._beginning.get(at, ())
        })

    def _there(self, op: int) -> Dict[Tuple[int, bool], int]:
        """How many of each allocation exist while `op` runs, by storage and whether other trips left them."""
        counts: Dict[int, int] = {}
        for resident in self._timeline.residents(op):
            count = self._timeline.evaluate(resident.count)
            counts[resident.storage] = counts.get(resident.storage, 0) + count
        found = {}
        for storage, count in counts.items():
            own = int(count == 1 or count > 1 and self._lives(storage, op))
            found[storage, False], found[storage, True] = own, count - own
        return {key: count for key, count in found.items() if count}

    def _lives(self, storage: int, op: int) -> bool:
        """Whether the trip that runs `op` has `storage`."""
        home = self._graph.values[storage].region
        while op >= 0 and self._graph.ops[op].region != home:
            op = self._graph.regions[self._graph.ops[op].region].op
        lifetime = self._lifetimes[storage]
        return op >= 0 and lifetime.first <= self._timeline.lifetimes.position[op] <= lifetime.last

    def _end(self, region: Region) -> int:
        """The last step of `region`, which has ops, and of the regions that its last op runs."""
        op = region.ops[-1]
        step = self._step[op]
        for inner in self._graph.ops[op].regions:
            if self._graph.regions[inner].ops:
                step = max(step, self._end(self._graph.regions[inner]))
        return step

    def _tenants(self, run: _Run) -> Iterator[Bar]:
        """One bar for each value that holds the allocation in turn; the last one keeps it to the end."""
        storages = run.lifetime.storages
        if run.left:
            yield self._bar(storages[-1], run)
            return
        values = [v for s in storages for v in self._members[s] if v in self._touched]
        values = sorted(values or [storages[0]], key=lambda v: self._touched.get(v, (0, 0)))
        starts = [run.first, *(self._touched[v][0] for v in values[1:])]
        for value, start, following in zip(values, starts, [*starts[1:], run.last + 1]):
            end = max(start, following - 1)
            if start <= run.last and end >= run.first:
                cut = run._replace(first=max(start, run.first), last=min(end, run.last))
                yield self._bar(value, cut)

    def _bar(self, value: int, run: _Run) -> Bar:
        values, storage = self._graph.values, run.lifetime.storages[0]
        source = self._source(value)
        maker = self._graph.ops[self._makers[source]] if source in self._makers else None
        return Bar(values[value].name, values[storage].name, run.first, run.last,
                   self._timeline.evaluate(run.lifetime.size) * run.count, run.count,
                   f'{maker.kind} (step {self._step.get(maker.id, 0)})' if maker else 'outside',
                   (maker.label or '') if maker else '', self._group(source, maker, run.left),
                   self._step.get(maker.id, -1) if maker else -1, 2 * storage + run.left)

    def _source(self, value: int) -> int:
        """What `value` is a copy of, which a loop makes for its trips, if nobody else makes it."""
        while value not in self._makers and value in self._copied:
            value = self._copied[value]
        return value

    def _group(self, value: int, maker: Optional[Op], left: bool) -> str:
        values = self._graph.values
        if left:
            return 'kept'
        if values[value].fed or maker is None:
            return 'input' if values[value].fed else 'other'
        if maker.id in self._again:
            return 'recomputed'
        if not maker.backward:
            return 'activation'
        updates = any(values[v].parameter for v in maker.writes())
        return 'optimizer' if updates else 'gradient'

    def _loops(self) -> List[Loop]:
        return [
            Loop(f'{r.kind.value} {r.label}', self._step[r.ops[0]], self._end(r),
                 self._timeline.evaluate(r.trips))
            for r in self._graph.regions
            if r.kind.is_loop and r.ops and r.ops[0] in self._step
        ]
