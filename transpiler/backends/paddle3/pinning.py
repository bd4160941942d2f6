"""The order of a rewritten program is the order in which it runs; other programs keep Paddle's own.

Paddle reads a flag when a program runs for the first time (3.3) or at each run (3.0): it is on while one of ours does. Without
blocks the thread that runs a program goes from op to op. Ops of loops and branches are short, and that thread would leave the
one that frees far behind, where others want the processor, too: it hands on op by op instead.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator

import paddle
from paddle.base import executor

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


_SWITCHES = {
    has_blocks: _Switch(FLAG_WITH_BLOCKS if has_blocks else FLAG) for has_blocks in (False, True)
}


class OrderedExecutor(executor._StandaloneExecutor):
    """Runs programs that are marked in their order, and all others as ever."""

    def __init__(self, place: Any, plan: Any, scope: Any) -> None:
        programs = [plan.ir_program(job) for job in plan.job_types()]
        marked = [program for program in programs if program is not None and mark_of(program)]
        self._switch = _SWITCHES[any(map(_has_blocks, marked))] if marked else None
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


def _has_blocks(program: Any) -> bool:
    return any(op.num_regions() for op in program.global_block().ops)
