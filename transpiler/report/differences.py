"""Two programs side by side: what they need, which ops and variables one has and the other has not."""

from __future__ import annotations

import io
from collections import Counter
from typing import Callable, Collection, Dict, List, Tuple

from rich.table import Table

from transpiler.ir import Graph
from transpiler.planning import Plan
from transpiler.report.data import ReportData, human
from transpiler.report.text import add_row, plain_console, plain_table, text_width

_MOST_ROWS = 10


def differences(first: Tuple[str, ReportData, Plan], second: Tuple[str, ReportData, Plan]) -> str:
    """Tables of what differs between two programs, each with the name it has in the headings, its report and its plan."""
    titles = first[0], second[0]
    tables = [_figures(titles, first[1], second[1])]
    graphs = first[2].original, second[2].original
    kinds = [Counter(op.kind for op in graph.walk()) for graph in graphs]
    tables += _counted('Operators', titles, *kinds)
    tables += _variables(titles, _sizes(first[2]), _sizes(second[2]))
    console = plain_console(file=io.StringIO(), width=text_width())
    for table in tables:
        console.print(table)
    if len(tables) == 1:
        console.print('The same operators and variables, with the same sizes.')
    return console.file.getvalue().rstrip()


def _table(title: str, columns: Tuple[str, ...]) -> Table:
    table = plain_table(title)
    for at, column in enumerate(columns):
        table.add_column(column, justify='right' if at else 'left', overflow='fold')
    return table


def _figures(titles: Tuple[str, str], first: ReportData, second: ReportData) -> Table:
    table = _table('What they need, above resting but for the last row', ('', *titles, 'change'))
    for what, read in (('peak as it is', 'peak_bytes_before'), ('peak after optimize',
                                                                'peak_bytes_after'),
                       ('lower bound for this order', 'lower_bound_bytes'), ('resting',
                                                                             'resting_bytes')):
        sizes = int(getattr(first, read)), int(getattr(second, read))
        add_row(table, what, *map(human, sizes), _change(*sizes))
    return table


def _change(before: int, after: int) -> str:
    sign = '+' if after >= before else '-'
    share = f' ({abs(after - before) / before:.0%})' if before and after != before else ''
    return f'{sign}{human(abs(after - before))}{share}' if after != before else 'none'


def _counted(title: str, titles: Tuple[str, str], first: Dict[str, int],
             second: Dict[str, int]) -> List[Table]:

    def cells(kind: str) -> Tuple[str, ...]:
        counts = first.get(kind, 0), second.get(kind, 0)
        return (*map(str, counts), f'{counts[1] - counts[0]:+d}')

    changed = {k for k in {*first, *second} if first.get(k, 0) != second.get(k, 0)}
    columns = (title.lower(), *titles, 'change')
    return _changed(f'{title} whose numbers differ', columns, changed, first, second, cells)


def _variables(titles: Tuple[str, str], first: Dict[str, int], second: Dict[str,
                                                                            int]) -> List[Table]:

    def cells(name: str) -> Tuple[str, ...]:
        sizes = (human(each[name]) if name in each else '-' for each in (first, second))
        return (*sizes, _change(first.get(name, 0), second.get(name, 0)))

    changed = {n for n in {*first, *second} if first.get(n, -1) != second.get(n, -1)}
    return _changed('Variables that one has and the other has not, or of other sizes',
                    ('variable', *titles, 'change'), changed, first, second, cells)


def _changed(title: str, columns: Tuple[str, ...], names: Collection[str], first: Dict[str, int],
             second: Dict[str, int], cells: Callable[[str], Tuple[str, ...]]) -> List[Table]:
    """A table of `names`, those that differ most first, with `cells` behind each; none if there are no names."""
    if not names:
        return []
    table = _table(title, columns)
    ranked = sorted(names, key=lambda n: (-abs(first.get(n, 0) - second.get(n, 0)), n))
    for name in ranked[:_MOST_ROWS]:
        add_row(table, name, *cells(name))
    if len(ranked) > _MOST_ROWS:
        add_row(table, f'and {len(ranked) - _MOST_ROWS} more')
    return [table]


def _sizes(plan: Plan) -> Dict[str, int]:
    """Bytes by name, of what has a size."""
    graph: Graph = plan.original
    return {v.name: plan.before.evaluate(v.bound) for v in graph.values if v.bound is not None}
