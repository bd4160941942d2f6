"""A ReportData for a terminal."""

from __future__ import annotations

import io
import shutil
import textwrap
from typing import Any, Dict, Iterable, List, Optional, Sequence

from rich.console import Console
from rich.table import Table

from transpiler.plain import and_more, printable
from transpiler.report.data import MeasuredReport, ReportData, PeakVariable, human, in_unit, unit_of
from transpiler.report.lines import short_lines

_NARROWEST, _WIDEST = 80, 120
_MOST_ROWS = 10
_LEAST_SHARE = 0.005  # of a step, that is worth a line
_SHOWN_UPKEEP = 1 << 20


def after(report: ReportData) -> str:
    """What was done, and what makes up the peak now."""
    return _text([
        _summary(report),
        *measured_tables(report.measured, [report.peak_bytes_before, report.needed_bytes]),
        *_blocks(report), *_loops(report),
        *_peak(f'Largest at the peak, which is at {short_lines(report.peak_op)}',
               report.peak_variables)
    ],
                 _done(report) + _footnotes(report))


def before(report: ReportData) -> str:
    """What makes up the peak as it is, and what `optimize` would bring."""
    op, variables = report.peak_op_before, report.peak_variables_before
    return _text([
        _summary(report), *_peak(f'Largest at the peak, which is at {short_lines(op)}', variables),
        *_blocks(report), *_loops(report), *_peak(
            f'After optimize, the peak is at {short_lines(report.peak_op)}', report.peak_variables)
    ], [_promise(report), *_done(report), *_footnotes(report)])


def _text(tables: Iterable[Table], lines: Iterable[str]) -> str:
    console = plain_console(file=io.StringIO(), width=text_width())
    for table in tables:
        console.print(table)
    for line in lines:
        console.print('\n'.join(map(printable, line.split('\n'))))
    return console.file.getvalue().rstrip()


def text_width() -> int:
    """Columns of the terminal; 80 in logs and pipes, which nobody can ask."""
    return min(_WIDEST, max(_NARROWEST, shutil.get_terminal_size((_NARROWEST, 24)).columns))


def wrapped(text: str) -> str:
    """`text` no wider than the tables beside it; what follows a line's first is indented."""
    return '\n'.join('\n'.join(
        textwrap.wrap(line,
                      text_width(),
                      subsequent_indent='    ',
                      break_on_hyphens=False,
                      break_long_words=False)) for line in text.split('\n'))


def reasons(levers: Sequence[Any]) -> str:
    """What would lower the peak, line by line."""
    if not levers:
        return 'Nothing is known that would lower the peak further.'
    return '\n'.join([
        'What would lower the peak most:', *(f'{i:2}. {each}' for i, each in enumerate(levers, 1))
    ])


def plain_console(**options: Any) -> Console:
    """A console that reads nothing into names, neither markup nor emojis."""
    return Console(markup=False, emoji=False, highlight=False, **options)


def plain_table(title: str) -> Table:
    """To be filled by `add_row`."""
    return Table(title=printable(title), title_justify='left')


def add_row(table: Table, *cells: str) -> None:
    """Adds a row whose cells may be names."""
    table.add_row(*map(printable, cells))


def _share(report: ReportData) -> float:
    return 1 - report.peak_bytes_after / report.peak_bytes_before if report.peak_bytes_before else 0


def _promise(report: ReportData) -> str:
    if not report.changed:
        return 'optimize would change nothing.'
    return (f'optimize would bring the peak from {human(report.peak_bytes_before)} to '
            f'{human(report.peak_bytes_after)}, {_share(report):.0%} less:')


