"""What a report says, before anyone draws or prints it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from transpiler.report.picture import Picture


@dataclass(frozen=True)
class PeakVariable:
    """A variable that exists at the peak. `bytes` is its size times `count` (trips)."""

    name: str
    bytes: int
    count: int
    made_by: str


@dataclass(frozen=True)
class ReuseReport:
    """`variable` took over the memory of `storage`; `waste_bytes` of it stay unused."""

    variable: str
    storage: str
    tier: str
    waste_bytes: int


@dataclass(frozen=True)
class LoopReport:
    """What a training loop keeps for its gradient. Bytes are for the hinted dims, polynomials for all."""

    block: str
    trips: int
    bytes_per_trip_before: int
    bytes_per_trip_after: int
    total_before: str
    total_after: str


@dataclass(frozen=True)
class BlockReport:
    """A block of the program. `peak_*` is the most that exists while it runs, outside of it included; `own_*` is the
    most that its own variables need in one trip. `run_by` is the operator that runs it, `peak_op` is where the program
    as it was needs most while the block runs.
    """

    block: str
    kind: str
    run_by: str
    ops: int
    trips: int
    peak_bytes_before: int
    peak_bytes_after: int
    peak_op: str
    own_bytes_before: int
    own_bytes_after: int


@dataclass(frozen=True)
class RecomputeReport:
    """Forward ops that run again in the backward part. Times are seconds of a step of the program as it was, predicted.

    `clones` stand in the main block and in loops and branches; `inner_clones` and `inner_seconds` are those of loops and
    branches alone. `saved_seconds` is what loops no longer copy. No plan of the peak that was chosen takes less extra
    time in the main block than `least_extra_seconds` in this order, so the gap to it bounds what a better search could
    gain. `curve`: all plans that recompute in the main block that there were to choose from, (peak bytes, extra seconds).
    """

    clones: int
    extra_seconds: float
    least: Callable[[], float] = field(repr=False, compare=False)
    step_seconds: float
    curve: List[Tuple[int, float]]
    inner_clones: int = 0
    inner_seconds: float = 0.0
    saved_seconds: float = 0.0

    @cached_property
    def least_extra_seconds(self) -> float:
        """Worked out when somebody asks: it takes a library that is large and seldom needed otherwise."""
        return self.least()

    def to_dict(self) -> Dict[str, Any]:
        """Its fields and properties by name."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del found['least']
        return {**found, 'least_extra_seconds': self.least_extra_seconds}

    def __str__(self) -> str:
        parts = [
            f'Computed again: {self.clones} operators, '
            f'{self._share(self.extra_seconds)} more time predicted'
        ]
        if self.inner_clones:
            parts.append(f', in loops and branches {self.inner_clones} of them, '
                         f'{self._share(self.inner_seconds)}')
        if self.saved_seconds:
            parts.append(
                f'; copies that loops no longer make take {self._share(self.saved_seconds)} off')
        least = self._share(self.least_extra_seconds)
        if self.clones > self.inner_clones and float(least[:-1]):
            parts.append(
                f' (in this order no plan for this peak can take less than {least} more in the main block)'
            )
        return ''.join(parts)

    def _share(self, seconds: float) -> str:
        return f'{seconds / self.step_seconds if self.step_seconds else 0.0:.1%}'


@dataclass(frozen=True)
class OrderReport:
    """What it takes to hold the order of the main block, and of loops and branches. Seconds of a step of the program as it was,
    predicted: of one processor, and of the clock if `processors` are idle: if ops that do not need each other run side by side
    everywhere, and if they do not where the order is held."""

    processors: int
    step_seconds: float
    clock_seconds: float
    held_seconds: float

    @property
    def share(self) -> float:
        """Of the untouched step's time by the clock, which a held order takes more; time to compute again comes on top."""
        return self.held_seconds / self.clock_seconds - 1 if self.clock_seconds else 0.0

    def __str__(self) -> str:
        return (
            f'The order is held, so operators no longer run side by side: where {self.processors} processors are idle, a step takes about '
            f'{self.share:.1%} longer by the clock; the processors\' time stays the same')


@dataclass(frozen=True)
class PipelineReport:
    """Of a section of a pipeline, of which all other figures are those of one small batch: of how many there is something at a time, and the
    bytes that each of the others keeps for its backward part meanwhile, before and after."""

    under_way: int
    kept_bytes: Tuple[int, int]

    def others_bytes(self) -> Tuple[int, int]:
        """Of all others together."""
        before, after = self.kept_bytes
        return (self.under_way - 1) * before, (self.under_way - 1) * after

    def __str__(self) -> str:
        before, after = map(human, self.kept_bytes)
        return (
            f'What runs is a section of a pipeline; figures are of one small batch. Of up to {self.under_way} there is '
            f'something at a time: each of the others keeps {before} for its backward part before, {after} after'
        )


