"""What Paddle 2.6 does in Python each time that a program is built or run, and takes longer than either: done once, or not at all."""
from __future__ import annotations

import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Tuple

from paddle.base import core, executor, framework
from paddle.base.layers import math_op_patch

_MOST = 4  # programs that are kept


def _two_frames() -> List[Tuple[Any, str, int]]:
    """Of `inspect.stack()` what Paddle reads of it: file and line of who called, and of its caller."""
    frames = (sys._getframe(depth) for depth in (1, 2))
    return [(frame, frame.f_code.co_filename, frame.f_lineno) for frame in frames]


def build_quicker() -> None:
    """`x + y` on variables looks up no sources of all its callers for a warning, which takes most of the time of building."""
    math_op_patch.inspect = SimpleNamespace(stack=_two_frames)


class Prepared:
    """Programs as executors run them, with feeds and fetches as ops, by all that decides about them."""

    def __init__(self) -> None:
        self._known: Dict[Tuple[Any, ...], Tuple[framework.Program, core.ProgramDesc]] = {}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Executors that are new to a program take what was prepared for another one."""
        usual = executor._ExecutorCache._get_program_and_executor

        def program_and_executor(cache: Any, asked: Any) -> Tuple[Any, Any]:
            if not _is_plain(asked.program):
                return usual(cache, asked)
            program, described = self._of(asked)
            plan = core.Plan([core.Job("default")], {"default": described})
            return program, executor._StandaloneExecutor(asked.place, plan, asked.scope)

        executor._ExecutorCache._get_program_and_executor = program_and_executor
        try:
            yield
        finally:
            executor._ExecutorCache._get_program_and_executor = usual

    def _of(self, asked: Any) -> Tuple[framework.Program, core.ProgramDesc]:
        key = _key(asked)
        if key not in self._known:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = prepare(asked)
        return self._known[key]


def prepare(asked: Any) -> Tuple[framework.Program, core.ProgramDesc]:
    """A program that knows what to feed, and what runs. Paddle writes the latter back to a program, with an object for each variable and
    op, and copies that: objects that nobody reads."""
    program = executor._add_feed_fetch_ops(asked.program, asked.feed, asked.fetch_list,
                                           asked.feed_var_name, asked.fetch_var_name, True)
    described, nothing = core.ProgramDesc(program.desc), core.ProgramDesc()
    kept = executor._get_feed_fetch_var_names(asked.feed, asked.fetch_list)
    core.apply_pass(described, nothing, "buffer_shared_inplace_pass", {
        "use_cuda": core.is_compiled_with_cuda(),
        "mem_opt_skip_vars": kept
    }, {
        "use_cuda": "bool",
        "mem_opt_skip_vars": "list[str]"
    })
    return program, described


def _is_plain(program: Any) -> bool:
    """Not compiled, and nothing else is to be done to it."""
    return isinstance(
        program,
        framework.Program) and not (program._graph or program._pipeline_opt or program._pass_opt)


def _key(asked: Any) -> Tuple[Any, ...]:
    program = asked.program
    fetched = tuple(each if isinstance(each, str) else each.name for each in asked.fetch_list)
    return (program.desc.serialize_to_string(), getattr(program, "lr_scheduler", None),
            tuple(asked.feed), fetched, asked.feed_var_name, asked.fetch_var_name)
