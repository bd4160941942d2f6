"""What a step of training holds besides the program of its layer: tensors of layers, gradients, and what an optimizer keeps, whichever
Paddle it is."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from types import MappingProxyType, SimpleNamespace
from typing import Any, Iterator, List, Mapping

import paddle
from paddle.base import core, framework
from paddle.optimizer import Optimizer

from transpiler.backends.base import StepBytes
from transpiler.errors import InvalidArgumentError

_KNOWN = 'paddle.optimizer.'
_UNKNOWN = ('optimizer: what {} keeps is not known; those of paddle.optimizer but LBFGS are. Leave it out, and take what it keeps '
            'from the budget')  # yapf: disable

# What the update of one parameter makes for itself at the most, as tests/backends/layers_anywhere.py measures it: tensors as large as the
# parameter, one but for these, and some numbers.
_AS_LARGE: Mapping[str, int] = MappingProxyType({'Rprop': 5})
_NUMBERS = 64


def step_bytes(layer: Any, optimizer: Any) -> StepBytes:
    """Of a step that trains `layer`, which may be None, with `optimizer`, which may be None, too.

    Raises:
        InvalidArgumentError: it is no optimizer, or one of which nobody knows what it keeps.
    """
    updated = [] if optimizer is None else _parameters(optimizer)
    held = [] if layer is None else [*layer.parameters(), *layer.buffers()]
    tensors = {each.name: _bytes(each.shape, each.dtype) for each in (*held, *updated)}
    trained = {each.name: each for each in (*held, *updated) if not each.stop_gradient}
    gradients = [tensors[name] for name in trained]
    own = frozenset(each.name for each in layer.parameters()) if layer is not None else frozenset()
    if optimizer is None:
        return StepBytes(tensors, sum(gradients), parameters=own)
    made = _NUMBERS + max(gradients, default=0) * _AS_LARGE.get(type(optimizer).__name__, 1)
    updating = made + sum(gradients) * _copies_of_gradients(optimizer, updated)
    return StepBytes(tensors,
                     sum(gradients),
                     sum(_states(optimizer, updated)),
                     updating,
                     type(optimizer).__name__,
                     parameters=own)


def _parameters(optimizer: Any) -> List[Any]:
    if not isinstance(optimizer, Optimizer):
        raise InvalidArgumentError(
            f'optimizer takes a paddle.optimizer.Optimizer, not {type(optimizer).__name__}')
    if not type(optimizer).__module__.startswith(_KNOWN) or type(optimizer).__name__ == 'LBFGS':
        raise InvalidArgumentError(_UNKNOWN.format(type(optimizer).__name__))
    groups = optimizer._param_groups or []
    return [
        p for group in groups for p in (group['params'] if isinstance(group, dict) else [group])
    ]


def _states(optimizer: Any, parameters: List[Any]) -> Iterator[int]:
    """Bytes of all that it makes for `parameters` at its first step, and of the learning rate: told by itself, as a twin of it that
    only notes what it would make."""
    made: List[int] = [_bytes([], 'float32')]

    def note(name: str, param: Any, dtype: Any = None, fill_value: float = 0.0, shape: Any = None,
             type: Any = None, device: Any = None) -> None:  # yapf: disable
        made.append(_bytes(param.shape if shape is None else shape, dtype or param.dtype))

    def note_master(param: Any) -> Any:
        made.append(_bytes(param.shape, 'float32'))
        return SimpleNamespace(name=param.name, shape=param.shape, dtype=paddle.float32)

    twin = copy.copy(optimizer)
    twin.__dict__.update(_add_accumulator=note, _create_master_weight=note_master,
                         _accumulators=defaultdict(dict), _already_create_accumulater=set(),
                         _already_create_accumulator=set())  # yapf: disable
    trained = [each for each in parameters if not each.stop_gradient]
    twin._create_accumulators(framework.default_main_program().global_block(), trained)
    yield from made


def _copies_of_gradients(optimizer: Any, parameters: List[Any]) -> int:
    """How many gradients there are of each parameter, besides its own, while the optimizer works: clipped, and with decay added.
    In mixed precision, too, where it casts them."""
    groups = [each for each in optimizer._param_groups or [] if isinstance(each, dict)]
    clips = [optimizer._grad_clip, *(group.get('grad_clip') for group in groups)]
    decays = [optimizer.regularization, *(group.get('regularization') for group in groups),
              *(getattr(each, 'regularizer', None) for each in parameters)]  # yapf: disable
    casts = 2 * bool(getattr(optimizer, '_master_grad', False))
    return casts + sum(any(each is not None for each in kind) for kind in (clips, decays))


def _bytes(shape: Any, dtype: Any) -> int:
    return math.prod(shape) * core.size_of_dtype(
        getattr(paddle, dtype) if isinstance(dtype, str) else dtype)
