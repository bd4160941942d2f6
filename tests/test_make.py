"""`make test` runs the halves of both Paddles side by side: each counts, each is read whole, and what ends it ends both."""
from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
HALVES = {'paddle2': '.venv', 'paddle3': '.venv3'}

# In place of an environment's Python: goes on once the other half has begun, too.
WAITS = '''#!/bin/sh
echo $$ > {half}.pid
tries=0
until test -s paddle2.pid && test -s paddle3.pid; do
  tries=$((tries + 1)); test $tries -lt 300 || exit 9; sleep 0.1
done
'''
ENDS = WAITS + '''for line in 1 2 3; do echo "{half} says $line"; sleep 0.1; done
exit {status}
'''
STAYS = WAITS + 'exec sleep 600\n'


def _project(folder: Path, script: str, **statuses: int) -> List[str]:
    """The Makefile, with environments that are installed and whose Python is `script`; the command that is tested."""
    for name in ('setup.cfg', 'pyproject.toml', 'Makefile'):
        shutil.copyfile(ROOT / name, folder / name)
    for half, environment in HALVES.items():
        python = folder / environment / 'bin' / 'python'
        python.parent.mkdir(parents=True)
        python.write_text(script.format(half=half, status=statuses.get(half, 0)))
        python.chmod(0o755)
        (folder / environment / '.installed').touch()
    return ['make', 'test']


def _environment() -> Dict[str, str]:
    """Not that of the `make` which runs this test: its flags name other environments."""
    return {name: value for name, value in os.environ.items() if not name.startswith('MAKE')}


def _said_by(command: List[str], **variables: str) -> str:
    return subprocess.run(command,
                          cwd=ROOT,
                          env={
                              **_environment(),
                              **variables
                          },
                          stdout=subprocess.PIPE,
                          check=True,
                          text=True).stdout


@pytest.mark.parametrize('origin, named', (('https://a.example/b.git', 'https://a.example/b'),
                                           ('git@a.example:b.git', ''), ('/work/b', '')))
def test_a_release_names_the_repository_that_the_clone_is_from(tmp_path: Path, origin: str,
                                                               named: str) -> None:
    subprocess.run(['git', 'init', '--quiet', tmp_path], check=True)
    subprocess.run(['git', '-C', tmp_path, 'remote', 'add', 'origin', origin], check=True)
    shown = _said_by(['make', '--dry-run', 'release'], GIT_DIR=str(tmp_path / '.git'))
    assert f"PROJECT_URL='{named}'" in shown


@pytest.mark.parametrize('url, count', (('', 0), ('https://a.example/b', 5)))
def test_the_package_names_its_repository_and_the_pages_in_it(tmp_path: Path, url: str,
                                                              count: int) -> None:
    _said_by([sys.executable, 'setup.py', '--quiet', 'egg_info', '--egg-base',
              str(tmp_path)],
             PROJECT_URL=url)
    metadata, = tmp_path.glob('*.egg-info/PKG-INFO')
    urls = re.findall(r'^(?:Project-URL: \w+, |Home-page: )(.+)$',
                      metadata.read_text(encoding='utf-8'), re.MULTILINE)
    assert len(urls) == count and all(each.startswith(url) for each in urls)


@pytest.mark.parametrize('paddle2', (0, 1, 2))
@pytest.mark.parametrize('paddle3', (0, 1, 2))
def test_both_run_at_once_and_either_fails_it(tmp_path: Path, paddle2: int, paddle3: int) -> None:
    command = _project(tmp_path, ENDS, paddle2=paddle2, paddle3=paddle3)
    done = subprocess.run(command,
                          cwd=tmp_path,
                          env=_environment(),
                          stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT,
                          text=True,
                          check=False)
    assert (done.returncode == 0) == (paddle2 == paddle3 == 0), done.stdout
    said = [line for line in done.stdout.splitlines() if ' says ' in line]
    assert said == [f'{half} says {line}' for half in HALVES for line in (1, 2, 3)]


def _interrupt(make: subprocess.Popen) -> None:
    os.killpg(make.pid, signal.SIGINT)  # as a terminal does: to all of its processes


def _terminate(make: subprocess.Popen) -> None:
    make.terminate()  # as a machine does: to the one that it started


@pytest.mark.parametrize('end', (_interrupt, _terminate))
def test_what_ends_it_ends_both(tmp_path: Path, end: Callable[[subprocess.Popen], None]) -> None:
    with subprocess.Popen(_project(tmp_path, STAYS),
                          cwd=tmp_path,
                          env=_environment(),
                          stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL,
                          start_new_session=True) as make:
        files = [tmp_path / f'{half}.pid' for half in HALVES]
        _until(lambda: all(file.exists() and file.read_text() for file in files))
        pids = [int(file.read_text()) for file in files]
        assert all(map(_alive, pids))
        end(make)
        assert make.wait(30) != 0
        _until(lambda: not any(map(_alive, pids)))


def _until(holds: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return ') Z ' not in Path(f'/proc/{pid}/stat').read_text()
    except FileNotFoundError:
        return False


LOCKS = sorted((ROOT / '.ci' / 'lock').glob('python3.*.txt'))


@pytest.mark.parametrize('lock', LOCKS, ids=lambda path: path.stem)
def test_a_lock_pins_what_setup_cfg_asks_for_within_its_bounds(lock: Path) -> None:
    pinned = dict(line.split('==') for line in lock.read_text().splitlines())
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    config = configparser.ConfigParser()
    config.read(ROOT / 'setup.cfg')
    extras = [config['options.extras_require'][extra] for extra in ('demo', 'test')]
    asked = '\n'.join([config['options']['install_requires'], *extras]).split('\n')
    wanted = [Requirement(line) for line in asked if line.strip()]
    assert len(wanted) > 15 and not [n for n in versions if n.startswith('paddlepaddle')]
    for each in wanted:
        assert versions[canonicalize_name(each.name)] in each.specifier, each


def test_the_python_of_continuous_integration_has_a_lock() -> None:
    assert 'python3.11' in {lock.stem for lock in LOCKS} and len(LOCKS) >= 3
