"""Functions that `paddle.jit.to_static` has made, in whatever a user has them."""

from __future__ import annotations

import weakref
from typing import Any, Dict, Iterator

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


def _names_of_functions(layer: Layer) -> Iterator[str]:
    """In the layer itself, or decorated in its class."""
    places = [vars(layer), *(vars(each) for each in type(layer).__mro__)]
    yield from dict.fromkeys(name for place in places for name, value in place.items()
                             if isinstance(value, StaticFunction))
