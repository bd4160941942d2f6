"""What a program says that was rewritten: on the name of the layer that made an op, which copies of the program have, too, and files.

Of the attributes that Paddle does not know files have none. What cuts rows out, or makes room for rows, says which share of the batch
they are.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Mapping, Optional

from transpiler.backends.base import OPTIMIZED
from transpiler.backends.paddle3.aliases import DIALECT
from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.naming import DECLARATIONS

_LAYER, _MARK = 'struct_name', f'{OPTIMIZED}/'
_ROWS = re.compile(r'transpiler\.rows\.of\.(\d+)/')


def mark(program: Any) -> None:
    """Marks an op that makes something: declarations have no such name in files."""
    ops = program.global_block().ops
    op = next((op for op in ops if op.name().startswith(DIALECT) and op.name() not in DECLARATIONS),
              ops[0])
    op.set_str_attr(_LAYER, _layer(op) + _MARK)


def unmark(program: Any) -> None:
    for op in program.global_block().ops:
        if _is_marked(op):
            left = without_mark(given_attributes(op)).get(_LAYER)
            if left is None:
                op.erase_attr(_LAYER)
            else:
                op.set_str_attr(_LAYER, left)


def mark_of(program: Any) -> bool:
    """Whether it was rewritten, and its order is to be held."""
    return any(_is_marked(op) for op in program.global_block().ops)


def without_mark(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Attributes of an op as they were before it was marked."""
    name = attributes.get(_LAYER)
    if not isinstance(name, str) or not name.endswith(_MARK):
        return attributes
    left = name[:-len(_MARK)]
    return {
        **{
            k: v for k, v in attributes.items() if k != _LAYER
        },
        **({
            _LAYER: left
        } if left else {})
    }


def mark_rows(op: Any, parts: int) -> None:
    """Says that the first result of `op` has the rows of one of so many parts of the batch."""
    op.set_str_attr(_LAYER, f'transpiler.rows.of.{parts}/')


def rows_of(op: Any) -> Optional[Fraction]:
    """Which share of the batch the rows of its result are; None if it does not say."""
    found = _ROWS.fullmatch(_layer(op))
    return Fraction(1, int(found.group(1))) if found else None


def scope_of(op: Any) -> str:
    """The layers that made `op`, as a scope of names: 'encoder/layer_1'."""
    name = _layer(op) if rows_of(op) is None else ''
    return (name[:-len(_MARK)] if name.endswith(_MARK) else name).strip('/')


def _layer(op: Any) -> str:
    return str(given_attributes(op)[_LAYER]) if op.has_attr(_LAYER) else ''


def _is_marked(op: Any) -> bool:
    return _layer(op).endswith(_MARK)
