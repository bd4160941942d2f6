"""What a program says that was rewritten: on the name of the layer that made an op, which copies of the program have, too, and files.

Of the attributes that Paddle does not know files have none.
"""

from __future__ import annotations

from typing import Any, Mapping

from transpiler.backends.base import OPTIMIZED
from transpiler.backends.paddle3.aliases import DIALECT
from transpiler.backends.paddle3.naming import DECLARATIONS

_LAYER, _MARK = 'struct_name', f'{OPTIMIZED}/'


def mark(program: Any) -> None:
    """Marks an op that makes something: declarations have no such name in files."""
    ops = program.global_block().ops
    op = next((op for op in ops if op.name().startswith(DIALECT) and op.name() not in DECLARATIONS),
              ops[0])
    op.set_str_attr(_LAYER, _layer(op) + _MARK)


def unmark(program: Any) -> None:
    for op in program.global_block().ops:
        if _is_marked(op):
            left = without_mark(op.attrs()).get(_LAYER)
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


def scope_of(op: Any) -> str:
    """The layers that made `op`, as a scope of names: 'encoder/layer_1'."""
    name = _layer(op)
    return (name[:-len(_MARK)] if name.endswith(_MARK) else name).strip('/')


def _layer(op: Any) -> str:
    return str(op.attrs()[_LAYER]) if op.has_attr(_LAYER) else ''


def _is_marked(op: Any) -> bool:
    return _layer(op).endswith(_MARK)
