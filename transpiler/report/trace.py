"""A Chrome/Perfetto trace: one op is one microsecond; counters are bytes, slices are tenants of storages."""

from __future__ import annotations

from typing import Any, Dict, List

from transpiler.report.data import ReportData
from transpiler.report.picture import Picture


def trace(report: ReportData) -> Dict[str, Any]:
    """The trace as JSON-ready data: process 1 is the program before, process 2 after."""
    events: List[Dict[str, Any]] = []
    for process, (title, picture) in enumerate(
        (('before', report.picture_before), ('after', report.picture_after)), 1):
        events.append(_name('process_name', process, 0,
                            f'{title}: peak {picture.peak_bytes} bytes'))
        events += _counters(process, picture)
        events += _slices(process, picture)
    return {'traceEvents': events, 'displayTimeUnit': 'ms'}


def _name(kind: str, process: int, thread: int, name: str) -> Dict[str, Any]:
    return {'ph': 'M', 'name': kind, 'pid': process, 'tid': thread, 'args': {'name': name}}


def _counters(process: int, picture: Picture) -> List[Dict[str, Any]]:
    return [{
        'ph': 'C',
        'name': 'bytes above resting',
        'pid': process,
        'ts': step,
        'args': {
            'bytes': size
        }
    } for step, size in enumerate(picture.bytes)]


def _slices(process: int, picture: Picture) -> List[Dict[str, Any]]:
    """Ops on thread 0, each memory on a thread of its own."""
    events = [_name('thread_name', process, 0, 'ops')]
    events += [
        _slice(process, 0, op, step, 1, {'line': line})
        for step, (op, line) in enumerate(zip(picture.ops, picture.lines))
    ]
    threads: Dict[int, int] = {}
    titles: Dict[int, str] = {}
    for bar in picture.bars:
        thread = threads.setdefault(bar.memory, len(threads) + 1)
        titles[thread] = bar.storage
        arguments = {'bytes': bar.bytes, 'made by': bar.maker, 'line': bar.line, 'times': bar.count}
        events.append(
            _slice(process, thread, bar.name, bar.first, bar.last - bar.first + 1, arguments))
    events += [_name('thread_name', process, t, s) for t, s in titles.items()]
    return events


def _slice(process: int, thread: int, name: str, start: int, length: int,
           arguments: Dict[str, Any]) -> Dict[str, Any]:
    return {
        'ph': 'X',
        'name': name,
        'pid': process,
        'tid': thread,
        'ts': start,
        'dur': length,
        'args': arguments
    }
