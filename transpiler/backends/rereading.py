"""Sees to it that what a backward part reads again is what its forward part has read: a caller may have changed it since."""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass
from typing import AbstractSet, Iterable, List, Mapping, Optional, Tuple

from paddle import Tensor

from transpiler.errors import ChangedTensorError

_CHANGED = (
    '{!r} has changed between a forward call and its backward, which makes again with it what forward did not '
    'keep. Update when all backward() are through, or keep it all: memory_optimize(layer, recompute=False)'
)


def check_unchanged(again: AbstractSet[str], inputs: Mapping[str, Tensor],
                    parameters: Iterable[Tensor], outputs: Iterable[Optional[Tensor]]) -> None:
    """Has the backward part of a call that has just run raise ChangedTensorError if what it reads again has changed by then.

    Paddle's own versions do not tell: optimizers, `set_value` and static programs change tensors and leave them as they are.

    Args:
        again: names of what it reads again.
        inputs: of the call, by the names that its program knows them by.
        parameters: of that program, buffers included.
        outputs: of the call.
    """
    trained = [out for out in outputs if isinstance(out, Tensor) and not out.stop_gradient]
    if trained and again:
        named = {p.name: p for p in parameters}
        reread = _Reread(_as_they_are(inputs, again), _as_they_are(named, again))
        trained[0].register_hook(reread.check)  # all are of one node, whichever has a gradient


@dataclass
class _Reread:
    """What one call has read and backward reads again, as it was then."""

    inputs: List[Tuple[Tensor, int]]
    parameters: List[Tuple[Tensor, int]]

    def check(self, _: Tensor) -> None:
        for tensor, digest in (*self.inputs, *self.parameters):
            if _digest(tensor) != digest:
                raise ChangedTensorError(_CHANGED.format(tensor.name))
        self.inputs.clear()  # Paddle, too, lets go of them now


def _as_they_are(tensors: Mapping[str, Tensor],
                 again: AbstractSet[str]) -> List[Tuple[Tensor, int]]:
    return [(tensor, _digest(tensor)) for name, tensor in tensors.items() if name in again]


def _digest(tensor: Tensor) -> int:
    """Of its bytes, where they lie if that can be: a copy takes memory."""
    if not tensor.place.is_cpu_place() or not tensor.is_contiguous():
        return zlib.crc32(tensor.numpy().tobytes())
    size = tensor.numel().item() * tensor.element_size()
    return zlib.crc32((ctypes.c_ubyte * size).from_address(tensor.data_ptr())) if size else 0
