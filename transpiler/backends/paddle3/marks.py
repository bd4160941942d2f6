"""What a program says that was rewritten: an attribute of its first op, which copies of the program have, too."""

from __future__ import annotations

from typing import Any

from transpiler.backends.base import OPTIMIZED


def mark(program: Any) -> None:
    program.global_block().front().set_bool_attr(OPTIMIZED, True)


def unmark(program: Any) -> None:
    for op in program.global_block().ops:
        if op.has_attr(OPTIMIZED):
            op.erase_attr(OPTIMIZED)


def mark_of(program: Any) -> bool:
    """Whether it was rewritten, and its order is to be held. Whoever adds inputs puts them in front."""
    return any(op.has_attr(OPTIMIZED) for op in program.global_block().ops)
