"""The notebooks of docs/gallery run in a kernel, cell by cell, and give what is stored in them but for the figures."""
from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any, List

import nbformat
import pytest

from tests.newcomer import ROOT


def gallery() -> Any:
    spec = importlib.util.spec_from_file_location('gallery',
                                                  ROOT / 'docs' / 'gallery' / '__main__.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GALLERY = gallery()


def printed(notebook: Any) -> List[str]:
    """What each cell of code gives, as text."""
    return [
        ''.join(out.get('text') or out.data['text/plain']
                for out in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == 'code'
    ]


def without_figures(text: str) -> str:
    return re.sub(r'[0-9]+(\.[0-9]+)?(e-?[0-9]+)?', '#', text)


@pytest.mark.parametrize('path', GALLERY.notebooks(), ids=lambda path: path.stem)
def test_a_notebook_gives_what_is_stored_in_it(path: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv('PYTHONPATH', str(ROOT))  # kernels are processes of their own
    stored = printed(nbformat.read(str(path), as_version=4))
    given = printed(GALLERY.run(path, tmp_path))
    assert list(map(without_figures, given)) == list(map(without_figures, stored))
    assert ''.join(given) and 'False' not in ''.join(given).replace('recompute=False', '')
    # which notebooks say where bytes differ


@pytest.mark.parametrize('page', ['docs/gallery.md', 'docs/gallery.zh.md', 'mkdocs.yml'])
def test_a_page_names_every_notebook_and_no_other(page: str) -> None:
    text = (ROOT / page).read_text(encoding='utf-8')
    named = {*re.findall(r'gallery/(\w+)\.ipynb', text)}
    assert named == {path.stem for path in GALLERY.notebooks()} and len(named) >= 6
