"""The picture as one HTML page: no network, plotly's script inside."""

from __future__ import annotations

import html
import json
from typing import Any, Dict, List

from transpiler.plain import printable
from transpiler.report.data import ReportData, human
from transpiler.report.picture import Bar, Picture

_LAYERS = 12  # variables that the stacked area shows one by one, the largest at the peak
_LANES = 60  # storages that are drawn as lanes, the largest
_LARGEST = 10
_MOST_STEPS = 1000  # of the stacked area; the line above it has them all
_COLOURS = ('#4c78a8', '#f58518', '#54a24b', '#b79a20', '#e45756', '#72b7b2', '#d67195', '#9d755d',
            '#79706e', '#b279a2', '#83bcb6', '#eeca3b')


def page(report: ReportData, title: str) -> str:
    """The page of a report that carries pictures."""
    from plotly.offline import get_plotlyjs
    sides = (('Before', report.picture_before), ('After', report.picture_after))
    highest = max(picture.peak_bytes for _, picture in sides)
    parts = [_section(name, picture, highest) for name, picture in sides]
    return _PAGE.format(title=html.escape(printable(title)),
                        script=get_plotlyjs(),
                        summary=html.escape(_summary(report)),
                        sections=''.join(parts))


def _summary(report: ReportData) -> str:
    heap = '' if report.heap is None else f'{report.heap}. '
    return (f'Peak above resting: {human(report.peak_bytes_before)} before, '
            f'{human(report.peak_bytes_after)} after; lower bound for this order '
            f'{human(report.lower_bound_bytes)}; resting {human(report.resting_bytes)}; '
            f'{report.runtime} runtime. {heap}{report.note}')


def _section(name: str, picture: Picture, highest: int) -> str:
    key = name.lower()
    return _SECTION.format(
        name=name,
        key=key,
        peak=picture.peak_bytes,
        peak_text=human(picture.peak_bytes),
        peak_op=html.escape(picture.ops[picture.peak] if picture.ops else 'no operator'),
        rows=''.join(_row(b) for b in picture.at_peak()[:_LARGEST]),
        area=_embedded(_area(picture, highest)),
        lanes=_embedded(_lanes(picture)),
        index=_embedded(_index(picture)),
        height=120 + 14 * min(_LANES, len({b.storage for b in picture.bars})))


def _row(bar: Bar) -> str:
    cells = (bar.name, human(bar.bytes), str(bar.count), bar.maker, bar.line)
    return '<tr>' + ''.join(f'<td>{html.escape(printable(c))}</td>' for c in cells) + '</tr>'


def _embedded(figure: Dict[str, Any]) -> str:
    """JSON in which a script element sees no tag and no comment, of which one can begin that never ends."""
    return json.dumps(figure).replace('<', '\\u003c')


def _drawn(name: str) -> str:
    """Text that plotly, which reads some HTML and templates in what it draws, shows as it is."""
    return html.escape(printable(name), quote=False).replace('%{', '%&#123;')


def _area(picture: Picture, highest: int) -> Dict[str, Any]:
    """Stacked steps: the largest at the peak one by one, all else below them."""
    shown = picture.at_peak()[:_LAYERS]
    layers = [_coverage(bar, picture) for bar in shown]
    steps = _drawn_steps(picture.bytes)
    rest = [total - sum(column) for total, *column in zip(picture.bytes, *layers)]
    traces = [_layer('all else', rest, steps, '#d8d8d8')]
    traces += [
        _layer(bar.name, sizes, steps, _COLOURS[i % len(_COLOURS)], _about(bar))
        for i, (bar, sizes) in enumerate(zip(shown, layers))
    ]
    text = [
        f'{human(size)} at {_drawn(op)}<br>{_drawn(line)}'
        for size, op, line in zip(picture.bytes, picture.ops, picture.lines)
    ]
    traces.append({
        'type': 'scatter',
        'mode': 'lines',
        'name': 'live bytes',
        'y': picture.bytes,
        'text': text,
        'hovertemplate': '%{text}<extra></extra>',
        'line': {
            'color': '#222',
            'width': 1,
            'shape': 'hv'
        }
    })
    return {'data': traces, 'layout': _area_layout(picture, highest)}


