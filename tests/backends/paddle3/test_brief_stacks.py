"""Call stacks of the ops that a plan makes: none is asked for, and Python's own function is there for everybody else."""
from __future__ import annotations

import threading
import traceback
from typing import Any, List

import pytest

from benchmarks.programs import PROGRAMS
from benchmarks.programs.case import Case, Options
from tests.backends.paddle3.running import assert_equal, in_order, optimized, run
from transpiler.backends.paddle3.brief_stacks import brief_stacks


def transformer() -> Case:
    return PROGRAMS['transformer_gelu'](Options(batch_size=2, length=16, width=32, layers=1))


class Asked:
    """Counts who asks for a stack."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times, self._usual = 0, traceback.extract_stack
        monkeypatch.setattr(traceback, 'extract_stack', self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.times += 1
        return self._usual(*args, **kwargs)


def test_planning_asks_for_no_stack_and_its_ops_say_who_made_them(
        monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    case = transformer()
    theirs = {op.id(): op.callstack for op in case.main.global_block().ops}
    assert theirs and asked.times > len(theirs) // 2
    asked.times = 0
    assert optimized(case, recompute='max').changed
    assert asked.times == 0
    assert traceback.extract_stack is asked
    left = {op.id(): op.callstack for op in case.main.global_block().ops}
    kept, new = left.keys() & theirs.keys(), left.keys() - theirs.keys()
    assert kept and all(left[op] == theirs[op] for op in kept)
    ours = [left[op] for op in new if any('memory_optimize' in line for line in left[op] or ())]
    assert len(ours) > 4 and all(len(stack) == 2 for stack in ours)
    with in_order():
        plain = run(transformer(), 2)
    assert_equal(plain, run(case, 2))


def test_others_get_their_stacks_meanwhile() -> None:
    usual, found = traceback.extract_stack, []  # type: Any, List[Any]
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait(60)
        found.append(traceback.extract_stack())
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with brief_stacks():
        with brief_stacks():
            inside.set()
            assert done.wait(60)
        here = traceback.extract_stack()
        limited = traceback.extract_stack(limit=1)
    thread.join()
    assert traceback.extract_stack is usual
    assert [each.name for each in here] == ['memory_optimize']
    assert limited[-1].name == test_others_get_their_stacks_meanwhile.__name__
    assert found[0][-1].name == 'other'


def test_two_threads_leave_one_after_the_other_in_any_order() -> None:
    usual = traceback.extract_stack
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with brief_stacks():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with brief_stacks():
        thread.start()
        assert inside.wait(60)
    assert traceback.extract_stack is not usual
    assert traceback.extract_stack()[-1].name != 'memory_optimize'
    leave.set()
    thread.join()
    assert traceback.extract_stack is usual


def test_an_error_inside_puts_it_back() -> None:
    usual = traceback.extract_stack
    with pytest.raises(ValueError):
        with brief_stacks():
            raise ValueError
    assert traceback.extract_stack is usual
