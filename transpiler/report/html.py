"""The picture as one HTML page: no network, no library; `page.js` draws, `page.css` says how it looks."""

from __future__ import annotations

import html
import json
import pkgutil
import re
from itertools import groupby
from types import MappingProxyType
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from transpiler.plain import printable
from transpiler.report.data import ReportData, human
from transpiler.report.lines import short_lines
from transpiler.report.picture import GROUPS, Bar, Picture

_LARGEST = 10


def page(report: ReportData, title: str) -> str:
    """The page of a report that carries pictures."""
    sides = (('Before', report.picture_before), ('After', report.picture_after))
    return _PAGE.format(
        title=html.escape(printable(title)),
        style=_file('page.css'),
        script=_file('page.js'),
        summary=html.escape(_summary(report)),
        remarks=html.escape(_remarks(report)),
        legend=''.join(_LEGEND.format(group=g, label=_LABELS.get(g, g)) for g in _drawn(report)),
        sections=''.join(_section(name, picture) for name, picture in sides),
        data=_embedded(_data(report)))


def _drawn(report: ReportData) -> List[str]:
    """The groups of which there is something in either picture."""
    there = {b.group for p in (report.picture_before, report.picture_after) for b in p.bars}
    return [group for group in GROUPS if group in there]


def _file(name: str) -> str:
    return (pkgutil.get_data('transpiler.report', name) or b'').decode()


def _summary(report: ReportData) -> str:
    return (f'Peak above resting: {human(report.peak_bytes_before)} before, '
            f'{human(report.peak_bytes_after)} after; lower bound for this order '
            f'{human(report.lower_bound_bytes)}; resting {human(report.resting_bytes)}; '
            f'{report.runtime} runtime.')


def _remarks(report: ReportData) -> str:
    heap = '' if report.heap is None else f'{report.heap}. '
    return heap + report.note


def _section(name: str, picture: Picture) -> str:
    return _SECTION.format(
        name=name,
        key=name.lower(),
        peak=picture.peak_bytes,
        peak_text=human(picture.peak_bytes),
        peak_op=html.escape(picture.ops[picture.peak] if picture.ops else 'no operator'),
        rows=''.join(_row(b) for b in picture.at_peak()[:_LARGEST]))


def _row(bar: Bar) -> str:
    size = human(bar.bytes).replace(' ', '&nbsp;')
    trips = f' ({bar.count}&nbsp;trips)' if bar.count > 1 else ''
    made = ', '.join(filter(None, (bar.maker, short_lines(bar.line))))
    return _ROW.format(group=bar.group,
                       name=_breakable(bar.name),
                       bytes=size + trips,
                       made=_breakable(made))


def _breakable(text: str) -> str:
    """`text` as HTML, which a narrow window breaks between the parts of names rather than within them."""
    return re.sub(r'(?<=\w)([._@/])(?=\w)', r'\1<wbr>', html.escape(printable(text)))


def _embedded(data: Dict[str, Any]) -> str:
    """JSON in which a script element sees no tag and no comment, of which one can begin that never ends."""
    return json.dumps(data, separators=(',', ':')).replace('<', '\\u003c')


class _Numbers:
    """Texts by number: most are there many times."""

    def __init__(self) -> None:
        self.of: Dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.of.setdefault(printable(text), len(self.of))

    @property
    def texts(self) -> List[str]:
        return list(self.of)


def _data(report: ReportData) -> Dict[str, Any]:
    """All that `page.js` draws: columns of the bars, bytes and kinds by step."""
    texts, kinds = _Numbers(), _Numbers()
    names, callers = _Numbers(), _Stacks(texts)
    sides = {
        key: _side(picture, texts, kinds, names, callers)
        for key, picture in (('before', report.picture_before), ('after', report.picture_after))
    }
    return {
        'groups': list(GROUPS),
        'sides': sides,
        'resting': report.resting_bytes,
        'callers': callers.lists,
        'texts': texts.texts,
        'kinds': kinds.texts,
        'names': names.texts
    }


class _Stacks:
    """Frames around the user's own by number, as numbers of texts: few, where lines are many."""

    def __init__(self, texts: _Numbers) -> None:
        self._texts = texts
        self.of: Dict[Tuple[str, ...], int] = {}

    def __call__(self, stack: Tuple[str, ...]) -> int:
        return self.of.setdefault(stack, len(self.of))

    @property
    def lists(self) -> List[List[int]]:
        return [[self._texts(frame) for frame in stack] for stack in self.of]