def _coverage(bar: Bar, picture: Picture) -> List[int]:
    """Bytes of the bar's storage at each step, over all its tenants."""
    sizes = [0] * len(picture.bytes)
    for other in picture.bars:
        if (other.storage, other.count) == (bar.storage, bar.count):
            for step in range(other.first, min(other.last + 1, len(sizes))):
                sizes[step] = other.bytes
    return sizes


def _about(bar: Bar) -> str:
    times = f' ({bar.count} trips)' if bar.count > 1 else ''
    return (f'{_drawn(bar.name)}: {human(bar.bytes)}{times}<br>made by {_drawn(bar.maker)}<br>'
            f'{_drawn(bar.line)}')


def _layer(name: str,
           sizes: List[int],
           steps: List[int],
           colour: str,
           about: str = '') -> Dict[str, Any]:
    return {
        'type': 'scatter',
        'mode': 'lines',
        'stackgroup': 'live',
        'name': _drawn(name),
        'x': steps,
        'y': [sizes[i] for i in steps],
        'fillcolor': colour,
        'line': {
            'width': 0,
            'color': colour,
            'shape': 'hv'
        },
        'hoveron': 'points',
        'hovertemplate': (about or _drawn(name)) + '<extra></extra>'
    }


def _drawn_steps(sizes: List[int]) -> List[int]:
    """At most `_MOST_STEPS`, the fullest of each stretch, so that the peak is among them."""
    stretch = -(-len(sizes) // _MOST_STEPS)
    starts = range(0, len(sizes), stretch or 1)
    return [max(range(s, min(s + stretch, len(sizes))), key=sizes.__getitem__) for s in starts]


def _area_layout(picture: Picture, highest: int) -> Dict[str, Any]:
    shapes, notes = [], []
    for loop in picture.loops:
        shapes.append({
            'type': 'rect',
            'xref': 'x',
            'yref': 'paper',
            'x0': loop.first - 0.5,
            'x1': loop.last + 0.5,
            'y0': 0,
            'y1': 1,
            'layer': 'below',
            'line': {
                'width': 0
            },
            'fillcolor': 'rgba(80, 80, 200, 0.10)'
        })
        notes.append({
            'x': (loop.first + loop.last) / 2,
            'y': 1,
            'yref': 'paper',
            'showarrow': False,
            'yanchor': 'bottom',
            'text': f'{_drawn(loop.label)}: {loop.trips} trips'
        })
    if picture.bytes:
        notes.append({
            'x': picture.peak,
            'y': picture.peak_bytes,
            'showarrow': True,
            'arrowhead': 2,
            'text': f'peak {human(picture.peak_bytes)}'
        })
    return {
        'height': 420,
        'margin': {
            't': 40,
            'r': 20
        },
        'hovermode': 'closest',
        'shapes': shapes,
        'annotations': notes,
        'xaxis': {
            'title': 'operator, in the order of execution'
        },
        'yaxis': {
            'title': 'bytes above resting',
            'range': [0, highest * 1.12],
            'tickformat': '.3s'
        }
    }


def _lanes(picture: Picture) -> Dict[str, Any]:
    """One lane a storage, the largest ones, a bar for each tenant."""
    sizes: Dict[str, int] = {}
    for bar in picture.bars:
        sizes[bar.storage] = max(sizes.get(bar.storage, 0), bar.bytes)
    lanes = sorted(sizes, key=lambda s: -sizes[s])[:_LANES]
    drawn = set(lanes)
    bars = [b for b in picture.bars if b.storage in drawn]
    colours = [_COLOURS[i % len(_COLOURS)] for i in range(len(bars))]
    trace = {
        'type': 'bar',
        'orientation': 'h',
        'base': [b.first - 0.5 for b in bars],
        'x': [b.last - b.first + 1 for b in bars],
        'y': [_drawn(b.storage) for b in bars],
        'hovertext': [_about(b) for b in bars],
        'customdata': [b.name for b in bars],
        'hovertemplate': '%{hovertext}<extra></extra>',
        'marker': {
            'color': colours
        }
    }
    layout = {
        'barmode': 'overlay',
        'margin': {
            't': 20,
            'l': 260,
            'r': 20
        },
        'showlegend': False,
        'xaxis': {
            'title': 'operator, in the order of execution'
        },
        'yaxis': {
            'type': 'category',  # though a name may look like a number or a date
            'categoryorder': 'array',
            'categoryarray': [_drawn(lane) for lane in lanes[::-1]],
            'automargin': True
        }
    }
    return {'data': [trace], 'layout': layout}


def _index(picture: Picture) -> Dict[str, List[Any]]:
    """Every variable for the search, column by column; source lines, which repeat, by number."""
    lines = {line: i for i, line in enumerate(dict.fromkeys(b.line for b in picture.bars))}
    return {
        'names': [b.name for b in picture.bars],
        'bytes': [b.bytes for b in picture.bars],
        'makers': [b.maker for b in picture.bars],
        'lines': [lines[b.line] for b in picture.bars],
        'texts': list(lines)
    }


_SECTION = '''
<section id="{key}" data-peak="{peak}">
<h2>{name}: peak {peak_text} at {peak_op}</h2>
<div id="{key}-area" class="plot"></div>
<h3>The ten largest at the peak</h3>
<table id="{key}-largest"><tr><th>variable</th><th>bytes</th><th>times</th><th>made by</th><th>source line</th></tr>
{rows}</table>
<h3>Storages: variables in one lane share memory</h3>
<div id="{key}-lanes" class="plot" style="height: {height}px"></div>
<script>draw("{key}-area", {area}); draw("{key}-lanes", {lanes}); everything["{key}"] = {index};</script>
</section>'''

_PAGE = '''<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Memory of {title}</title>
<link rel="icon" href="data:,">
<style>
body {{ font-family: sans-serif; margin: 1.5em; max-width: 1400px }}
table {{ border-collapse: collapse }} td, th {{ border: 1px solid #ccc; padding: 0.2em 0.6em; text-align: left }}
</style>
<script>{script}</script>
<script>
const everything = {{}};
function draw(id, figure) {{
  Plotly.newPlot(id, figure.data, figure.layout, {{responsive: true, displaylogo: false}});
}}
function search(text) {{
  const wanted = text.toLowerCase(), rows = [];
  let found = 0;
  for (const key of ["before", "after"]) {{
    const drawn = document.getElementById(key + "-lanes").data[0].customdata;
    const shown = drawn.map(name => !wanted || name.toLowerCase().includes(wanted) ? 1 : 0.08);
    Plotly.restyle(key + "-lanes", {{"marker.opacity": [shown]}});
    const all = everything[key];
    all.names.forEach((name, i) => {{
      if (!wanted || !name.toLowerCase().includes(wanted)) return;
      if (found++ < 20) rows.push([key, name, all.bytes[i] + " bytes", all.makers[i], all.texts[all.lines[i]]]);
    }});
  }}
  document.getElementById("found").textContent = wanted ? found + " found" : "";
  const table = document.getElementById("hits");
  table.replaceChildren(...rows.map(row => {{
    const line = document.createElement("tr");
    line.append(...row.map(text => Object.assign(document.createElement("td"), {{textContent: text}})));
    return line;
  }}));
}}
</script></head><body>
<h1>Memory of {title}</h1>
<p id="summary">{summary}</p>
<p><label>Find a variable: <input id="search" type="search" oninput="search(this.value)"></label> <span id="found"></span></p>
<table id="hits"></table>
{sections}
</body></html>
'''