def _summary(report: ReportData) -> Table:
    table = plain_table(f'Memory of the program ({report.runtime} runtime)')
    for column in ('', 'bytes', 'for every size'):
        table.add_column(column, justify='right' if column == 'bytes' else 'left')
    add_row(table, 'peak above resting, before', human(report.peak_bytes_before),
            report.peak_before)
    add_row(table, f'peak above resting, after ({_share(report):.0%} less)',
            human(report.peak_bytes_after), report.peak_after)
    if report.needed_bytes > report.peak_bytes_after:
        add_row(table, 'the same, with workspaces of kernels', human(report.needed_bytes), '')
    add_row(table, 'lower bound for this order', human(report.lower_bound_bytes),
            report.lower_bound)
    add_row(table, 'resting (parameters and state)', human(report.resting_bytes), '')
    if max(report.upkeep_bytes) >= _SHOWN_UPKEEP:
        for when, bytes_ in zip(('before', 'after'), report.upkeep_bytes):
            add_row(table, f'kept by the executor for the ops (estimate), {when}', human(bytes_),
                    '')
    return table


def measured_tables(found: Optional[MeasuredReport], predicted: Sequence[int]) -> List[Table]:
    """What was measured, if anything was, beside what was predicted for before and after, if that is known."""
    if found is None:
        return []
    here = found.untouched.growth_bytes is None
    where = 'in this process' if here else 'each program in a process of its own'
    table = plain_table(f'Measured in {_counted(found.runs, "run")}, {where}')
    sides = [found.untouched] + ([found.optimized] if found.optimized else [])
    for column in ('', 'as it was', 'optimized')[:1 + len(sides)]:
        table.add_column(column, justify='right' if column else 'left')
    rows = [('tensors, predicted', list(map(human, predicted))),
            ('tensors, first run', [human(side.first_peak_bytes) for side in sides]),
            ('tensors, least of later runs', [human(side.later_peak_bytes) for side in sides]),
            ('the process grew by', [human(side.growth_bytes or 0) for side in sides]),
            ('processor time of a run', [f'{side.cpu_seconds:.3f} s' for side in sides])]
    told = (bool(predicted), True, found.runs > 1, not here, True)
    for name, cells in (row for row, is_told in zip(rows, told) if is_told):
        add_row(table, name, *cells[:len(sides)])
    return [table]


def measured_line(found: Optional[MeasuredReport], what: str) -> List[str]:
    """Whether results are equal, if two programs ran."""
    if found is None or found.optimized is None:
        return []
    states = _counted(found.states, 'parameter')
    return [found.note or f'Measured {what} and {states} or states: equal to the last bit']


def _blocks(report: ReportData) -> List[Table]:
    """A program of one block is told by the summary."""
    if len(report.blocks) < 2:
        return []
    unit = unit_of(max(row.peak_bytes_before for row in report.blocks))
    table = plain_table(
        f'Blocks: the peak while each runs, and what its own variables need, in {unit}')
    for column in ('block', 'trips', 'peak before', 'after', 'own before', 'after', 'peak is at'):
        left = column in ('block', 'peak is at')
        table.add_column(column, justify='left' if left else 'right', overflow='fold')
    told = [row for row in report.blocks if row.own_bytes_before or row.own_bytes_after]
    for row in told:
        name = row.block if row.kind == 'block' else f'{row.block}, {row.kind}'
        sizes = (row.peak_bytes_before, row.peak_bytes_after, row.own_bytes_before,
                 row.own_bytes_after)
        add_row(table, name, str(row.trips), *(in_unit(size, unit) for size in sizes),
                row.peak_op.split(', ')[0])
    if len(told) < len(report.blocks):
        table.caption = (f'and {_counted(len(report.blocks) - len(told), "block")} without '
                         'variables of their own')
    return [table]


def _loops(report: ReportData) -> List[Table]:
    if not report.loops:
        return []
    table = plain_table('Training loops: kept per trip for the gradient')
    for column in ('block', 'trips', 'before', 'after', 'total after'):
        table.add_column(column)
    for loop in report.loops:
        add_row(table, loop.block, str(loop.trips), human(loop.bytes_per_trip_before),
                human(loop.bytes_per_trip_after), loop.total_after)
    return [table]


def _peak(title: str, variables: List[PeakVariable]) -> List[Table]:
    if not variables:
        return []
    table = plain_table(title)
    for column in ('variable', 'bytes', 'times', 'made by'):
        table.add_column(column, justify='right' if column in ('bytes', 'times') else 'left')
    for row in variables[:_MOST_ROWS]:
        add_row(table, row.name, human(row.bytes), str(row.count), short_lines(row.made_by))
    return [table]


