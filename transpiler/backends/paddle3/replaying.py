"""Dropouts made again from their masks, in Paddle 3's words.

Its values are written once, and zeros like the operand would be one more of its size: so the choice puts a number into a copy of
the operand where the mask is zero, and the rest is over the divisor.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional

from paddle import _C_ops
from paddle.base.core import CPUPlace

from transpiler.backends.operators import share_kept
from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.constants import constant_maker
from transpiler.backends.paddle3.naming import bare_kind
from transpiler.backends.settings import has_cpu_kernels_alone
from transpiler.errors import VerificationError
from transpiler.ir import CONVERT, DIVIDE, FILL, SELECT, Meaning, Replay

_NUMBER = 'full'
_REPLACES = 'masked_fill'  # Paddle 3.0 has no such operator
_MEANINGS: Mapping[str, Meaning] = MappingProxyType({
    'equal': Meaning.EQUAL,
    _REPLACES: Meaning.REPLACED,
    'divide': Meaning.QUOTIENT,
})
# Operators of which the result looks like the first operand, and the last is a number of its type.
_KEEP_LOOKS = (_REPLACES, 'divide')
KINDS = frozenset({CONVERT, SELECT, FILL, DIVIDE})


def replay_of(op: Any) -> Optional[Replay]:
    """How `op`, a dropout for training, can be made again; None if it cannot."""
    if bare_kind(op) != 'dropout' or not has_cpu_kernels_alone() or not hasattr(_C_ops, _REPLACES):
        return None
    names_in, names_out, attributes = op.get_input_names(), op.get_output_names(), given_attributes(
        op)
    share = _number(op.operand_source(names_in.index('p'))) if 'p' in names_in else None
    if share is None or not 0.0 <= share < 1.0 or attributes.get('is_test'):
        return None
    scales = attributes.get('mode') == 'upscale_in_train'
    return Replay(names_in.index('x'),
                  names_out.index('out'),
                  names_out.index('mask'),
                  share_kept(share) if scales else None,
                  in_copy=True)


def _number(value: Any) -> Optional[float]:
    """What every element of `value` is."""
    maker = constant_maker(value, _NUMBER)
    return None if maker is None else float(given_attributes(maker)['value'])


def said(kind: str, operands: List[Any], like: Any, fills: Optional[float]) -> List[Any]:
    """Values of new ops, in the program that is open, for an added op of `kind`; the last is its result, if any.

    Args:
        operands: what the op reads; its result, if that was written before, as it is by now.
        like: of the type of what is made.
        fills: of FILL, the number.
    """
    if kind == FILL:
        return [_C_ops.full([1], fills, like.dtype, CPUPlace())]
    if kind == CONVERT:  # truth is where the choice takes zero
        zero = _C_ops.full([1], 0.0, operands[0].dtype, CPUPlace())
        return [zero, _C_ops.equal(operands[0], zero)]
    if kind == SELECT:
        zero = _C_ops.full([1], 0.0, operands[1].dtype, CPUPlace())
        return [zero, _C_ops.masked_fill(operands[1], operands[0], zero)]
    return [_C_ops.divide(*operands)]


def added_facts(op: Any) -> Dict[str, Any]:
    """What the verifier is to know of one of these ops. Raises VerificationError if it says anything else."""
    kind = bare_kind(op)
    if kind == _NUMBER and list(given_attributes(op)['shape']) == [1]:
        return {'fills': float(given_attributes(op)['value'])}
    if kind not in _MEANINGS or given_attributes(op).keys() - {'stop_gradient', 'op_callstack'}:
        raise VerificationError(f'an operator {op.name()} was added')
    operands = op.operands_source()
    if kind in _KEEP_LOOKS and not (operands[0].dtype == operands[-1].dtype == op.result(0).dtype
                                    and operands[0].shape == op.result(0).shape):
        raise VerificationError(f'the {op.name()} that was added makes something else')
    return {'means': _MEANINGS[kind]}
