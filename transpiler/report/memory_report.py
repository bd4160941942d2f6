"""MemoryReport: the answer of memory_optimize and release_memory."""

from __future__ import annotations

import dataclasses
import html
import io
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from rich.console import Console
from rich.table import Table

from transpiler.report.picture import Picture

_WIDTH = 110
_MOST_ROWS = 10


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
class RecomputeReport:
    """Forward ops that run again in the backward part of the main block. Times are seconds of a step, predicted.

    No plan of the peak that was chosen takes less extra time than `least_extra_seconds` in this order, so the gap to it
    bounds what a better search could gain. `curve`: all plans there were to choose from, (peak bytes, extra seconds).
    """

    clones: int
    extra_seconds: float
    least_extra_seconds: float
    step_seconds: float
    curve: List[Tuple[int, float]]

    def __str__(self) -> str:
        share = self.extra_seconds / self.step_seconds if self.step_seconds else 0.0
        least = self.least_extra_seconds / self.step_seconds if self.step_seconds else 0.0
        return (f'Computed again: {self.clones} operators, {share:.1%} more time predicted '
                f'(no plan for this peak can take less than {least:.1%} more)')


@dataclass
class MemoryReport:
    """What was predicted, done, and left alone. All sizes are bytes above resting memory.

    Resting memory is what exists between runs: parameters, optimizer state and other persistables. It is not
    counted in the peaks. What kernels allocate for themselves is not counted either.
    `assumed` names the symbolic dims for which no hint was given, and the values used to rank choices.
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
    peak_variables: List[PeakVariable] = field(default_factory=list)
    reuses: List[ReuseReport] = field(default_factory=list)
    left_alone: Dict[str, str] = field(default_factory=dict)
    loops: List[LoopReport] = field(default_factory=list)
    savings: List[Tuple[str, int]] = field(default_factory=list)
    recompute: Optional[RecomputeReport] = None
    planning_seconds: float = 0.0
    note: str = ''
    picture_before: Picture = field(default_factory=Picture, repr=False, compare=False)
    picture_after: Picture = field(default_factory=Picture, repr=False, compare=False)

    def to_dict(self) -> Dict[str, Any]:
        """The same as plain data, ready for JSON; without the pictures."""
        fields = (f.name for f in dataclasses.fields(self) if not f.name.startswith('picture_'))
        return {name: _plain(getattr(self, name)) for name in fields}

    def plot(self) -> Any:
        """Live bytes over ops, before and after: a `matplotlib.figure.Figure`."""
        from transpiler.report.figures import figure
        return figure(self.picture_before, self.picture_after)

    def to_html(self, title: str = 'the program') -> str:
        """The picture as one page that needs no network."""
        from transpiler.report.html import page
        return page(self, title)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        text = io.BytesIO()
        self.plot().savefig(text, format='svg')
        return f'<pre>{html.escape(str(self))}</pre>' + text.getvalue().decode()

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=_WIDTH)
        console.print(self._summary())
        if self.loops:
            console.print(self._loop_table())
        if self.peak_variables:
            console.print(self._peak_table())
        for line in self._footnotes():
            console.print(line, markup=False, highlight=False)
        return console.file.getvalue().rstrip()

    def _summary(self) -> Table:
        table = Table(title=f'Memory of the program ({self.runtime} runtime)', title_justify='left')
        for column in ('', 'bytes', 'for every size'):
            table.add_column(column, justify='right' if column == 'bytes' else 'left')
        saved = 1 - self.peak_bytes_after / self.peak_bytes_before if self.peak_bytes_before else 0
        table.add_row('peak above resting, before', human(self.peak_bytes_before), self.peak_before)
        table.add_row(f'peak above resting, after ({saved:.0%} less)', human(self.peak_bytes_after),
                      self.peak_after)
        table.add_row('lower bound for this order', human(self.lower_bound_bytes), self.lower_bound)
        table.add_row('resting (parameters and state)', human(self.resting_bytes), '')
        return table

    def _loop_table(self) -> Table:
        table = Table(title='Training loops: kept per trip for the gradient', title_justify='left')
        for column in ('block', 'trips', 'before', 'after', 'total after'):
            table.add_column(column)
        for loop in self.loops:
            table.add_row(loop.block, str(loop.trips), human(loop.bytes_per_trip_before),
                          human(loop.bytes_per_trip_after), loop.total_after)
        return table

    def _peak_table(self) -> Table:
        table = Table(title=f'Largest at the peak, which is at {self.peak_op}',
                      title_justify='left')
        for column in ('variable', 'bytes', 'times', 'made by'):
            table.add_column(column, justify='right' if column in ('bytes', 'times') else 'left')
        for row in self.peak_variables[:_MOST_ROWS]:
            table.add_row(row.name, human(row.bytes), str(row.count), row.made_by)
        return table

    def _footnotes(self) -> List[str]:
        lines = []
        tiers: Dict[str, List[int]] = {}
        for reuse in self.reuses:
            tiers.setdefault(reuse.tier, []).append(reuse.waste_bytes)
        if tiers:
            parts = (f'{len(wastes)} {"" if tier == "in-place" else "tier "}{tier}'
                     f' ({human(sum(wastes))} unused)' for tier, wastes in sorted(tiers.items()))
            lines.append('Storages taken over: ' + ', '.join(parts))
        if self.recompute is not None:
            lines.append(str(self.recompute))
        lines += [f'{name}: {human(saved)} less' for name, saved in self.savings if saved]
        if self.left_alone:
            counts: Dict[str, int] = {}
            for reason in self.left_alone.values():
                counts[reason] = counts.get(reason, 0) + 1
            lines.append('Left alone: ' +
                         ', '.join(f'{n} {reason}' for reason, n in counts.items()))
        if self.assumed:
            given = ', '.join(f'{d} = {self.dims[d]}' for d in self.assumed)
            lines.append(f'No hint was given for some sizes; the figures assume {given}.')
        if self.note:
            lines.append(self.note)
        return lines


def human(size: int) -> str:
    """`size` bytes for a person to read."""
    amount = float(size)
    for unit in ('B', 'KiB', 'MiB', 'GiB'):
        if abs(amount) < 1024 or unit == 'GiB':
            return f'{size} B' if unit == 'B' else f'{amount:.2f} {unit}'
        amount /= 1024
    return str(size)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return dataclasses.asdict(value)
    return [_plain(v) for v in value] if isinstance(value, list) else value
