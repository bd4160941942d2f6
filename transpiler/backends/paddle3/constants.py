"""Numbers that a program says by ops that make them of their attributes alone."""

from __future__ import annotations

from typing import Any, Optional

from transpiler.backends.paddle3.aliases import gives_second_name, in_place_results
from transpiler.backends.paddle3.blocks import WHILE, YIELD
from transpiler.backends.paddle3.naming import bare_kind


def constant_maker(value: Any, *kinds: str) -> Optional[Any]:
    """The op, of one of the `kinds`, that says what `value` is whenever the program runs; None if it is computed, or may be written
    over."""
    maker = value.get_defining_op() if value is not None and value.initialized() else None
    if maker is None or bare_kind(maker) not in kinds or maker.num_operands():
        return None
    return None if any(_may_write(op, value) for op in value.all_used_ops()) else maker


def _may_write(op: Any, value: Any) -> bool:
    """By this name or by another one, which a loop gives what it begins with, and a block what it hands on."""
    over = in_place_results(op).values()
    return (op.name() in (WHILE, YIELD) or gives_second_name(op) or
            any(op.operand_source(operand).is_same(value) for operand in over))
