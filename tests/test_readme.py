"""A newcomer copies from the README: its blocks run literally, each in a fresh interpreter; its commands are there.

The path from training to serving, which is one of them, is in tests/serving/test_readme.py.
"""
from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from tests.newcomer import AROUND, LEFT_OUT, ROOT, fresh_copy, python_in, script, steps
from tests.settled import least

START = ROOT / 'docs' / 'start.zh.md'  # blocks of the Chinese README are those of the English one: tests/test_pages.py
MEASURED = '''
for run in (report.measured.untouched, report.measured.optimized):
    print('trained', run.first_peak_bytes)
'''
PATH_TO_SERVING = 'From training to serving'  # tests/serving/test_readme.py
# What makes an environment, or is run by other tests: `make newcomer`, which continuous integration runs, runs these as they stand.
ELSEWHERE = ('make demo', 'make install', 'make docs', 'make release', "pip install -e '.[cpu]'",
             'jupyter execute docs/gallery/loops.ipynb', 'python -m transpiler report model')
MEASURES = 'python -m benchmarks resnet50 --optimizer momentum --both --collection on --steps 10 --markdown'
HERE = ('python -m demos.layers', 'python -m benchmarks --list')
WORKERS = ('python -m paddle.distributed.launch --nproc_per_node 2 --backend gloo demos/workers.py',
           'grep "^worker" log/workerlog.0')
COMPLETES = 'eval "$(_PADDLE_MEMORY_TRANSPILER_COMPLETE=bash_source paddle-memory-transpiler)"'


def test_every_step_is_run_by_a_test_or_it_is_said_why_not():
    commands = [s.text for s in steps() if not s.is_python and s.section != PATH_TO_SERVING]
    run = [*HERE, *WORKERS, *ELSEWHERE, *LEFT_OUT, MEASURES, COMPLETES]
    assert sorted(commands) == sorted(run)
    blocks = [s.section for s in steps() if s.is_python and not s.file]
    assert sorted(blocks) == sorted(AROUND) and len(blocks) == 3
    assert [s.section for s in steps(START) if s.is_python] == ['静态图训练']


def test_continuous_integration_does_what_a_newcomer_does():
    assert 'make newcomer' in (ROOT / '.ci' / 'run').read_text(encoding='utf-8').splitlines()


def test_a_fresh_copy_has_nothing_that_was_built(tmp_path):
    source = tmp_path / 'unpacked'
    for name in ('Makefile', 'docs/page.md', '.venv/bin/python', 'a.egg-info/PKG-INFO'):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    fresh_copy(source, tmp_path / 'copy')
    assert sorted(
        str(p.relative_to(tmp_path / 'copy'))
        for p in (tmp_path / 'copy').rglob('*')
        if p.is_file()) == ['Makefile', 'docs/page.md']


@pytest.mark.parametrize('step', [s for s in steps() if s.is_python and not s.file], ids=str)
def test_a_block_runs_as_it_stands(step, tmp_path):
    path = tmp_path / 'copied.py'  # layers are translated from their source, so there has to be some
    path.write_text(script(step), encoding='utf-8')
    assert 'memory_optimize(' in step.text
    assert python_in(tmp_path, str(path)).count('trained ') == 2


def test_the_block_of_the_chinese_start_runs_as_it_stands(tmp_path):
    step, = (s for s in steps(START) if s.is_python)
    path = tmp_path / 'copied.py'
    path.write_text(step.text + MEASURED, encoding='utf-8')
    assert python_in(tmp_path, str(path)).count('trained ') == 2


def test_programs_are_listed_and_the_measuring_command_names_one(tmp_path):
    """What it measures: tests/test_benchmarks.py."""
    _, *arguments = HERE[1].split()
    listed = python_in(tmp_path, *arguments).split()
    assert {'resnet50', 'gru_loop'} <= set(listed) and MEASURES.split()[3] in listed


def test_a_shell_completes_by_the_command_of_the_readme():
    line = re.fullmatch(r'eval "\$\((.*)\)"', COMPLETES).group(1)
    name, command = line.split()
    variable, value = name.split('=')
    said = subprocess.run([str(Path(sys.executable).with_name(command))],
                          env={
                              **os.environ, variable: value
                          },
                          check=True,
                          stdout=subprocess.PIPE,
                          universal_newlines=True,
                          cwd=str(ROOT)).stdout
    assert f'complete -o nosort -F _paddle_memory_transpiler_completion {command}' in said


@pytest.mark.parametrize('typed, offered', [('rep', 'plain,report'),
                                            ('report --bu', 'plain,--budget'),
                                            ('report --recompute ma', 'plain,max'),
                                            ('report mod', 'file,mod'), ('check a mod', 'file,mod'),
                                            ('optimize a -o mod', 'file,mod'),
                                            ('serve-settings mod', 'file,mod')])
def test_a_shell_is_offered_commands_options_choices_and_files(typed, offered):
    words = f'paddle-memory-transpiler {typed}'
    said = subprocess.run(
        [str(Path(sys.executable).with_name('paddle-memory-transpiler'))],
        env={
            **os.environ, 'PYTHONPATH': str(ROOT),
            '_PADDLE_MEMORY_TRANSPILER_COMPLETE': 'bash_complete',
            'COMP_WORDS': words,
            'COMP_CWORD': str(typed.count(' ') + 1)
        },
        check=True,
        stdout=subprocess.PIPE,
        universal_newlines=True,
        cwd=str(ROOT)).stdout
    assert said.splitlines() == [offered]


def test_layers_of_the_demo_train_as_the_readme_says(tmp_path):
    said = python_in(tmp_path, *HERE[0].split()[1:])
    assert 'Kept for backward by layer' in said and said.count('MiB above the parameters') >= 2


def test_two_workers_train_by_the_commands_of_the_readme(tmp_path):
    (tmp_path / 'demos').symlink_to(ROOT / 'demos')
    launch, look = WORKERS
    _, *arguments = launch.split()

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

    assert max(least(shares, (0.5, 0.5))) < 0.5


PAGES = [*ROOT.glob('*.md'), *(ROOT / 'docs').glob('*.md'), *(ROOT / 'benchmarks').glob('*.md')]


def test_every_module_and_make_target_that_a_page_names_is_there():
    text = '\n'.join(page.read_text(encoding='utf-8') for page in PAGES)
    named = re.findall(r'python -m (\w+)((?:\.\w+)*)', text)
    own = {first + rest for first, rest in named if (ROOT / first).is_dir()}
    targets = set(re.findall(r'(?:^|`)make ([a-z][a-z0-9-]+)', text, re.M))
    assert own > {'transpiler', 'benchmarks', 'benchmarks.layers'} and len(targets) > 5
    runs = {
        m: f'{m}.__main__' if importlib.util.find_spec(m).submodule_search_locations else m
        for m in own
    }
    assert [m for m, run in runs.items() if importlib.util.find_spec(run) is None] == []
    makefile = (ROOT / 'Makefile').read_text(encoding='utf-8')
    first = next(re.finditer(r'^([^\s#.:=][^:=\n]*):(?!=)', makefile, re.M)).group(1)
    assert first == '$(VENV)/.installed'  # what `make` alone does: it installs
    assert [t for t in sorted(targets) if not re.search(f'^{t}:', makefile, re.M)] == []
