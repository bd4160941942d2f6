"""The README's path from training to serving, its files and commands copied as they stand."""
from __future__ import annotations

import shlex

from tests.newcomer import python_in, steps


def test_every_step_from_training_to_serving_runs_and_leaves_what_it_names(tmp_path):
    said = []
    for step in (s for s in steps() if s.section == 'From training to serving'):
        if step.is_python:
            (tmp_path / step.file).write_text(step.text, encoding='utf-8')
            continue
        program, *arguments = shlex.split(step.text)
        assert program == 'python'
        said.append(python_in(tmp_path, *arguments))
    train, report, optimize, check, serve, _, settings = said
    assert train.count('loss ') == 3 and serve.count('classes ') == 2
    assert 'optimize would bring' in report and 'peak above resting' in optimize
    assert check.count('equal') == 2 and settings.strip()
    assert '<html' in (tmp_path / 'memory.html').read_text()[:100]
