"""The pages of docs/: examples print what stands under them, figures are what the code says, links lead somewhere."""
from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from benchmarks.programs import Options, build
from tests.newcomer import ROOT, python_in
from transpiler import memory_optimize

HOW_IT_WORKS = ROOT / 'docs' / 'how-it-works.md'
PAGES = sorted([*ROOT.glob('README*.md'), *(ROOT / 'docs').glob('*.md')])
RETAINING_LOOPS = ('loop', 'gru_loop', 'attention_loop', 'cond_in_loop')


def read(page: Path) -> str:
    return page.read_text(encoding='utf-8')


def prose(page: Path) -> str:
    """Without the blocks of code."""
    return re.sub(r'^```.*?^```$', '', read(page), flags=re.S | re.M)


def examples(page: Path) -> List[Tuple[str, str]]:
    """Each block of Python with the block of text behind it: what it prints."""
    return re.findall(r'^```python\n(.*?)^```\n\n```text\n(.*?)^```', read(page), re.S | re.M)


def slug(heading: str) -> str:
    """The anchor that GitHub and MkDocs make of an English heading."""
    return re.sub(r'[^\w\- ]', '', heading.strip().lower()).replace(' ', '-')


def anchors(page: Path) -> List[str]:
    headings = re.findall(r'^#+ (.*)$', prose(page), re.M)
    return [slug(h) for h in headings] + re.findall(r'<a id="([^"]+)"></a>', prose(page))


def links(page: Path) -> List[str]:
    """Those that lead to files of the repository, with their anchors."""
    return [
        link for link in re.findall(r'\]\(([^)\s]+)\)', prose(page))
        if not link.startswith(('https:', 'http:'))
    ]


def test_how_it_works_prints_what_stands_under_its_examples(tmp_path):
    found = examples(HOW_IT_WORKS)
    assert len(found) == read(HOW_IT_WORKS).count('```python') == 5
    path = tmp_path / 'session.py'
    path.write_text('\nprint("next")\n'.join(code for code, _ in found), encoding='utf-8')
    assert python_in(tmp_path, str(path)) == 'next\n'.join(printed for _, printed in found)


@pytest.mark.parametrize('program', RETAINING_LOOPS)
def test_a_bound_of_how_it_works_is_the_plans(program):
    row, = re.findall(rf'^\| `{program}` \|.*\| ([0-9.]+) \|$', read(HOW_IT_WORKS), re.M)
    case = build(program, Options())
    report = memory_optimize(case.main,
                             fetch_list=list(case.fetch),
                             batch_size=case.batch_size,
                             trip_count=case.trip_count,
                             runtime='retaining')
    assert row == f'{report.lower_bound_bytes / 2**20:.1f}'


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_something(page):
    known: Dict[Path, List[str]] = {}
    for link in links(page):
        file, _, anchor = link.partition('#')
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        if anchor:
            known.setdefault(target, anchors(target))
            assert anchor in known[target], link


def test_what_two_pages_say_of_one_program_is_the_same():
    """Of Paddle 3: the last column of the table of both Paddles, the third of the page of its own, where the process stands behind a comma."""
    rows = [[[cell.strip()
              for cell in line.split('|')[1:-1]]
             for line in read(ROOT / 'docs' / name).splitlines()
             if line.startswith('| `')]
            for name in ('measured.md', 'paddle3.md')]
    ours, own = ({
        re.match('`(.*?)`', row[0]).group(1): row[at].split(',')[0] for row in table
    } for table, at in zip(rows, (3, 2)))
    assert set(own) <= set(ours) and len(own) > 5
    assert {name: ours[name] for name in own} == own


def blocks(page: Path) -> List[str]:
    return re.findall(r'^```.*?^```$', read(page), re.S | re.M)


def figures(text: str) -> List[str]:
    return sorted(re.findall(r'[+-]?\d[\d,.]*\d|[+-]?\d', text))


def tables(page: Path) -> List[List[List[str]]]:
    """The figures of each row of each table."""
    found = re.findall(r'^(?:\|.*\n)+', prose(page), re.M)
    return [[figures(row) for row in table.splitlines()] for table in found]


def told(page: Path) -> List[List[str]]:
    """The figures of each section, those of its tables aside."""
    lines = re.sub(r'^\|.*$|<a id=.*></a>', '', prose(page), flags=re.M)
    return [figures(section) for section in re.split(r'^#+ ', lines, flags=re.M)]


def sections(page: Path) -> List[str]:
    """The level of each heading."""
    return re.findall(r'^#+', prose(page), re.M)


def in_chinese(page: Path, link: str) -> str:
    """Where `link` of `page` leads to in its translation: to the other language, or to the Chinese page if there is one."""
    if (page.parent / link).name == page.with_suffix('.zh.md').name:
        return page.name
    file, hash_, anchor = link.partition('#')
    translated = (page.parent / file).resolve() in ENGLISH
    return (str(Path(file).with_suffix('.zh.md')) if translated else file) + hash_ + anchor


ENGLISH = [page for page in PAGES if not page.name.endswith('.zh.md') and page.name != 'api.md']


@pytest.mark.parametrize('page', ENGLISH, ids=lambda page: page.name)
def test_a_chinese_page_says_as_much(page):
    chinese = page.with_suffix('.zh.md')
    assert sections(chinese) == sections(page)
    assert blocks(chinese) == blocks(page)
    assert tables(chinese) == tables(page)
    assert told(chinese) == told(page)
    assert Counter(in_chinese(page, link) for link in links(page)) - Counter(
        links(chinese)) == Counter()
    assert f']({chinese.name})' in read(page) and f']({page.name})' in read(chinese)
