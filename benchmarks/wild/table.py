"""The table of scripts; memory in MiB (2**20 bytes) above resting."""
from __future__ import annotations

from typing import List, Optional, Sequence

from rich.markup import escape
from rich.table import Table

from benchmarks.wild.figures import Outcome, Row

MIB = 2.0**20
HEADS = ('group', 'script', 'untouched: ordered', 'first', 'later', 'process', 'optimized: ordered',
         'first', 'later', 'process', 'predicted', 'of measured', 'bytes')


def _mib(count: float) -> str:
    return f'{count / MIB:.2f}'


def _peaks(outcome: Outcome) -> List[str]:
    phase = outcome.largest()
    return [
        _mib(phase.ordered),
        _mib(phase.first),
        _mib(phase.later), f'{outcome.growth / MIB:.0f}'
    ]


def _predicted(bytes_: Optional[int]) -> str:
    return '' if bytes_ is None else _mib(bytes_)


def cells(row: Row) -> List[str]:
    """Of one script."""
    if row.plain is None or row.optimized is None:
        return [row.group, row.name] + [''] * (len(HEADS) - 3) + ['failed']
    ratio = f'{100 * row.worst():.1f} %' if row.optimized.foreseeable else 'by value'
    return [
        row.group, row.name, *_peaks(row.plain), *_peaks(row.optimized),
        _predicted(row.optimized.largest().predicted), ratio, ', '.join(row.faults()) or 'equal'
    ]


def table(rows: Sequence[Row]) -> Table:
    """All scripts."""
    result = Table(
        title='Peak memory above resting, MiB',
        caption='ordered, first, later: of the executor in program order, of the default '
        'one. process: what the process grew by in the default runs.')
    for at, name in enumerate(HEADS):
        result.add_column(name, justify='left' if at < 2 else 'right')
    for row in rows:
        result.add_row(*map(escape, cells(row)))
    return result


def markdown(rows: Sequence[Row]) -> str:
    """The same for the documentation."""
    lines = [HEADS, ['---'] * len(HEADS), *(cells(row) for row in rows)]
    return ''.join('| {} |\n'.format(' | '.join(line)) for line in lines)
