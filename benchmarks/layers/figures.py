"""What was measured, as a table, and what of ours differs from what Paddle makes static."""
from __future__ import annotations

from statistics import median
from typing import List, Mapping, Optional, Tuple

from benchmarks.layers.training import Row

MIB = 2.0**20
PLAIN = 'to_static'
_HEAD = ('network', 'Paddle', 'traced', 'way', 'peak, MiB', 'kept, MiB', 'process, MiB', 'wall, ms',
         'wall of to_static', 'CPU, ms', 'CPU of to_static', 'losses, states')
_TIMES = ('wall', 'cpu')
Key = Tuple[str, str, str]


def table(rows: List[Row]) -> str:
    """In Markdown."""
    plain = _plain(rows)
    lines = [_HEAD, ('---',) * len(_HEAD)]
    lines += [_cells(each, plain.get(_key(each))) for each in rows]
    return '\n'.join('| {} |'.format(' | '.join(cells)) for cells in lines)


def conditions(rows: List[Row]) -> str:
    """When, and beside what."""
    dates = sorted({each['date'] for each in rows})
    loads = [load for each in rows for load in each['loads']]
    return f'{" to ".join(dict.fromkeys((dates[0], dates[-1])))}, load {min(loads):.1f} to {max(loads):.1f}'


def failures(rows: List[Row]) -> List[str]:
    """What of ours differs from what Paddle makes static."""
    plain = _plain(rows)
    said = [(each, _verdict(each, plain.get(_key(each)))) for each in rows]
    return [
        f'{each["network"]}, Paddle {each["paddle"]}, {each["mode"]}: {verdict} ({each["way"]})'
        for each, verdict in said
        if each['way'].startswith('ours') and verdict not in ('equal', '-')
    ]


def _plain(rows: List[Row]) -> Mapping[Key, Row]:
    """By network and so on: what the others are compared with. What is not traced is compared with the first."""
    plain = {_key(each): each for each in rows if each['way'] == PLAIN and not each['failure']}
    for (network, paddle, _), each in list(plain.items()):
        plain.setdefault((network, paddle, ''), each)
    return plain


def _key(row: Row) -> Key:
    return row['network'], row['paddle'], row['mode']


def _cells(row: Row, plain: Optional[Row]) -> Tuple[str, ...]:
    told = (row['network'], row['paddle'], row['mode'] or '-', row['way'])
    if row['failure']:
        return (*told, *['-'] * (len(_HEAD) - len(told) - 1), row['failure'])
    times = [cell for kind in _TIMES for cell in (_time(row[kind]), _share(row, plain, kind))]
    return (*told, f'{row["peak"] / MIB:.1f}', f'{row["kept"] / MIB:.1f}',
            f'{row["grown"] / MIB:.0f}', *times, _verdict(row, plain))


def _time(seen: List[float]) -> str:
    return f'{min(seen):.0f} / {median(seen):.0f}'


def _share(row: Row, plain: Optional[Row], kind: str) -> str:
    if plain is None:
        return '-'
    return ' / '.join(
        f'{100 * (least(row[kind]) / least(plain[kind]) - 1):+.0f} %' for least in (min, median))


def _verdict(row: Row, plain: Optional[Row]) -> str:
    if row['failure'] or plain is None:
        return row['failure'] or '-'
    differ = [
        what for what, key in (('losses', 'losses'), ('states', 'state')) if row[key] != plain[key]
    ]
    return f'{" and ".join(differ)} differ' if differ else 'equal'
