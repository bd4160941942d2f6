"""The pages of docs/ as a site: those that stand elsewhere in the repository come along, and links lead to them. A hook of MkDocs."""
from __future__ import annotations

import os.path
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any, Mapping

from mkdocs.structure.files import File

_ROOT = Path(__file__).resolve().parents[1]
# By path in the repository: the path on the site.
_ELSEWHERE: Mapping[str, str] = MappingProxyType({
    'README.md': 'index.md',
    'README.zh.md': 'index.zh.md',
    'benchmarks/README.md': 'benchmarks.md',
    'demos/machine_translation/README.md': 'demo.md',
    'CHANGELOG.md': 'changes.md',
    'CONTRIBUTING.md': 'contributing.md',
})
_LINK = re.compile(r'(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)')
_PICTURE = re.compile(r'(!\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)')


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that stand elsewhere."""
    for path, page in _ELSEWHERE.items():
        text = (_ROOT / path).read_text(encoding='utf-8')
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """`markdown`, with links by places on the site; what the site does not have is named, and no link."""
    of_site = {place: path for path, place in _ELSEWHERE.items()}
    at = page.file.src_uri
    folder = os.path.dirname(of_site.get(at, f'docs/{at}'))

    def there(target: str) -> str:
        path = os.path.normpath(os.path.join(folder, target))
        place = _ELSEWHERE.get(path, path[len('docs/'):] if path.startswith('docs/') else '')
        known = place and files.get_file_from_path(place)
        return os.path.relpath(place, os.path.dirname(at) or '.') if known else ''

    def linked(found: Any) -> str:
        label, target, anchor = found.groups()
        if ':' in target:
            return str(found.group(0))
        place = there(target)
        return f'[{label}]({place}{anchor or ""})' if place else str(label)

    def drawn(found: Any) -> str:
        return f'{found.group(1)}({there(found.group(2))})'

    return _PICTURE.sub(drawn, _LINK.sub(linked, markdown))
