"""`python docs/gallery`: runs all notebooks of the gallery, and writes into them what they print."""
from __future__ import annotations

from pathlib import Path
from typing import Any, List

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
_SECONDS = 300  # for one cell


def notebooks() -> List[Path]:
    """All of them, by name."""
    return sorted(HERE.glob('*.ipynb'))


def run(path: Path, folder: Path) -> Any:
    """The notebook at `path` with what its cells give in a kernel of its own, in `folder`; raises nbclient's CellExecutionError."""
    notebook = nbformat.read(str(path), as_version=4)
    client = NotebookClient(notebook,
                            timeout=_SECONDS,
                            resources={'metadata': {
                                'path': str(folder)
                            }})
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop('execution', None)  # when it ran
        if cell.cell_type == 'code':  # Paddle's warnings differ from machine to machine
            cell.outputs = [out for out in cell.outputs if out.get('name') != 'stderr']
    notebook.metadata.language_info = {'name': 'python'}
    return notebook


if __name__ == '__main__':
    for each in notebooks():
        nbformat.write(run(each, HERE), str(each))