@dataclass(frozen=True)
class SizeReport:
    """One of the sizes that a plan was chosen for, as hints are missing. `dims` are those without a hint, peaks bytes above resting,
    `overhead` the extra time of a step as a share of that of the program as it was, all predicted."""

    dims: Dict[str, int]
    peak_bytes_before: int
    peak_bytes_after: int
    overhead: float

    def __str__(self) -> str:
        given = ', '.join(f'{dim} = {size}' for dim, size in self.dims.items())
        more = f', {self.overhead:.1%} more time' if self.overhead > 0 else ''
        return f'{given}: from {human(self.peak_bytes_before)} to {human(self.peak_bytes_after)}{more}'


@dataclass(frozen=True)
class HeapReport:
    """What was set for the heap of the process: bytes, or a number of arenas, by the names of malloc.h, and of chunks in the
    caches of threads, by the name of glibc's tunable; or why nothing was.

    `between_runs`: what is free is given back between the runs of the program, too.
    """

    settings: Dict[str, int]
    why_not: str = ''
    between_runs: bool = False

    def __str__(self) -> str:
        if self.why_not:
            return f'Heap of the process: left as it is ({self.why_not})'
        values = ', '.join(f'{name} = {value if value < 1024 else human(value)}'
                           for name, value in self.settings.items())
        how = 'what is free is given back between runs, MKL\'s buffers, too; ' if self.between_runs else ''
        return f'Heap of the process: {how}glibc: {values} (heap=False leaves it as it is)'


@dataclass(frozen=True)
class RunsReport:
    """Of the runs of one program. Peaks are bytes of tensors above resting, of the first run and the least of the later ones;
    `growth_bytes` is what the process grew by in all runs, None where it was not there for them alone; `cpu_seconds` the processor
    time of the fastest later run.
    """

    first_peak_bytes: int
    later_peak_bytes: int
    growth_bytes: Optional[int]
    cpu_seconds: float


@dataclass(frozen=True)
class MeasuredReport:
    """What `verify_runs` has shown. `equal`: what was fetched (of a layer: outputs and gradients) and all `states` parameters and
    states are the same, to the last bit.

    `optimized` is None where nothing was changed. `note` says why results that differ say nothing.
    """

    runs: int
    untouched: RunsReport
    optimized: Optional[RunsReport] = None
    equal: bool = True
    states: int = 0
    note: str = ''


def _empty() -> Tuple[Picture, Picture]:
    return Picture(), Picture()


def _nothing(name: str) -> str:
    return f'{name}: nothing is known of it'


def _no_order() -> None:
    return None


_ASKED = ('draw', 'explained', 'weighed', 'ordered', 'kept_to')  # worked out when somebody asks


