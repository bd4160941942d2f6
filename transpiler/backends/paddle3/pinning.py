"""The order of a rewritten program is the order in which it runs; other programs keep Paddle's own.

Paddle reads a flag when a program runs for the first time (3.3) or at each run (3.0): it is on while one of ours does. Without
blocks the thread that runs a program goes from op to op. Ops of loops and branches are short, and that thread would leave the
one that frees far behind, where others want the processor, too: it hands on op by op instead. But then what a loop begins with is
gone as it begins, whoever names it later, as who fetches it does: there, too, the thread goes from op to op.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, List, Optional

import paddle
from paddle.base import executor

from transpiler.backends.paddle3.blocks import has_blocks, loses_what_is_named_behind
from transpiler.backends.paddle3.fetching import refuse_what_is_gone
from transpiler.backends.paddle3.marks import mark_of
from transpiler.backends.paddle3.while_inside import PutBack, WhileInside

FLAG, FLAG_WITH_BLOCKS = 'FLAGS_enable_pir_in_executor_trace_run', 'FLAGS_new_executor_sequential_run'


def _turned_on(flag: str) -> PutBack:
    was = paddle.get_flags([flag])[flag]
    paddle.set_flags({flag: True})
    return lambda: paddle.set_flags({flag: was})


_FROM_OP_TO_OP = WhileInside(partial(_turned_on, FLAG))
_ONE_BY_ONE = WhileInside(partial(_turned_on, FLAG_WITH_BLOCKS))


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


def _switch_for(blocks: List[Any]) -> Optional[WhileInside]:
    """Of marked programs, by their main blocks."""
    if not blocks:
        return None
    one_by_one = any(map(has_blocks, blocks)) and not any(map(loses_what_is_named_behind, blocks))
    return _ONE_BY_ONE if one_by_one else _FROM_OP_TO_OP
