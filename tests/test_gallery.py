"""The examples of docs/gallery run literally, and the page has them as they are, with what they print but for the figures."""
from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from tests.newcomer import ROOT, python_in


def gallery() -> Any:
    spec = importlib.util.spec_from_file_location('gallery',
                                                  ROOT / 'docs' / 'gallery' / '__main__.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GALLERY = gallery()


def without_figures(text: str) -> str:
    return re.sub(r'[0-9]+(\.[0-9]+)?', '#', text)


def test_the_page_has_every_example_and_no_other() -> None:
    sections = re.findall(r'^## (.*)$', GALLERY.PAGE.read_text(encoding='utf-8'), re.M)
    assert sections == [path.stem.replace('_', ' ') for path in GALLERY.examples()
                       ] and len(sections) >= 5


@pytest.mark.parametrize('path', GALLERY.examples(), ids=lambda path: path.stem)
def test_an_example_runs_as_it_stands_and_says_what_the_page_says(path: Path,
                                                                  tmp_path: Path) -> None:
    printed = python_in(tmp_path, str(path))
    page = GALLERY.PAGE.read_text(encoding='utf-8')
    assert 'False' not in printed.replace('recompute=False',
                                          '')  # which examples say where bytes differ
    assert path.read_text(encoding='utf-8') in page
    assert without_figures(GALLERY.section(path, printed)) in without_figures(page)
