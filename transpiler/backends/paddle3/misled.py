"""Results of which Paddle 3 declares the wrong dims: of some operators, of products whose matrices are broadcast, and of all that is made
of those."""

from __future__ import annotations

from typing import Any, FrozenSet, Set

from transpiler.backends.paddle3.carried import walk
from transpiler.backends.paddle3.naming import bare_kind
from transpiler.backends.paddle3.operators import MISDECLARED
from transpiler.backends.products import product_dims

_PRODUCT = 'matmul'


def misled(program: Any) -> FrozenSet[str]:
    """Their ids."""
    found: Set[str] = set()
    for op in walk(program.global_block()):
        read = op.operands_source() if found else ()
        if _is_declared_wrongly(op) or any(v.initialized() and v.id in found for v in read):
            found.update(v.id for v in op.results() if v.initialized())
    return frozenset(found)


def _is_declared_wrongly(op: Any) -> bool:
    if bare_kind(op) != _PRODUCT:
        return bare_kind(op) in MISDECLARED
    x, y, made = (tuple(v.shape) for v in (*op.operands_source(), op.result(0)))
    return made != product_dims(x, y, made)
