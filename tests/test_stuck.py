"""A test that stands still ends the suite's waiting: begun once more where Paddle alone is waited for, failed else."""
from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import paddle
import pytest

from benchmarks import apart
from tests.wild import children
from transpiler.stillness import Stillness, end_all

ROOT = Path(__file__).parents[1]
_CONFTEST = """
from tests import stuck
stuck._SECONDS, stuck._LOOK_SECONDS, stuck._LONGEST_SECONDS = 2, 0.2, 5
pytest_configure = stuck.watch
"""
# Whose frame is that of the call that waits.
_WAITS = """
import threading
from pathlib import Path

def wait(name, times):
    calls = len(list(Path('calls').glob(name + '*')))
    (Path('calls') / f'{name}{calls}').touch()
    if calls < times:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
"""
_TESTS = """
import signal, sys, threading
from pathlib import Path
sys.path.insert(0, 'site-packages/paddle')
from waits import wait as wait_in_paddle
sys.path.insert(0, 'ours')
del sys.modules['waits']
from waits import wait

def test_once_in_paddle():
    wait_in_paddle('once', 1)

def test_always_in_paddle():
    wait_in_paddle('always', 9)

def test_crashes_in_paddle():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGABRT})  # as in its handler
    wait_in_paddle('crash', 1)

def test_in_ours():
    wait('ours', 1)

def test_works_for_ever():
    Path('calls/works').touch()
    while True:
        pass

def test_ends():
    pass
"""


def test_what_stands_still_is_named_and_begun_once_more_if_it_waits_for_paddle_alone(
        tmp_path: Path) -> None:
    for folder in ("site-packages/paddle", "ours"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "waits.py").write_text(_WAITS)
    (tmp_path / "calls").mkdir()
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_it.py").write_text(_TESTS)
    done = subprocess.run([
        sys.executable, "-m", "pytest", "-q", "-n", "1", "--max-worker-restart", "9", "--dist",
        "worksteal", "test_it.py"
    ],
                          cwd=tmp_path,
                          env=dict(os.environ, PYTHONPATH=str(ROOT)),
                          stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT,
                          text=True,
                          timeout=150,
                          check=False)
    said = done.stdout
    assert done.returncode == 1 and "4 failed, 2 passed, 2 rerun" in said, said
    begun = sorted(path.name for path in (tmp_path / "calls").iterdir())
    assert begun == ["always0", "always1", "crash0", "once0", "once1", "ours0", "works"], said
    failed = {line.split(" - ")[0] for line in said.splitlines() if line.startswith("FAILED")}
    assert failed == {
        f"FAILED test_it.py::test_{name}" for name in ("always_in_paddle", "crashes_in_paddle",
                                                       "in_ours", "works_for_ever")
    }
    told = [line for line in said.splitlines() if line.startswith("begun again")]
    assert sorted(line.rpartition("::")[2] for line in told) == [
        "test_always_in_paddle", "test_once_in_paddle"
    ]


def _wait_or_answer(folder: str, times: int) -> int:
    calls = len(list(Path(folder).iterdir()))
    (Path(folder) / str(calls)).touch()
    if calls < times:
        time.sleep(1000)
    return calls


def test_a_measurement_that_stands_still_is_begun_once_more(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_STILL_SECONDS", 2)
    assert apart.apart(_wait_or_answer, str(tmp_path), 1) == 1
    with pytest.raises(apart.ApartError, match="has stood still for 2 s"):
        apart.apart(_wait_or_answer, str(tmp_path), 9)
    assert len(list(tmp_path.iterdir())) == 4


def test_a_child_that_stands_still_is_begun_once_more(tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_STILL_SECONDS", 2)
    assert children.in_child(lambda: _wait_or_answer(str(tmp_path), 1), 60).value == 1
    assert children.in_child(lambda: _wait_or_answer(str(tmp_path), 9),
                             60).failure == "stands still"
    assert len(list(tmp_path.iterdir())) == 4


def _damage_the_heap() -> None:
    """What is free is in a list, which malloc looks at when it has its lock."""
    malloc = ctypes.CDLL(None)
    malloc.malloc.restype = ctypes.c_void_p
    made = [malloc.malloc(50_000) for _ in range(3)]
    malloc.free(ctypes.c_void_p(made[1]))
    ctypes.memset(made[1], 0x41, 16)
    malloc.malloc(60_000)


def test_a_child_that_crashes_has_not_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paddle's handler of signals waits for that lock."""
    monkeypatch.setattr(children, "_STILL_SECONDS", 2)
    paddle.enable_static()
    paddle.static.Executor()  # it has its handler then
    crashed = "crashed, and its end stands still"
    assert children.in_child(_damage_the_heap, 60).failure == crashed
    # Nor has its parent, which waits for it.
    seen = children.in_child(lambda: children.in_child(_damage_the_heap, 60).failure,
                             60,
                             has_children=True)
    assert seen.value == crashed


def test_what_a_process_has_started_ends_with_it() -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-S", "-c", script],
                          stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE,
                          text=True) as process:
        started = Path(f"/proc/{int(process.stdout.readline())}/stat")
        assert started.exists()
        end_all(process.pid)
    end = time.monotonic() + 10
    while started.exists() and ") Z " not in started.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


def _looks(script: str, seconds: float) -> bool:
    """Whether a process that runs it is said to stand still within that time, being looked at for one second each."""
    command = [sys.executable, "-S", "-c", script]
    with subprocess.Popen(command) as process:
        end, stillness = time.monotonic() + seconds, Stillness(process.pid, 1)
        found = False
        while time.monotonic() < end and not found:
            time.sleep(0.2)
            found = stillness.look()
        end_all(process.pid)
    return found


_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', '{}'])"


@pytest.mark.parametrize("script, still", [("import time; time.sleep(60)", True),
                                           (_CHILD.format("import time; time.sleep(60)"), True),
                                           ("while True: pass", False),
                                           (_CHILD.format("while True: pass"), False)])
def test_stillness_is_that_of_all_that_a_process_has_started(script: str, still: bool) -> None:
    assert _looks(script, 10 if still else 4) == still
