"""Names of variables may be anything; whatever shows them shows them as they are."""
from __future__ import annotations

import json
import re
from typing import List

import pytest

from tests.report.test_picture import named
from transpiler.plain import printable
from transpiler.report.html import page
from transpiler.report.trace import trace

NAMES = [
    '[/]', '[bold red]b[/bold red]', ':smile:', '<!--<script>',
    '</script><script>alert(1)</script>', '<a href="http://example.com">x</a>', '<b>bold</b>',
    '&lt;', '%{x}', '{name}', '$x^2$', '1.5', '2020-01-01', 'a\nb', '\x1b[31mred', '\u202eback',
    '\x00'
]


@pytest.mark.parametrize('name', NAMES)
def test_a_report_shows_each_name_as_it_is(name):
    text = re.sub(r'[\s│]+', '', str(named([name])))
    assert re.sub(r'\s+', '', printable(name)) in text
    assert not set(str(named([name]))) & set('\x1b\x00\u202e')


def test_what_is_printable_stays():
    assert printable('fc_0.w_0@GRAD 模型 é') == 'fc_0.w_0@GRAD 模型 é'
    assert printable('a\x1bb\u202e\n\udcff') == 'a\\x1bb\\u202e\\n\\udcff'


def test_a_trace_has_the_names_themselves():
    events = json.loads(json.dumps(trace(named(NAMES))))['traceEvents']
    assert set(NAMES) <= {e['name'] for e in events}


def test_no_name_is_a_tag_in_the_page():
    """The page of strange names has the tags of the page of plain ones, which break at the same places."""
    plain_ones = [re.sub(r'[^\w._@/]', '-', printable(name)) for name in NAMES]
    strange, plain = (_tags(page(named(names), 'x')) for names in (NAMES, plain_ones))
    assert strange == plain and len(plain) > 50


def _tags(text: str) -> List[str]:
    return re.findall(r'<[!/a-zA-Z][^\s>]*', text)


def test_a_name_breaks_between_its_parts_and_reads_the_same() -> None:
    name = 'softmax_with_cross_entropy_0.tmp_0@GRAD'
    found = re.search(r'</i>(softmax.*?)</td>', page(named([name]), 'x'))
    assert found is not None and found.group(1).replace('<wbr>', '') == name
    parts = found.group(1).split('<wbr>')
    assert parts == ['softmax_', 'with_', 'cross_', 'entropy_', '0.', 'tmp_', '0@', 'GRAD']
