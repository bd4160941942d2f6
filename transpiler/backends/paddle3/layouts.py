"""Copies in other layouts: of what a kernel of oneDNN has made, Paddle makes one for each other kernel that reads it.

Paddle takes kernels of oneDNN by itself where the CPU has none for that element type, as for most in bfloat16.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, FrozenSet, Iterator, Mapping, Sequence

from paddle.base import core

from transpiler.backends.paddle3.aliases import DIALECT
from transpiler.backends.paddle3.naming import COMBINE, bare_kind

_CPU, _ONEDNN = '(CPU', '(ONEDNN'


def relaid(op: Any) -> FrozenSet[int]:
    """Positions of the operands of which Paddle makes such copies for `op`, those in lists counted one by one."""
    if not op.name().startswith(DIALECT) or op.num_regions() or runs_onednn(op):
        return frozenset()
    makers = [value.get_defining_op() if value.initialized() else None for value in _members(op)]
    return frozenset(
        at for at, maker in enumerate(makers) if maker is not None and runs_onednn(maker))


def _members(op: Any) -> Iterator[Any]:
    for value in op.operands_source():
        maker = value.get_defining_op() if value.initialized() else None
        if maker is not None and maker.name() == COMBINE:
            yield from maker.operands_source()
        else:
            yield value


def runs_onednn(op: Any) -> bool:
    """Whether the CPU has no kernel for `op`, and oneDNN has one."""
    if not op.name().startswith(DIALECT) or op.num_regions():
        return False
    dense = [
        v for v in (*op.operands_source(), *op.results())
        if v.initialized() and v.is_dense_tensor_type()
    ]
    return bool(dense) and _onednn_alone(bare_kind(op), dense[0].dtype.name.lower())


@lru_cache(maxsize=None)
def _onednn_alone(kind: str, dtype: str) -> bool:
    kernels = [each for each in _registered().get(kind, ()) if each.endswith(f' {dtype})')]
    return any(each.startswith(_ONEDNN)
               for each in kernels) and not any(each.startswith(_CPU) for each in kernels)


@lru_cache(maxsize=1)
def _registered() -> Mapping[str, Sequence[str]]:
    """By kind: '(place, layout, element type)' of each kernel."""
    found: Mapping[str, Sequence[str]] = core._get_registered_phi_kernels()
    return found
