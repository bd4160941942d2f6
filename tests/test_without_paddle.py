"""What needs no Paddle loads none: the graph and all that works on it, the solvers, the command line's help."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

import transpiler

ROOT = Path(transpiler.__file__).parent
PADDLE_FREE = ('ir', 'analysis', 'passes', 'planning', 'verify', 'assignment', 'report',
               'backends/text')
ALONE = ('transpiler', 'transpiler.arguments', 'transpiler.errors', 'transpiler.plain',
         'transpiler.packing_files', 'transpiler.runtime', 'transpiler.request', 'transpiler.flow',
         'transpiler.backends.base', 'transpiler.cli')
# Paddle is not to be found, and who asks for it fails.
WITHOUT = """
import sys
class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'paddle':
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nowhere())
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, '-c', WITHOUT + code, *arguments],
                          stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT,
                          universal_newlines=True,
                          check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def modules_of(folder: str) -> List[str]:
    found = sorted((ROOT / folder).rglob('*.py'))
    assert found
    return ['.'.join(p.relative_to(ROOT.parent).with_suffix('').parts) for p in found]


@pytest.mark.parametrize('folder', PADDLE_FREE)
def test_every_module_of_the_core_loads_without_paddle(folder: str) -> None:
    names = [
        name[:-len('.__init__')] if name.endswith('.__init__') else name
        for name in modules_of(folder)
    ]
    said = run(
        'import importlib\nfor name in sys.argv[1:]: print(importlib.import_module(name).__name__)',
        *names)
    assert said.split() == names


@pytest.mark.parametrize('name', ALONE)
def test_it_loads_without_paddle(name: str) -> None:
    assert run(f'import {name}; print({name}.__name__)').split() == [name]


@pytest.mark.parametrize('arguments, said', [(['--help'], 'optimize'), (['--version'], 'version'),
                                             (['optimize', '--help'], '--budget')])
def test_the_command_line_says_what_it_does_without_paddle(arguments: List[str], said: str) -> None:
    assert said in run("from transpiler.cli import main; main(prog_name='x')", *arguments)


def test_buffers_are_packed_without_paddle(tmp_path: Path) -> None:
    (tmp_path / 'in.csv').write_text('id,lower,upper,size\na,0,3,4\nb,2,5,6\n')
    said = run("from transpiler.cli import main; main(prog_name='x')", 'pack',
               str(tmp_path / 'in.csv'), '-o', str(tmp_path / 'out.csv'))
    assert 'height 10' in said and (tmp_path / 'out.csv').read_text().count('\n') == 3


def test_public_names_are_those_that_are_named_and_no_others() -> None:
    pytest.importorskip('paddle')
    for name in transpiler.__all__:
        assert getattr(transpiler, name).__name__ == name
    assert set(transpiler.__all__) <= set(dir(transpiler))
    with pytest.raises(AttributeError, match="no attribute 'memory_optimise'"):
        transpiler.memory_optimise  # pylint: disable=pointless-statement


@pytest.mark.parametrize('arguments', [['--version'], ['--help'], ['pack', '--help']])
def test_who_asks_what_there_is_waits_for_no_library(arguments: List[str]) -> None:
    said = run(
        'import sys\nfrom transpiler.cli import main\n'
        'try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n'
        'print([m for m in ("numpy", "rich", "pandas", "ortools") if m in sys.modules])',
        *arguments)
    assert said.splitlines()[-1] == '[]'


def test_who_packs_waits_for_no_solver(tmp_path: Path) -> None:
    (tmp_path / 'in.csv').write_text('id,lower,upper,size\n1,0,9,4\n2,5,12,8\n')
    said = run(
        'import sys\nfrom transpiler.cli import main\n'
        'try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n'
        'print([m for m in ("pandas", "ortools", "numba") if m in sys.modules])', 'pack',
        str(tmp_path / 'in.csv'), '-o', str(tmp_path / 'out.csv'))
    assert said.splitlines()[-1] == '[]'