@dataclass
class ReportData:
    """What was predicted, done, and left alone. All sizes are bytes above resting memory.

    Resting memory is what exists between runs: parameters, optimizer state and other persistables. It is not
    counted in the peaks. What kernels allocate for themselves is not counted either, but in `needed_bytes`.
    `peak_op` and `peak_variables` are those of the program after, `..._before` those of the program as it was.
    `late_peak_bytes` are the peaks before and after if the runtime's collector frees late, None where that was not looked at.
    `unknown_workspaces` are the kinds of operators whose kernels nobody has asked what they allocate for themselves: no
    figure has that, and no budget bears it. `unknown_sizes` are the variables of which nobody knows before a run how large
    they can become; the same holds for what they have beyond what they have at the least. `bounded_sizes` are those that are
    counted as large as the data of a run can make them: the figures are upper bounds there. So they are if `bounded_layouts`: what kernels in layouts of their own (oneDNN) exchange with
    others counts as held to the end of the first run.
    `grows_elsewhere`: a run with inputs of other sizes, on another way through the branches, or with a collector that is late,
    needs more than the untouched program; no other plan keeps to the budget.
    `upkeep_bytes` and `upkeep_seconds` are estimates, before and after, of what the executor keeps for the ops besides tensors, and of
    the processor time that its first run takes to build that. `segments` is the number of blocks that the main block was cut
    into, `unsegmented` says why there are none, where they were asked for.
    `order` says what a held order takes by the clock where processors are idle.
    `assumed` names the symbolic dims for which no hint was given: for them the figures are for `dims`. `sizes` are those that the plan
    was chosen for then; with a budget it is one plan for `dims`, and `budget_up_to` says how large they can be for it to be kept,
    all of them in the same proportion. Both are empty where hints are given.
    """

    changed: bool
    runtime: str
    peak_bytes_before: int
    peak_bytes_after: int
    lower_bound_bytes: int
    resting_bytes: int
    peak_before: str
    peak_after: str
    lower_bound: str
    peak_op: str
    dims: Dict[str, int]
    assumed: List[str]
    sizes: List[SizeReport] = field(default_factory=list)
    peak_variables: List[PeakVariable] = field(default_factory=list)
    reuses: List[ReuseReport] = field(default_factory=list)
    left_alone: Dict[str, str] = field(default_factory=dict)
    loops: List[LoopReport] = field(default_factory=list)
    blocks: List[BlockReport] = field(default_factory=list)
    peak_op_before: str = ''
    peak_variables_before: List[PeakVariable] = field(default_factory=list)
    savings: List[Tuple[str, int]] = field(default_factory=list)
    recompute: Optional[RecomputeReport] = None
    late_peak_bytes: Optional[Tuple[int, int]] = None
    needed_bytes: int = 0  # the peak after, with what kernels are known to allocate for themselves
    sure_bytes: int = 0  # the same, with what is left to a collector that may never come: no run needs more
    budget_bytes: int = 0  # the same of this plan if it released what it can: what a budget must bear
    upkeep_bytes: Tuple[int, int] = (0, 0)
    upkeep_seconds: Tuple[float, float] = (0.0, 0.0)
    segments: int = 0
    unsegmented: str = ''
    unknown_workspaces: List[str] = field(default_factory=list)
    unknown_sizes: List[str] = field(default_factory=list)
    bounded_sizes: List[str] = field(default_factory=list)
    bounded_layouts: bool = False
    grows_elsewhere: bool = False
    planning_seconds: float = 0.0
    note: str = ''
    pipeline: Optional[PipelineReport] = None  # where a section of one runs
    heap: Optional[HeapReport] = None  # None for programs in files: other processes run them
    measured: Optional[MeasuredReport] = None  # by verify_runs
    draw: Callable[[], Tuple[Picture, Picture]] = field(default=_empty, repr=False, compare=False)
    explained: Callable[[str], str] = field(default=_nothing, repr=False, compare=False)
    weighed: Callable[[], Sequence[Any]] = field(default=tuple, repr=False, compare=False)
    ordered: Callable[[], Optional[OrderReport]] = field(default=_no_order,
                                                         repr=False,
                                                         compare=False)
    kept_to: Callable[[], Dict[str, int]] = field(default=dict, repr=False, compare=False)

    @cached_property
    def pictures(self) -> Tuple[Picture, Picture]:
        """The program before and after. Drawn when somebody looks: most reports are only printed."""
        return self.draw()

    @cached_property
    def order(self) -> Optional[OrderReport]:
        """None where no order is held."""
        return self.ordered()

    @cached_property
    def budget_up_to(self) -> Dict[str, int]:
        """By dim without a hint: up to how large the budget is kept; empty where all have hints, or there is no budget."""
        return self.kept_to()

    @property
    def picture_before(self) -> Picture:
        return self.pictures[0]

    @property
    def picture_after(self) -> Picture:
        return self.pictures[1]

    def to_dict(self) -> Dict[str, Any]:
        """The same as plain data, ready for JSON; without the pictures."""
        fields = (f.name for f in dataclasses.fields(self) if f.name not in _ASKED)
        return {name: _plain(getattr(self, name)) for name in (*fields, 'order', 'budget_up_to')}


_UNITS = ('B', 'KiB', 'MiB', 'GiB')


def human(size: int) -> str:
    """`size` bytes for a person to read."""
    unit = unit_of(size)
    return f'{in_unit(size, unit)} {unit}'


def unit_of(size: int) -> str:
    """The unit in which a person reads `size` bytes."""
    fits = (unit for power, unit in enumerate(_UNITS, 1) if abs(size) < 1024**power)
    return next(fits, _UNITS[-1])


def in_unit(size: int, unit: str) -> str:
    """The number alone: `size` bytes in `unit`, for columns that name their unit once."""
    power = _UNITS.index(unit)
    return f'{size / 1024**power:.2f}' if power else str(size)


def _plain(value: Any) -> Any:
    if isinstance(value, RecomputeReport):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return dataclasses.asdict(value)
    return [_plain(v) for v in value] if isinstance(value, list) else value
