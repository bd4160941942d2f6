"""Who has copied files out of the README into a folder, and runs them there."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python_in(folder: Path, *arguments: str) -> str:
    """What a fresh interpreter, which finds this checkout, prints on stdout."""
    done = subprocess.run([sys.executable, *arguments],
                          cwd=str(folder),
                          env={
                              **os.environ, 'PYTHONPATH': str(ROOT)
                          },
                          stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE,
                          universal_newlines=True,
                          check=False)
    assert done.returncode == 0, ' '.join(arguments) + '\n' + done.stderr
    return done.stdout
