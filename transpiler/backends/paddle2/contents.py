"""Contents of small tensors that shapes are made of, as far as shape inference needs them.

`paddle.full([2, paddle.shape(x)[0], 128], 0.)` takes its shape from tensors; compile-time inference says -1. Following
the few operators that such tensors pass through gives the dims.
"""

from __future__ import annotations

import math
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Union

from paddle.base import core

Number = Union[int, float]
Contents = Optional[List[Number]]
# Slots through which an operator takes the shape of its result, the ones that win first.
_SHAPE_SLOTS = ('ShapeTensor', 'Shape', 'ShapeTensorList', 'expand_shapes_tensor')
_SIZE_SLOTS = ('SizeTensor', 'OutSize')  # of the height and width alone
_RESIZES = '_interp_v2'
_SHAPED = ('fill_constant', 'reshape2', 'expand_v2', 'gaussian_random', 'uniform_random', 'empty')
# What makes such contents, or takes its shape from them; all others matter only if some are known already.
CONTENT_KINDS = frozenset({'shape', *_SHAPED})
_MOST_ELEMENTS = 64


class KnownContents:
    """Contents by name, for the op list of one program, in program order."""

    def __init__(self) -> None:
        self._known: Dict[str, List[Number]] = {}
        self._rules: Dict[str, Callable[[core.OpDesc, core.BlockDesc], Contents]] = {
            'shape': self._shape,
            'fill_constant': self._fill,
            'slice': self._slice,
            'concat': self._joined,
            'stack': self._joined,
            'cast': self._same,
            'assign': self._same,
            'reshape2': self._same,
            'unsqueeze2': self._same,
            'squeeze2': self._same,
            'scale': self._scaled,
            'elementwise_mul': self._multiplied,
        }

    @property
    def any_known(self) -> bool:
        return bool(self._known)

    def knows_any(self, names: Iterable[str]) -> bool:
        return bool(self._known) and not self._known.keys().isdisjoint(names)

    def follow(self, op: core.OpDesc, kind: str, block: core.BlockDesc) -> None:
        """Notes what `op`, of this kind, writes, and gives its result the shape that its shape operands say."""
        if kind in _SHAPED:
            self._apply_shape(op, block)
        elif kind.endswith(_RESIZES):
            self._apply_size(op, block)
        rule = self._rules.get(kind)
        if rule is None and not self._known:
            return
        contents = rule(op, block) if rule else None
        for name in op.output_arg_names():
            self._known.pop(name, None)
        if contents is not None and len(contents) <= _MOST_ELEMENTS:
            self._known[op.output('Y' if kind == 'stack' else 'Out')[0]] = contents

    def of(self, op: core.OpDesc, slot: str) -> Contents:
        """Contents of all arguments of `slot`, one after the other; None if one is not known, or there is none."""
        if slot not in op.input_names() or not op.input(slot):
            return None
        parts = [self._known.get(name) for name in op.input(slot)]
        return None if any(p is None for p in parts) else [x for p in parts for x in p]

    def _apply_shape(self, op: core.OpDesc, block: core.BlockDesc) -> None:
        wanted = self._first_known(op, _SHAPE_SLOTS)
        if wanted is None:
            return
        source = _dims(block, op.input('X')[0]) if op.type() in ('reshape2', 'expand_v2') else []
        dims = _resolved(op.type(), wanted, source)
        variable = block.find_var_recursive(op.output('Out')[0].encode())
        if dims is not None and variable is not None:
            variable.set_shape(dims)

    def _apply_size(self, op: core.OpDesc, block: core.BlockDesc) -> None:
        wanted = self._first_known(op, _SIZE_SLOTS)
        source = _dims(block, op.input('X')[0])
        if wanted is None or source is None or len(source) != len(wanted) + 2:
            return
        behind = op.attr('data_layout') in ('NHWC', 'NDHWC', 'NWC')
        channels = source[-1:] if behind else source[1:2]
        dims = [*wanted, *channels] if behind else [*channels, *wanted]
        block.find_var_recursive(op.output('Out')[0].encode()).set_shape([source[0], *dims])

    def _first_known(self, op: core.OpDesc, slots: Iterable[str]) -> Optional[List[int]]:
        """The dims that these operands say, the ones that win first."""
        wanted = next((c for c in (self.of(op, slot) for slot in slots) if c), None)
        return wanted if wanted and all(isinstance(dim, int) for dim in wanted) else None

    def _shape(self, op: core.OpDesc, block: core.BlockDesc) -> Contents:
        dims = _dims(block, op.input('Input')[0])
        return None if dims is None or -1 in dims else list(dims)

    def _fill(self, op: core.OpDesc, block: core.BlockDesc) -> Contents:
        dims = _dims(block, op.output('Out')[0])
        value = op.attr('value')
        if dims is None or -1 in dims or math.prod(dims) > _MOST_ELEMENTS:
            return None
        if not math.isfinite(value):
            return None
        return [int(value) if float(value).is_integer() else value] * math.prod(dims)

    def _slice(self, op: core.OpDesc, block: core.BlockDesc) -> Contents:
        source = self.of(op, 'Input')
        if source is None or list(op.attr('axes')) != [0] or self.of(op, 'StartsTensorList'):
            return None
        return source[op.attr('starts')[0]:min(op.attr('ends')[0], len(source))]

    def _joined(self, op: core.OpDesc, block: core.BlockDesc) -> Contents:
        return self.of(op, 'X')

    def _same(self, op: core.OpDesc, block: core.BlockDesc) -> Contents:
        return self.of(op, 'X')

    def _scaled(self, op: core.OpDesc, block: core.BlockDesc) -> Contents:
        source, scale, bias = self.of(op, 'X'), op.attr('scale'), op.attr('bias')
        if source is None or scale != int(scale) or bias != int(bias):
            return None
        return [x * int(scale) + int(bias) for x in source]

    def _multiplied(self, op: core.OpDesc, block: core.BlockDesc) -> Contents:
        x, y = self.of(op, 'X'), self.of(op, 'Y')
        if x is None or y is None or len(x) != len(y):
            return None
        return [a * b for a, b in zip(x, y)]


def _dims(block: core.BlockDesc, name: str) -> Contents:
    variable = block.find_var_recursive(name.encode())
    return None if variable is None else list(variable.shape())


def _resolved(kind: str, wanted: Sequence[int], source: Contents) -> Contents:
    """`wanted` with what 0 and -1 stand for put in."""
    if kind not in ('reshape2', 'expand_v2'):
        return None if min(wanted, default=0) < 0 else list(wanted)
    if source is None or -1 in source:
        return None
    if kind == 'expand_v2':
        aligned = [1] * (len(wanted) - len(source)) + list(source)
        return [have if want == -1 else want for want, have in zip(wanted, aligned)]
    dims = [source[i] if d == 0 and i < len(source) else d for i, d in enumerate(wanted)]
    if -1 in dims:
        rest = math.prod(d for d in dims if d != -1)
        if not rest or math.prod(source) % rest:
            return None
        dims[dims.index(-1)] = math.prod(source) // rest
    return dims
