"""Sees to it that what a backward part reads again is what its forward part has read: a caller may have changed it since."""

from __future__ import annotations

import ctypes
import functools
import weakref
import zlib
from dataclasses import dataclass
from typing import AbstractSet, Any, Callable, Iterable, List, Optional, Sequence, Tuple

import paddle
from paddle import Tensor

from transpiler.errors import ChangedTensorError

_CHANGED = (
    '{} has changed between a forward call and its backward, which makes again with it what forward did not '
    'keep. Change it when all backward() are through, or change a copy, or keep it all: '
    'memory_optimize(layer, recompute=False)')

Named = Sequence[Tuple[str, Optional[Tensor]]]  # by the names that a program knows them by


@dataclass
class Seen:
    """A tensor that backward reads again, what an error calls it, and what its bytes were. `held`: it, or one with its memory, as long
    as backward has not run."""

    said: str
    tensor: Callable[[], Optional[Tensor]]  # weak: where forward raises nobody holds it on
    digest: int
    held: Optional[Tensor] = None

    @property
    def changed(self) -> bool:
        now = self.tensor() if self.held is None else self.held
        return now is not None and _digest(now) != self.digest


def seen_ahead(again: AbstractSet[str], read: Named) -> List[Seen]:
    """What a call that is about to run reads, inputs, parameters and buffers, and its backward part reads `again`.

    It is looked at ahead of the call: what shares its memory may be what forward itself changes.
    """
    if not paddle.is_grad_enabled():
        return []
    found = {name: tensor for name, tensor in read if tensor is not None and name in again}
    return [
        Seen(repr(tensor.name), weakref.ref(tensor), _digest(tensor)) for tensor in found.values()
    ]


def check_unchanged(seen: List[Seen], again: AbstractSet[str], read: Iterable[str],
                    outputs: Named) -> None:
    """Has the backward part of a call that has just run raise ChangedTensorError if what it reads again has changed by then.

    Paddle's own versions do not tell: optimizers, `set_value` and static programs change tensors and leave them as they are.

    Args:
        seen: what the call has read, ahead of it.
        again: names of what backward reads again.
        read: names of all that the call has read.
        outputs: of the call.
    """
    trained = [out for _, out in outputs if isinstance(out, Tensor) and not out.stop_gradient]
    if not trained:
        return
    for each in seen:
        each.held = each.tensor()
    found = [*seen, *_seen_behind(again - frozenset(read), outputs)]
    if found:
        trained[0].register_hook(functools.partial(_check, found))  # all are of one node


def _seen_behind(again: AbstractSet[str], outputs: Named) -> List[Seen]:
    """Of what a call has made. The node of an output itself would hold it for good: what is held has no node."""
    return [
        Seen(f'output {at} (counted from 0, of shape {list(out.shape)})', weakref.ref(out),
             _digest(out), out.detach())
        for at, (name, out) in enumerate(outputs)
        if name in again and isinstance(out, Tensor) and out.is_dense() and out._is_initialized()
    ]


def _check(found: List[Seen], _: Tensor) -> None:
    for each in found:
        if each.changed:
            raise ChangedTensorError(_CHANGED.format(each.said))
    for each in found:
        each.held = None  # Paddle, too, lets go of them now


def _digest(tensor: Tensor) -> int:
    """Of its bytes, where they lie if that can be: a copy takes memory."""
    if not tensor.place.is_cpu_place() or not tensor.is_contiguous():
        return zlib.crc32(tensor.numpy().tobytes())
    size = tensor.numel().item() * tensor.element_size()
    return zlib.crc32((ctypes.c_ubyte * size).from_address(tensor.data_ptr())) if size else 0


class RunsInOne:
    """Tells of each call of a partial program that leaves no place between running its program and handing on: what it is about to
    read where Paddle looks whether there is any, what came of it where Paddle puts it in its place.

    Args:
        partial: the partial program.
        owner: of the methods that put outputs in their places.
        places: the names of these.
        ahead: is given inputs and parameters, and says what has been seen.
        behind: is given that and the outputs.
    """

    def __init__(self, partial: Any, owner: Any, places: Sequence[str],
                 ahead: Callable[[Any, Any], List[Seen]], behind: Callable[[List[Seen], Any],
                                                                           None]) -> None:
        self._partial, self._owner, self._places = partial, owner, places
        self._ahead, self._behind = ahead, behind
        self._noted: List[Any] = []  # inputs, then parameters, then outputs, which are empty as yet
        self._seen: List[Seen] = []
        partial._valid_vars = self._note
        for name in places:
            setattr(owner, name, functools.partial(self._placed, name))

    def remove(self) -> None:
        del self._partial.__dict__['_valid_vars']
        for name in self._places:
            del self._owner.__dict__[name]

    def _note(self, variables: Any) -> Any:
        self._noted.append(variables or ())
        if len(self._noted) == 3:
            inputs, parameters, _ = self._noted
            self._noted = []
            self._seen = self._ahead(inputs, parameters)
        return type(self._partial)._valid_vars(self._partial, variables)

    def _placed(self, name: str, outputs: Any) -> Any:
        seen, self._seen = self._seen, []
        self._behind(seen, outputs)
        return getattr(type(self._owner), name)(self._owner, outputs)
