"""One wheel for both Paddles: which back end is taken, what is imported, and what a wrong program is told."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Tuple

import paddle
import pytest

from benchmarks.apart import apart
from benchmarks.programs import simple
from benchmarks.programs.case import Options
from tests.backends import test_base as interface
from transpiler import (InvalidArgumentError, InvalidProgramError, TranspilerError,
                        UnknownVariableError, calibrate, memory_optimize, release_memory)
from transpiler.backends.installed import live_programs
from transpiler.backends.paddle3 import environment
from transpiler.backends.paddle3.programs import LivePrograms

SMALL = Options(static_batch=True, layers=2, width=8, batch_size=4)

paddle.enable_static()


def small() -> Any:
    return simple.fc_chain(SMALL)


def said(code: str) -> str:
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_of_paddle_2s_front_end_is_imported() -> None:
    loaded = said(
        'import sys, transpiler, paddle\n'
        'paddle.enable_static()\n'
        'from benchmarks.programs import simple\n'
        'from benchmarks.programs.case import Options\n'
        'case = simple.fc_chain(Options(layers=2, width=8, batch_size=4))\n'
        'transpiler.memory_optimize(case.main, fetch_list=list(case.fetch))\n'
        'print(*(name for name in sys.modules if name.startswith("transpiler.backends")))').split()
    assert 'transpiler.backends.paddle3.programs' in loaded
    assert not [name for name in loaded if 'paddle2' in name]


def old_program() -> Any:
    with paddle.pir_utils.OldIrGuard():
        return paddle.static.Program()


def layer() -> Any:
    paddle.disable_static()
    try:
        return paddle.nn.Linear(2, 2)
    finally:
        paddle.enable_static()


@pytest.mark.parametrize('make, words', [
    (old_program, 'program of Paddle 2'),
    (lambda: None, 'not NoneType'),
    (lambda: 'main', 'not str'),
    (lambda: b'\x0a', 'not bytes'),
    (lambda: 3, 'not int'),
    (lambda: [small().main], 'not list'),
    (layer, 'not Linear'),
    (lambda: small().main.global_block(), 'not Block'),
])
@pytest.mark.parametrize('call', [memory_optimize, release_memory])
def test_what_is_no_program_of_paddle_3_is_refused_in_one_line(make: Any, words: str,
                                                               call: Any) -> None:
    with pytest.raises(InvalidProgramError, match=words) as error:
        call(make())
    assert '\n' not in str(error.value) and len(str(error.value)) < 250


OTHER = small()
ARGUMENTS = {
    'no such name': (dict(fetch_list='nowhere'), UnknownVariableError, 'nowhere'),
    'a name that is close': (dict(fetch_list=['y']), UnknownVariableError, "'y'"),
    'no such name to skip': (dict(skip_opt_set={'nowhere'}), UnknownVariableError, 'nowhere'),
    'a value of another program': (dict(fetch_list=[OTHER.fetch[0]]), InvalidArgumentError, 'another program'),
    'a value to skip of another program': (dict(skip_opt_set=OTHER.fetch[0]), InvalidArgumentError, 'another program'),
    'a number to fetch': (dict(fetch_list=[3]), InvalidArgumentError, 'fetch_list'),
    'no batch': (dict(batch_size=0), InvalidArgumentError, 'batch_size'),
    'half a batch': (dict(batch_size=0.5), InvalidArgumentError, 'batch_size'),
    'rows of no input': (dict(batch_size={'z': 4}), UnknownVariableError, "'z'"),
    'trips of no loop': (dict(trip_count={1: 4}), InvalidArgumentError, 'no loop'),
    'a runtime that is none': (dict(runtime='fast'), InvalidArgumentError, "'fast'"),
    'a level that is none': (dict(level=7), InvalidArgumentError, 'level'),
    'no way to recompute': (dict(recompute='most'), InvalidArgumentError, 'recompute'),
    'a negative overhead': (dict(max_overhead=-1), InvalidArgumentError, 'max_overhead'),
    'a budget that is no size': (dict(budget='many'), InvalidArgumentError, 'budget'),
    'a budget that nothing keeps': (dict(budget=100), TranspilerError, 'budget'),
    'a flag that is none': (dict(print_log='yes'), InvalidArgumentError, 'print_log'),
    'another flag that is none': (dict(skip_grads=None), InvalidArgumentError, 'skip_grads'),
}  # yapf: disable


@pytest.mark.parametrize('name', ARGUMENTS)
def test_bad_arguments_get_one_line_and_the_program_stays(name: str) -> None:
    options, kind, words = ARGUMENTS[name]
    case = small()
    before = str(case.main)
    with pytest.raises(kind, match=words) as error:
        memory_optimize(case.main, **options)
    assert '\n' not in str(error.value)
    assert str(case.main) == before


def test_a_value_that_lives_inside_a_branch_is_refused() -> None:
    main = paddle.static.Program()
    inner = []
    with paddle.static.program_guard(main):
        x = paddle.static.data('x', [2])
        paddle.static.nn.cond(
            paddle.mean(x) > 0, lambda: inner.append(x * 2) or inner[0], lambda: x * 3)
    with pytest.raises(InvalidArgumentError, match='inside of a loop or branch'):
        memory_optimize(main, fetch_list=inner)


@pytest.mark.parametrize('version', ['2.5.0', '2.7.1', '3.4.0', '4.0.0', '1.8.5'])
def test_versions_that_nobody_has_modelled_are_refused(version: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(paddle, '__version__', version)
    check = environment.check_paddle
    monkeypatch.setattr(environment, 'check_paddle', lambda: check(version))
    case = small()
    before = str(case.main)
    with pytest.raises(TranspilerError, match=version) as error:
        memory_optimize(case.main)
    assert '\n' not in str(error.value) and str(case.main) == before


@pytest.mark.parametrize('version', ['3.0.0', '3.1.1', '3.2.2', '3.3.1'])
def test_versions_that_are_supported(version: str) -> None:
    environment.check_paddle(version)


def test_a_pir_program_under_paddle_2_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(paddle, '__version__', '2.6.2')
    with pytest.raises(InvalidProgramError, match='PIR program'):
        live_programs(small().main)


def test_the_command_line_says_one_line() -> None:
    done = subprocess.run([sys.executable, '-m', 'transpiler', 'report', 'nowhere'],
                          capture_output=True,
                          text=True,
                          check=False)
    assert done.returncode == 1 and done.stdout == ''
    said_last = done.stderr.splitlines()[-1]  # behind what Paddle says of the machine
    assert said_last == 'error: no such program: nowhere'
    assert done.stderr.count('error') == 1


def calibrated(cache: Path) -> Tuple[Any, Any, Any]:
    """What programs are priced by before the machine is measured, what that says, and what they are priced by then."""
    os.environ['XDG_CACHE_HOME'] = str(cache)
    return LivePrograms().cost, calibrate(), LivePrograms().cost


def test_the_machine_can_be_measured(tmp_path: Path) -> None:
    before, measured, after = apart(calibrated, tmp_path)  # which leaves 132 MB
    assert before is None and measured is not None and after == measured
    (kept,) = tmp_path.rglob('*.json')
    assert paddle.__version__ in kept.name


def test_the_back_end_has_what_the_interface_names() -> None:
    interface.test_a_back_end_has_what_the_interface_names('paddle3', 'LivePrograms',
                                                           'ImportedProgram')
