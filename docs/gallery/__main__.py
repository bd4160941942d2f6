"""`python docs/gallery`: runs all examples, and writes what they are and what they print to docs/gallery.md."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import List

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / 'gallery.md'
_HEAD = '''# Gallery

Whole programs to copy: each runs as it stands, in some seconds, on 2.6.2. What is below each is what it printed; `python docs/gallery`
runs them all and writes this page, and `tests/test_gallery.py` runs them on every change. Two workers of fleet's are in
[demos/workers.py](../demos/workers.py), a translation model in [demos/machine_translation](../demos/machine_translation/README.md).
'''


def examples() -> List[Path]:
    """All of them, by name."""
    return sorted(path for path in HERE.glob('*.py') if path.name != '__main__.py')


def run(path: Path) -> str:
    """What an example prints on stdout."""
    return subprocess.run([sys.executable, str(path)],
                          check=True,
                          stdout=subprocess.PIPE,
                          universal_newlines=True).stdout


def section(path: Path, printed: str) -> str:
    """An example as the page has it."""
    source = path.read_text(encoding='utf-8')
    title = source.split('"""')[1].strip()
    return f'\n## {path.stem.replace("_", " ")}\n\n{title}\n\n```python\n{source}```\n\n```text\n{printed}```\n'


if __name__ == '__main__':
    PAGE.write_text(_HEAD + ''.join(section(path, run(path)) for path in examples()),
                    encoding='utf-8')
