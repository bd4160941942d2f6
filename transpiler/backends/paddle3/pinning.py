"""The order of a rewritten program is the order in which it runs; other programs keep Paddle's own.

Paddle reads a flag when a program runs for the first time (3.3) or at each run (3.0): it is on while one of ours does. Without
blocks the thread that runs a program goes from op to op. Ops of loops and branches are short, and that thread would leave the
one that frees far behind, where others want the processor, too: it hands on op by op instead. But then what a loop begins with is
gone as it begins, whoever names it later, as who fetches it does: there, too, the thread goes from op to op.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, List, Optional

import paddle
from paddle.base import executor

from transpiler.backends.paddle3.blocks import has_blocks, loses_what_is_named_behind
from transpiler.backends.paddle3.fetching import refuse_what_is_gone
from transpiler.backends.paddle3.marks import mark_of

FLAG, FLAG_WITH_BLOCKS = 'FLAGS_enable_pir_in_executor_trace_run', 'FLAGS_new_executor_sequential_run'


class _Switch:
    """A flag is on while anyone is inside; who leaves last puts it back to what it was."""

    def __init__(self, flag: str) -> None:
        self._flag = flag
        self._lock, self._inside, self._was = threading.Lock(), 0, False

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._was = paddle.get_flags([self._flag])[self._flag]
                paddle.set_flags({self._flag: True})
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    paddle.set_flags({self._flag: self._was})


_FROM_OP_TO_OP, _ONE_BY_ONE = _Switch(FLAG), _Switch(FLAG_WITH_BLOCKS)


class OrderedExecutor(executor._StandaloneExecutor):
    """Runs programs that are marked in their order, and all others as ever.

    Raises:
        MergedVariableError: a marked program is to give out what it has let go of.
    """

    def __init__(self, place: Any, plan: Any, scope: Any) -> None:
        programs = [plan.ir_program(job) for job in plan.job_types()]
        marked = [program for program in programs if program is not None and mark_of(program)]
        for program in marked:
            refuse_what_is_gone(program)
        self._switch = _switch_for([program.global_block() for program in marked])
        with self._order():
            super().__init__(place, plan, scope)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with self._order():
            return super().run(*args, **kwargs)

    def _order(self) -> Any:
        return self._switch.on() if self._switch else contextlib.nullcontext()


def hold_orders() -> None:
    """From now on, every Executor runs programs that are marked in their order."""
    executor._StandaloneExecutor = OrderedExecutor


def _switch_for(blocks: List[Any]) -> Optional[_Switch]:
    """Of marked programs, by their main blocks."""
    if not blocks:
        return None
    one_by_one = any(map(has_blocks, blocks)) and not any(map(loses_what_is_named_behind, blocks))
    return _ONE_BY_ONE if one_by_one else _FROM_OP_TO_OP
