"""Facts about operators, asked of Paddle.

An operator has a variant that works in place if Paddle has one of its name with `_` behind it; of which operand into which
result, that one says once it is made, in a program that nobody runs.
"""

from __future__ import annotations

import math
from typing import Any, Dict, FrozenSet, Hashable, List, Tuple

from paddle import _C_ops, static
from paddle.base.core import Place
from paddle.base.libpaddle import pir

from transpiler.backends.extents import extents_of
from transpiler.backends.paddle3.aliases import DIALECT
from transpiler.backends.paddle3.attributes import given_attributes, plain_attributes
from transpiler.backends.paddle3.naming import bare_kind
from transpiler.backends.paddle3.operators import (ADD_TO_THE_FIRST, EACH_ELEMENT_ALONE,
                                                   NOT_IN_PLACE, SAME_BYTES, SIDE_EFFECTS, STATE,
                                                   STATE_IS_USED, UNSEEDED_RANDOM, work_of)
from transpiler.backends.paddle3.replaying import replay_of
from transpiler.ir import OpFacts

Slots = List[Tuple[int, ...]]  # by slot of an op: the positions of its arguments in the graph
_Pairs = Tuple[Tuple[int, int], ...]
_GRADIENT = '_grad'
_COLLECTIVE = ('ring_id', 'nranks')
# The executor's own lists: of the first it looks at no dims, of the others it takes open ones for numbers.
_ANY_DIMS, _OPEN_DIMS = ('reshape', 'squeeze', 'unsqueeze'), ('reshape_grad', 'add_grad')


class OpRegistry:
    """Answers what an operator may do, one instance (and one cache) an import."""

    def __init__(self) -> None:
        self._variants: Dict[Hashable, _Pairs] = {}

    def facts(self, op: Any, operands: Slots, results: Slots) -> OpFacts:
        """Facts of `op`, in positions of the graph. One of another dialect, and one with blocks, is unknown."""
        kind = bare_kind(op)
        if not op.name().startswith(DIALECT) or op.num_regions():
            return OpFacts(known=False)
        attributes = given_attributes(op)
        slots = self._in_place(op)
        if not all(_fits(kind, op.operand_source(a), op.result(b)) for a, b in slots):
            slots = ()
        in_place = tuple((i, j) for a, b in slots for i in operands[a][:1] for j in results[b][:1])
        shape_only = _shape_only(op, operands)
        collective = any(name in attributes for name in _COLLECTIVE)
        return OpFacts(random=_draws(kind, attributes),
                       side_effect=kind in SIDE_EFFECTS or not op.num_results(),
                       collective=collective,
                       asynchronous=collective,
                       in_place=in_place,
                       same_name=all(
                           _looks(op.operand_source(a)) == _looks(op.result(b)) for a, b in slots),
                       same_bytes=bool(in_place) and kind in SAME_BYTES,
                       onto=_onto(op, kind, operands, results),
                       shape_only=shape_only,
                       apart=bool(shape_only),
                       updates=_updates(op, kind, attributes, operands, results),
                       replay=replay_of(op),
                       work=work_of(kind),
                       **extents_of(kind, op.get_input_names(), operands, op.get_output_names(),
                                    results, _GRADIENT, kind in EACH_ELEMENT_ALONE))

    def _in_place(self, op: Any) -> _Pairs:
        """(operand, result) slots of the variant of `op` that works in place: the executor takes it for all of them, or not."""
        kind = bare_kind(op)
        if op.name().endswith('_') or kind in NOT_IN_PLACE or not hasattr(_C_ops, f'{kind}_'):
            return ()
        signature = (op.name(), tuple(_looks(v) for v in op.operands_source()),
                     repr(plain_attributes(op)))
        if signature not in self._variants:
            self._variants[signature] = _ask_variant(op)
        return self._variants[signature]