def _done(report: ReportData) -> List[str]:
    """What was done, and what each step brought."""
    lines = []
    tiers: Dict[str, List[int]] = {}
    for reuse in report.reuses:
        tiers.setdefault(reuse.tier, []).append(reuse.waste_bytes)
    if tiers:
        parts = (f'{len(wastes)} {"" if tier == "in-place" else "tier "}{tier}'
                 f' ({human(sum(wastes))} unused)' for tier, wastes in sorted(tiers.items()))
        lines.append('Storages taken over: ' + ', '.join(parts))
    if report.recompute is not None:
        lines.append(str(report.recompute))
    lines += order_line(report)
    lines += [
        f'{name}: {human(abs(saved))} {"less" if saved > 0 else "more"}'
        for name, saved in report.savings
        if saved
    ]
    if report.segments:
        lines.append(
            f'The main block runs in {_counted(report.segments, "segment")}: the executor keeps nothing for '
            'pairs of their ops')
    if report.late_peak_bytes is not None:
        late, now = map(human, report.late_peak_bytes)
        lines.append(
            f'Released by the program, not by the collector, which may be late: up to {late} before, {now} after'
        )
    return lines


def order_line(report: ReportData) -> List[str]:
    """What a held order takes by the clock, where that is worth a line."""
    worth = report.order is not None and report.order.share >= _LEAST_SHARE
    return [str(report.order)] if worth else []


def _counted(number: int, what: str) -> str:
    return f'{number} {what}' + ('' if number == 1 else 's')


def size_lines(report: ReportData) -> List[str]:
    """What is said where hints are missing: the sizes that figures are for, and what is known of others."""
    if not report.assumed:
        return []
    given = ', '.join(f'{d} = {report.dims[d]}' for d in report.assumed)
    lines = [f'No hint was given for some sizes; the figures assume {given}.']
    if report.sizes:
        lines += ['It was planned for a range of them:', *(f'  {each}' for each in report.sizes)]
    if report.budget_up_to:
        up_to = ', '.join(f'{dim} = {size}' for dim, size in report.budget_up_to.items())
        lines.append(f'The budget is kept up to {up_to}, by the model, and no further.')
    return lines


def _footnotes(report: ReportData) -> List[str]:
    lines = []
    if report.left_alone:
        counts: Dict[str, int] = {}
        for reason in report.left_alone.values():
            counts[reason] = counts.get(reason, 0) + 1
        lines.append('Left alone: ' + ', '.join(f'{n} {reason}' for reason, n in counts.items()))
    lines += size_lines(report)
    if report.unknown_workspaces:
        lines.append(
            'Not known, and in no figure: what the kernels of these allocate for themselves: ' +
            ', '.join(report.unknown_workspaces))
    if report.unknown_sizes:
        lines.append(
            'Not known before a run, and in no figure: how large these become, beyond what they have at the least: '
            + and_more(report.unknown_sizes, _MOST_ROWS))
    if report.unknown_workspaces or report.unknown_sizes:
        lines.append('A budget is kept only if all that fits into what is left of it.')
    if report.bounded_sizes:
        lines.append('Counted as large as the data of a run can make them: ' +
                     and_more(report.bounded_sizes, _MOST_ROWS))
    if report.bounded_layouts:
        lines.append(
            'What kernels in layouts of their own exchange with others counts as held to the end of the first run.'
        )
    if report.grows_elsewhere:
        lines.append(
            'For other sizes of the inputs, other ways through its branches, or a collector that is late, it needs more than no '
            'plan would; no other plan keeps to the budget.')
    lines += measured_line(report.measured, 'results')
    if report.pipeline is not None:
        lines.append(str(report.pipeline))
    if report.heap is not None:
        lines.append(str(report.heap))
    if report.unsegmented:
        lines.append(f'Not in segments: {report.unsegmented}.')
    if report.note:
        lines.append(report.note)
    return lines
