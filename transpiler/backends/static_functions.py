"""Functions that `paddle.jit.to_static` has made, in whatever a user has them."""

from __future__ import annotations

import weakref
from typing import Any, Container, Dict, Iterator, List, Tuple

from paddle import Tensor
from paddle.jit.dy2static.program_translator import StaticFunction
from paddle.nn import Layer

from transpiler.errors import InvalidProgramError

_NOT_STATIC = (
    'memory_optimize takes a static program or a layer with static functions, not {} as it is: '
    'call paddle.jit.to_static on it first')


def static_functions(target: Any) -> Dict[str, Any]:
    """By what a user calls it: `target` itself, or the static functions of a layer and of the layers in it.

    Raises:
        InvalidProgramError: there is none.
    """
    if isinstance(target, StaticFunction):
        return {target.dygraph_function.__name__: target}
    found: Dict[str, Any] = {}
    for path, layer in target.named_sublayers(include_self=True):
        for name in _names_of_functions(layer):
            found[f'{path}.{name}' if path else name] = getattr(layer, name)
    if not found:
        raise InvalidProgramError(_NOT_STATIC.format(type(target).__name__))
    return found


def layer_of(function: Any) -> Any:
    """The layer whose method `function` is; None if it is no method."""
    held = function._class_instance
    return held() if isinstance(held, weakref.ref) else held


def saved_buffers(layer: Any) -> List[Tensor]:
    """Buffers of `layer`, and of those in it, that are part of its state: what forward changes is among them."""
    return [
        held for each in layer.sublayers(include_self=True) for name, held in each._buffers.items()
        if isinstance(held, Tensor) and name not in each._non_persistable_buffer_names_set
    ]


def holders(root: Any) -> Dict[str, Tuple[str, ...]]:
    """By name of a parameter or buffer: the paths, in `root`, of the layers that it is in, `root` ('') first. A shared one is
    where it is found first. Paddle may be tracing meanwhile, so it isn't asked for `named_parameters`."""
    found: Dict[str, Tuple[str, ...]] = {}
    paths = dict(root.named_sublayers(include_self=True))
    for path, layer in paths.items():
        chain = _chain(path, paths)
        for held in (*layer._parameters.values(), *layer._buffers.values()):
            if isinstance(held, Tensor):
                found.setdefault(held.name, chain)
    return found


def chain_of(root: Any, inner: Any) -> Tuple[str, ...]:
    """The paths, in `root`, of the layers that `inner` is in, with its own; of `root` alone if it is no layer of it."""
    paths = dict(root.named_sublayers(include_self=True))
    return _chain(next((path for path, layer in paths.items() if layer is inner), ''), paths)


def _chain(path: str, known: Container[str]) -> Tuple[str, ...]:
    ends = [at for at, letter in enumerate(path) if letter == '.']
    return ('', *(path[:at] for at in ends if path[:at] in known), *([path] if path else []))


def _names_of_functions(layer: Layer) -> Iterator[str]:
    """In the layer itself, or decorated in its class."""
    places = [vars(layer), *(vars(each) for each in type(layer).__mro__)]
    yield from dict.fromkeys(name for place in places for name, value in place.items()
                             if isinstance(value, StaticFunction))
