"""The README's path from training to serving, its files and commands copied as they stand."""
from __future__ import annotations

import re
import shlex
from typing import Dict, List, Tuple

from tests.newcomer import ROOT, python_in


def path_of_a_new_user() -> Tuple[Dict[str, str], List[str]]:
    """The files to save, and the commands to type after that."""
    section = (ROOT / 'README.md').read_text(
        encoding='utf-8').split('## From training to serving')[1].split('\n## ')[0]
    names = re.findall(r'this as `(\w+\.py)`', section)
    files = re.findall(r'```python\n(.*?)```', section, re.DOTALL)
    commands = re.findall(r'```\n(.*?)```', section.split('in a browser')[1], re.DOTALL)[0]
    return dict(zip(names, files)), commands.strip().splitlines()


def test_every_step_from_training_to_serving_runs_and_leaves_what_it_names(tmp_path):
    files, commands = path_of_a_new_user()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    said = []
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == 'python'
        said.append(python_in(tmp_path, *arguments))
    train, report, optimize, check, serve, _ = said
    assert train.count('loss ') == 3 and serve.count('classes ') == 2
    assert 'optimize would bring' in report and 'peak above resting' in optimize
    assert check.count('equal') == 2
    assert '<html' in (tmp_path / 'memory.html').read_text()[:100]
