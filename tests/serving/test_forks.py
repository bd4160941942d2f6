"""What a fork of this process, or a fresh one, says of a program that Paddle may end on."""
from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Callable

import pytest

from transpiler.errors import InvalidProgramError, SavedFileError, TranspilerError
from transpiler.serving import forks
from transpiler.serving.apart import answer_apart
from transpiler.serving.forks import in_a_fork

_PRINTS = '''
import os
from transpiler.serving.apart import answer

def run(said):
    os.write(1, b'printed by an operator')
    return [each + 1 for each in said['given']]

answer(run)
print('and at the end')
'''


def dying(folder: Path, times: int, how: Callable[[], None]) -> Callable[[], None]:
    """Ends the process in so many calls; each leaves a file."""

    def work() -> None:
        calls = len(list(folder.iterdir()))
        (folder / str(calls)).touch()
        if calls < times:
            how()

    return work


def crash() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)


def test_what_a_fork_dies_of_once_is_no_damage(tmp_path: Path) -> None:
    in_a_fork(dying(tmp_path, 1, crash), 'x.pdmodel')
    assert len(list(tmp_path.iterdir())) == 2


def test_what_every_fork_dies_of_is_damage(tmp_path: Path) -> None:
    with pytest.raises(InvalidProgramError,
                       match='^x.pdmodel: damaged: Paddle ends with SIGSEGV when'):
        in_a_fork(dying(tmp_path, 9, crash), 'x.pdmodel')
    assert len(list(tmp_path.iterdir())) == 2


def stand_still() -> None:
    held = threading.Lock()
    with held:
        held.acquire()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, '_STILL_SECONDS', 2)


def test_a_fork_that_stands_still_is_made_once_more(tmp_path: Path, impatient: None) -> None:
    in_a_fork(dying(tmp_path, 1, stand_still), 'x.pdmodel')
    assert len(list(tmp_path.iterdir())) == 2


def test_what_stands_still_again_is_said_not_to_be_damaged(tmp_path: Path, impatient: None) -> None:
    with pytest.raises(TranspilerError, match='^x.pdmodel: a fork .* stands still') as raised:
        in_a_fork(dying(tmp_path, 9, stand_still), 'x.pdmodel')
    assert not isinstance(raised.value, InvalidProgramError)
    assert len(list(tmp_path.iterdir())) == 2


def work_long() -> None:
    end = time.process_time() + 5
    while time.process_time() < end:
        pass


def test_a_fork_that_works_has_all_the_time_that_it_needs(tmp_path: Path, impatient: None) -> None:
    in_a_fork(dying(tmp_path, 1, work_long), 'x.pdmodel')
    assert len(list(tmp_path.iterdir())) == 1


def test_a_fork_ends_with_the_call_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a person interrupts it."""
    forked = []

    def interrupted(reading: int, child: int) -> bytes:
        forked.append(child)
        raise KeyboardInterrupt

    monkeypatch.setattr(forks, '_read', interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_a_fork(stand_still, 'x.pdmodel')
    child, = forked
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


def refuse() -> None:
    raise SavedFileError('no such file')


@pytest.mark.parametrize('how, error, words',
                         [(lambda: os._exit(1), InvalidProgramError, 'Paddle ends when it reads'),
                          (refuse, SavedFileError, '^no such file$'),
                          (lambda: 1 // 0, InvalidProgramError, 'ZeroDivisionError')])
def test_what_is_said_or_ends_in_order_is_not_asked_twice(how: Callable[[], None], error: type,
                                                          words: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=words):
        in_a_fork(dying(tmp_path, 1, how), 'x.pdmodel')
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_fresh_process_prints_besides_is_no_answer(tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'prints.py').write_text(_PRINTS)
    monkeypatch.setenv('PYTHONPATH', str(tmp_path))
    assert answer_apart('prints', {'given': [1, 2]}, 'x.pdmodel') == [2, 3]
