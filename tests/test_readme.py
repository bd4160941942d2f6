"""A newcomer copies from the README: its blocks run literally, each in a fresh interpreter; its commands are there.

The path from training to serving, which is one of them, is in tests/serving/test_readme.py.
"""
from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from typing import List, Tuple

import pytest

from tests.newcomer import ROOT, python_in
from tests.settled import least

# Blocks of the Chinese README are those of the English one: tests/test_pages.py.
PAGES = ('README.md', 'docs/start.zh.md')
PATH_TO_SERVING = ('README.md', 'From training to serving')


@dataclass(frozen=True)
class Block:
    """What a reader of a block has before it, and what he does next: trains two steps with what it leaves."""

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
LAYERS = Block(
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
WORKERS = Block(
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
MEASURED = '''
for run in (report.measured.untouched, report.measured.optimized):
    print('trained', run.first_peak_bytes)
'''
BLOCKS = {
    ('README.md', 'Ten lines'): Block('', TRAINS),
    ('README.md', 'Layers'): LAYERS,
    ('README.md', 'Several workers'): WORKERS,
    ('docs/start.zh.md', '静态图训练'): Block('', MEASURED),
}


def blocks(file: str) -> List[Tuple[str, str]]:
    """The Python blocks of `file`, each with the title of its section."""
    found = []
    for section in re.split(r'^## ', (ROOT / file).read_text(encoding='utf-8'), flags=re.M)[1:]:
        title = section.split('\n')[0].strip()
        found += [
            (title, text) for text in re.findall(r'^```python\n(.*?)^```', section, re.S | re.M)
        ]
    return found


def test_every_block_is_run_by_a_test_and_none_is_gone():
    there = [(file, title) for file in PAGES for title, _ in blocks(file)]
    run = [at for at in there if at != PATH_TO_SERVING]
    assert sorted(run) == sorted(BLOCKS) and PATH_TO_SERVING in there


@pytest.mark.parametrize('at', BLOCKS, ids=['ten_lines', 'layers', 'workers', 'chinese_start'])
def test_a_block_runs_as_it_stands(at, tmp_path):
    file, title = at
    text, = (text for section, text in blocks(file) if section == title)
    assert 'memory_optimize(' in text
    path = tmp_path / 'copied.py'  # layers are translated from their source, so there has to be some
    path.write_text(BLOCKS[at].before + text + BLOCKS[at].after, encoding='utf-8')
    assert python_in(tmp_path, str(path)).count('trained ') == 2


def test_layers_of_the_demo_train_as_the_readme_says(tmp_path):
    assert '`python -m demos.layers`' in (ROOT / 'README.md').read_text(encoding='utf-8')
    said = python_in(tmp_path, '-m', 'demos.layers')
    assert 'Kept for backward by layer' in said and said.count('MiB above the parameters') >= 2


def test_two_workers_train_by_the_commands_of_the_readme(tmp_path):
    (tmp_path / 'demos').symlink_to(ROOT / 'demos')
    section = (ROOT / 'README.md').read_text(encoding='utf-8').split('## Several workers')[1]
    launch, look = re.search(r'```\n(python -m .*?)```', section, re.S).group(1).splitlines()
    program, *arguments = launch.split()
    assert program == 'python' and '--nproc_per_node 2' in launch

    def shares() -> List[float]:
        """Of what each worker needed before; Paddle's collector, a thread, is late in some."""
        shutil.rmtree(tmp_path / 'log', ignore_errors=True)
        python_in(tmp_path, *arguments)
        said = subprocess.run(shlex.split(look),
                              cwd=str(tmp_path),
                              check=True,
                              stdout=subprocess.PIPE,
                              universal_newlines=True).stdout.splitlines()
        found = [
            re.match(
                r'worker (\d): (.*) MiB above the parameters before, (.*) after, the same bytes',
                line).groups() for line in said
        ]
        assert [rank for rank, _, _ in found] == ['0', '1']
        return [float(after) / float(before) for _, before, after in found]

    assert max(least(shares, (0.5, 0.5), most=5)) < 0.5


def test_every_module_and_make_target_that_is_named_is_there():
    text = (ROOT / 'README.md').read_text(encoding='utf-8')
    named = re.findall(r'python -m (\w+)((?:\.\w+)*)', text)
    own = {first + rest for first, rest in named if (ROOT / first).is_dir()}
    targets = set(re.findall(r'(?:^|`)make ([a-z][a-z-]+)', text, re.M))
    assert own > {'transpiler', 'benchmarks'} and len(targets) > 5
    runs = {
        m: f'{m}.__main__' if importlib.util.find_spec(m).submodule_search_locations else m
        for m in own
    }
    assert [m for m, run in runs.items() if importlib.util.find_spec(run) is None] == []
    makefile = (ROOT / 'Makefile').read_text(encoding='utf-8')
    first = next(re.finditer(r'^([^\s#.:=][^:=\n]*):(?!=)', makefile, re.M)).group(1)
    assert first == '$(VENV)/.installed'  # what `make` alone does: it installs
    assert [t for t in sorted(targets) if not re.search(f'^{t}:', makefile, re.M)] == []
