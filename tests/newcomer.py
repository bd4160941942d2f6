"""What a newcomer does with the README: its commands and its blocks of Python, in their order, extracted from the file.

`make newcomer` does it all as that person: in a fresh clone of what is committed here, with nothing installed, then each notebook of
the gallery; a line each, with its seconds, and an end at the first failure (266 s on two idle cores). Continuous integration runs it behind
the suite, which runs most of the same steps one by one, in its own environment: tests/test_readme.py, tests/serving/test_readme.py,
tests/test_gallery.py. Needs Python alone.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Iterator, List, Mapping, Optional

ROOT = Path(__file__).resolve().parents[1]
_INLINE = re.compile(r'`((?:python -m|make|jupyter|pip install|eval) [^`]+)`')
_PLACEHOLDER = re.compile(r'\b[A-Z]+\b')  # MODEL and the like
_SAVED_AS = re.compile(r'this as `(\w+\.py)`')
_MOST_SHOWN = 40  # lines of what a step that fails has said

# Why a newcomer who has an afternoon does not type these.
LEFT_OUT: Mapping[str, str] = MappingProxyType({
    'make newcomer': 'that is this',
    'make test': 'the suite itself, which runs these steps, too',
    'make test-core': 'a part of the suite',
    'make test-all': 'the suite itself, on more versions of Paddle 3',
    'make test-gpu-build': 'the suite itself, on paddlepaddle-gpu (3.6 GB)',
    "pip install -e '.[cpu3]'": 'an environment holds one Paddle, and this one 2.6.2',
})  # yapf: disable


@dataclass(frozen=True)
class Step:
    """A command to type, or a block of Python; `file` is what the README says to save it as."""

    section: str
    line: int
    text: str
    is_python: bool
    file: str = ''

    def __str__(self) -> str:
        first = self.text.splitlines()[0]
        what = f'save {self.file}' if self.file else f'Python: {first}' if self.is_python else first
        return f'README.md:{self.line} {self.section or "Start"}: {what}'


@dataclass(frozen=True)
class Around:
    """What a reader of a block of Python has before it, and what he does next: trains two steps with what it leaves."""

    before: str
    after: str


TRAINS = '''
import numpy as np
assert report.changed
executor = paddle.static.Executor(paddle.CPUPlace())
executor.run(paddle.static.default_startup_program())
for step in range(2):
    print('trained', executor.run(feed={'x': np.ones((256, 1024), 'float32')}, fetch_list=[loss])[0])
'''
LAYERS = Around(
    '''
import paddle
from transpiler import memory_optimize

class Network(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers = paddle.nn.Sequential(*(paddle.nn.Sequential(paddle.nn.Linear(64, 64), paddle.nn.GELU()) for _ in range(3)))

    def forward(self, x):
        return self.layers(x).mean()
''', '''
optimizer = paddle.optimizer.SGD(0.1, parameters=network.parameters())
for step in range(2):
    loss = network(paddle.ones([32, 64]))
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print('trained', float(loss))
assert report.programs and network.state_dict()
''')
WORKERS = Around(
    '''
import numpy as np
import paddle
from paddle.distributed import fleet
from transpiler import memory_optimize

paddle.enable_static()
fleet.init(is_collective=True)
strategy = fleet.DistributedStrategy()
strategy.without_graph_optimization = True
main = paddle.static.default_main_program()
x = paddle.static.data('x', [None, 64])
loss = paddle.mean(paddle.static.nn.fc(paddle.static.nn.fc(x, 64, activation='relu'), 64))
optimizer = paddle.optimizer.SGD(0.1)
''', '''
assert 'earlier call' in memory_optimize(main, fetch_list=[loss], batch_size=8).note
executor = paddle.static.Executor(paddle.CPUPlace())
executor.run(paddle.static.default_startup_program())
for step in range(2):
    print('trained', executor.run(main, feed={'x': np.ones((8, 64), 'float32')}, fetch_list=[loss])[0])
''')
# By section of the README; blocks that are saved as files stand for themselves.
AROUND: Mapping[str, Around] = MappingProxyType({
    'Ten lines': Around('', TRAINS),
    'Layers': LAYERS,
    'Several workers': WORKERS
})


def steps(page: Path = ROOT / 'README.md') -> List[Step]:
    """All of them, in their order; a command counts where it is named first."""
    found, named = [], set()
    for step in _all_steps(page.read_text(encoding='utf-8').splitlines()):
        if step.is_python or step.text not in named:
            found.append(step)
        named.add(step.text)
    return found


def _all_steps(lines: List[str]) -> Iterator[Step]:
    section, fence, block, begun, prose = '', None, [], 0, ''
    for number, line in enumerate(lines, 1):
        if line.startswith('```'):
            if fence is None:
                fence, block, begun = line[3:].strip(), [], number + 1
                continue
            yield from _of_block(section, fence, block, begun, prose)
            fence, prose = None, ''
        elif fence is not None:
            block.append(line)
        elif line.startswith('## '):
            section, prose = line[3:].strip(), ''
        else:
            prose += line + '\n'
            yield from (Step(section, number, command, False)
                        for command in _INLINE.findall(line)
                        if not _PLACEHOLDER.search(command))


def _of_block(section: str, fence: str, block: List[str], begun: int, prose: str) -> Iterator[Step]:
    if fence == 'python':
        names = _SAVED_AS.findall(prose)
        yield Step(section, begun, '\n'.join(block) + '\n', True, names[-1] if names else '')
    elif not fence:
        for number, line in enumerate(block, begun):
            yield Step(section, number, line.split('  # ')[0].strip(), False)


def script(step: Step) -> str:
    """What a block of Python is run as."""
    around = AROUND[step.section]
    return around.before + step.text + around.after


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


def _notebooks() -> Iterator[Step]:
    for path in sorted((ROOT / 'docs' / 'gallery').glob('*.ipynb')):
        yield Step('Gallery', 1, f'jupyter execute {path.relative_to(ROOT)}', False)


class _Newcomer:
    """In a fresh clone; commands find what `make install` makes there, as after `. .venv/bin/activate`."""

    def __init__(self, clone: Path) -> None:
        self._clone = clone
        kept = {k: v for k, v in os.environ.items() if not k.startswith(('MAKE', 'PYTHON'))}
        self._environment = {
            **kept, 'PATH': f'{clone / ".venv" / "bin"}{os.pathsep}{os.environ["PATH"]}',
            'COLUMNS': '80'
        }

    def does(self, step: Step) -> Optional[str]:
        """What it said if it failed."""
        command = step.text
        if step.is_python:
            path = self._clone / (step.file or 'copied.py')
            path.write_text(step.text if step.file else script(step), encoding='utf-8')
            command = '' if step.file else f'python {path.name}'
        done = subprocess.run(['bash', '-c', command],
                              cwd=str(self._clone),
                              env=self._environment,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT,
                              universal_newlines=True,
                              errors='replace',
                              check=False)
        if not done.returncode:
            return None
        return '\n'.join(done.stdout.splitlines()[-_MOST_SHOWN:] + [f'exit {done.returncode}'])


def fresh_copy(source: Path, copy: Path) -> None:
    """A clone of what is committed in `source`; where that is no repository, as an unpacked sdist, its files but for what was built."""
    if (source / '.git').exists():
        subprocess.run(['git', 'clone', '--quiet', str(source), str(copy)], check=True)
    else:
        built = shutil.ignore_patterns('.venv*', 'build', 'dist', 'site', '*.egg-info',
                                       '__pycache__')
        shutil.copytree(source, copy, ignore=built)


def main() -> int:
    """0 if all went well."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / 'clone'
        fresh_copy(ROOT, clone)
        newcomer = _Newcomer(clone)
        done = set()
        for step in (*steps(clone / 'README.md'), *_notebooks()):
            reason = 'done above' if step.text in done else LEFT_OUT.get(step.text)
            if reason:
                print(f'     - s  {step} (left out: {reason})', flush=True)
                continue
            done.add(step.text)
            started = time.monotonic()
            failed = newcomer.does(step)
            print(f'{time.monotonic() - started:6.1f} s  {step}', flush=True)
            if failed is not None:
                print(failed, flush=True)
                return 1
    print(f'{time.monotonic() - began:6.1f} s  in all')
    return 0


if __name__ == '__main__':
    sys.exit(main())