def _changes(each: Sequence[str]) -> Iterator[Tuple[int, str]]:
    """Where another text begins, and which."""
    before = None
    for at, text in enumerate(each):
        if text != before:
            yield at, text
        before = text


def _packed(column: Sequence[int]) -> List[Any]:
    """By what each is more than the one before it; what comes several times on end as [number, times]."""
    packed: List[Any] = []
    differences = (now - before for now, before in zip(column, (0, *column)))
    for more, run in groupby(differences):
        times = sum(1 for _ in run)
        packed += [more] * times if times < 3 else [[more, times]]
    return packed


def _side(picture: Picture, texts: _Numbers, kinds: _Numbers, names: _Numbers,
          callers: _Stacks) -> Dict[str, Any]:
    bars = picture.bars
    line_at = dict(enumerate(picture.lines)).get
    columns = {
        'bytes': picture.bytes,
        'kinds': [kinds(kind) for kind in picture.kinds],
        'opLines': [texts(line) for line in picture.lines],
        'opCallers': [callers(stack[1:]) for stack in picture.stacks],
        'names': [names(b.name) for b in bars],
        'storages': [names(b.storage) for b in bars],
        'first': [b.first for b in bars],
        'last': [b.last for b in bars],
        'sizes': [b.bytes for b in bars],
        'counts': [b.count for b in bars],
        'owner': [b.memory for b in bars],
        'group': [GROUPS.index(b.group) for b in bars],
        'makers': [b.made_at for b in bars]
    }
    return {
        'columns': {
            name: _packed(column) for name, column in columns.items()
        },
        'scopes': [[step, texts(scope)] for step, scope in _changes(picture.scopes)],
        'lines': {
            str(i): texts(b.line) for i, b in enumerate(bars) if b.line != line_at(b.made_at)
        },
        'bands': [{
            'label':
                printable(loop.label if loop.trips < 1 else f'{loop.label}: {loop.trips} trips'),
            'first':
                loop.first,
            'last':
                loop.last
        } for loop in picture.loops]
    }


_LABELS = MappingProxyType({
    'kept': 'kept: left by other trips of loops, for their gradients',
    'other': 'made by no operator'
})
_LEGEND = '<li><i data-group="{group}"></i>{label}</li>'

_ROW = (
    '<tr><td><i data-group="{group}"></i>{name}</td><td>{bytes}</td><td class="group">{group}</td>'
    '<td>{made}</td></tr>')

_SECTION = '''
<section id="{key}" data-peak="{peak}">
<h2>{name}: peak {peak_text} at {peak_op}</h2>
<div class="plot"><canvas id="{key}-area" role="img" aria-label="live bytes over steps"></canvas></div>
<div class="detail" id="{key}-detail"></div>
<h3>The ten largest at the peak</h3>
<div class="scroll"><table id="{key}-largest">
<tr><th>variable</th><th>bytes</th><th class="group">group</th><th>made by</th></tr>
{rows}</table></div>
<h3>Storages: variables in one lane share memory</h3>
<div class="lanes plot"><canvas id="{key}-lanes" role="img" aria-label="storages over steps"></canvas><div></div></div>
</section>'''

_PAGE = '''<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Memory of {title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>{style}</style></head><body>
<h1>Memory of {title}</h1>
<p id="summary">{summary}</p>
<p class="quiet">{remarks}</p>
<div class="bar"><span class="sides"><button data-side="before">Before</button><button data-side="after">After</button
><button data-side="both">Both</button></span>
<label><input id="resting" type="checkbox"> with resting memory</label>
<label>Find a variable: <input id="search" type="search"></label> <span id="found"></span></div>
<ul class="legend">{legend}<li><i data-group="resting"></i>parameters and state (resting)</li></ul>
<p class="quiet">Both pictures have one scale. The wheel or two fingers zoom, dragging moves, a click shows details, a double click shows
everything again; shift and wheel zoom the bytes. A loop is drawn once: its fullest trip, with what the earlier trips have left. Of
several branches the one that needs most is drawn.</p>
<div class="scroll hits"><table id="hits"></table></div>
<div id="sides" class="two">
{sections}
</div>
<div id="tip"></div>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body></html>
'''