def _fits(kind: str, source: Any, target: Any) -> bool:
    """Whether the executor lets `target` take the buffer of `source`, by their types and by what it knows of their dims before it runs
    (`CanDoInplace` in its inplace_pass.cc)."""
    if not all(v.initialized() and v.is_dense_tensor_type() for v in (source, target)):
        return True
    if source.dtype != target.dtype:
        return False
    if kind in _ANY_DIMS:
        return True
    dims = [list(source.shape), list(target.shape)]
    if kind not in _OPEN_DIMS and any(-1 in each[1:] or each == [-1] for each in dims):
        return False
    return math.prod(dims[0]) == math.prod(dims[1])


def _ask_variant(op: Any) -> _Pairs:
    """Made on inputs that look like its operands; () where Paddle does not take them so, whatever it throws."""
    with static.program_guard(static.Program(), static.Program()):
        try:
            given = [_like(f'x{i}', v) for i, v in enumerate(op.operands_source())]
            made = getattr(_C_ops, f'{bare_kind(op)}_')(*given, *plain_attributes(op))
            first = made[0] if isinstance(made, (list, tuple)) else made
            pairs = pir.get_op_inplace_info(first.get_defining_op())
        except Exception:  # the bindings throw what the kernels' authors did
            return ()
    return tuple((operand, result) for result, operand in pairs.items()) if len(pairs) == 1 else ()


def _like(name: str, value: Any) -> Any:
    if not value.initialized():
        return None
    if value.is_combine():
        raise ValueError('a list of tensors')
    return _C_ops.data(name, value.shape, value.dtype, Place())


def _looks(value: Any) -> Hashable:
    if not value.initialized() or not value.is_dense_tensor_type():
        return value.initialized()
    return (value.dtype, tuple(value.shape))


def _onto(op: Any, kind: str, operands: Slots, results: Slots) -> _Pairs:
    if kind not in ADD_TO_THE_FIRST:
        return ()
    members = op.operand_source(0).type().as_vec_type().as_list()
    alike = all(member == op.result(0).type() for member in members)
    return ((operands[0][0], results[0][0]),) if alike else ()


def _draws(kind: str, attributes: Dict[str, Any]) -> bool:
    seeded = any('seed' in name for name in attributes)
    return not kind.endswith('_grad') and (seeded or kind in UNSEEDED_RANDOM)


def _shape_only(op: Any, operands: Slots) -> FrozenSet[int]:
    """Positions of operands of which Paddle says that the kernel reads no data, in whichever slots they stand."""
    sources = op.operands_source()
    unread = [v.initialized() and op.is_no_need_buffer(v) for v in sources]
    named = [v.id for v, each in zip(sources, unread) if each]
    if len(set(named)) < len(named):
        alone = _each_alone(op)
        read = {v.id for v, each in zip(sources, alone) if v.initialized() and not each}
        unread = [each and v.id not in read for v, each in zip(sources, unread)]
    return frozenset(at for slot, each in zip(operands, unread) if each for at in slot)


def _each_alone(op: Any) -> List[bool]:
    """By slot whether no data is read there. Paddle answers by value: so a copy with another value in each slot is asked."""
    with static.program_guard(static.Program(), static.Program()):
        mapping, sources = pir.IrMapping(), op.operands_source()
        try:
            given = [_like(f'x{i}', v) for i, v in enumerate(sources)]
            for source, value in zip(sources, given):
                if value is not None:
                    mapping.add(source, value)
            copy = op.clone(mapping, pir.CloneOptions(False, True, False))
            for at, value in enumerate(given):
                if value is not None:
                    copy.operand(at).set_source(value)
            return [value is not None and copy.is_no_need_buffer(value) for value in given]
        except Exception:  # the bindings throw what they do
            return [False] * len(sources)


def _updates(op: Any, kind: str, attributes: Dict[str, Any], operands: Slots,
             results: Slots) -> _Pairs:
    if kind not in STATE or any(attributes.get(name) for name in STATE_IS_USED):
        return ()
    names_in, names_out = op.get_input_names(), op.get_output_names()
    return tuple(
        (operands[names_in.index(a)][0], results[names_out.index(b)][0]) for a, b in STATE[kind])
