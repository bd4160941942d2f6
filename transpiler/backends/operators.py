"""What Paddle does not say of its operators, by their names: their work, what they do with arrays, what some mean.

Names are those of Paddle 2.6; the back end of Paddle 3 says which of them its own stand for.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import Mapping

import numpy

from transpiler.ir import ArrayAccess, Meaning, OpFacts, Unit, Work

# Operators that compute more than they touch. All others take the time that moving their bytes takes.
_HEAVY = ('matmul', 'mul', 'bmm', 'mv', 'addmm', 'fc', 'conv', 'rnn', 'lstm', 'gru', 'attention',
          'einsum', 'cholesky', 'svd', 'qr', 'eig', 'inverse', 'solve', 'lu', 'fft', 'sort', 'topk',
          'top_k', 'argsort', 'nms', 'deformable', 'correlation', 'warpctc')
_NOT_HEAVY = ('elementwise_mul', 'cumsum', 'relu', 'elu', 'gelu', 'celu', 'selu', 'leaky_relu',
              'flatten', 'multiplex', 'softmax')

# Products whose operands' sizes do not tell how much they compute: their filters do.
_CONVOLUTIONS = ('conv', 'depthwise_conv')
# Operators that read only the parts of their operand that they give out.
_PICKS = ('gather', 'slice', 'strided_slice', 'index_select', 'index_sample', 'lookup_table',
          'take_along_axis', 'read_from_array', 'split', 'unbind', 'unstack')

# Operators that sort the rows of sequences by time step, or back: one copy a row.
_BY_ROWS = ('lod_tensor_to_array', 'array_to_lod_tensor', 'reorder_lod_tensor_by_rank')

# How much longer than an addition some operators take for a byte (Paddle 2.6.2 on a CPU): those that compute
# transcendental functions, draw random numbers, or read against the grain. Of names that begin alike the first counts.
_SLOW = MappingProxyType({
    'dropout_grad': 0.6,  # no random numbers
    'layer_norm_grad': 4.5,  # 6 on 2.6.2, 4.5 on 3.3.1
    'pow': 6.0,
    'dropout': 5.0,
    'pool': 2.5,
    'transpose': 2.0,
    'batch_norm': 1.8,
    'gelu': 1.7,
    'softmax': 1.5,
    'sigmoid': 1.4,
    'exp': 1.3,
    # They write where they read: no fresh pages.
    'sgd': 0.2,
    'momentum': 0.2,
    'adam': 0.3,
})

# Their generated kernels (CPU) leave the upper halves of the vector registers dirty. Where the math library takes its SSE
# path, as MKL does on AMD, a product right after them on the same thread runs 4 to 7 times slower.
_VECTOR_UPDATES = frozenset({'sgd', 'adam', 'adamw', 'merged_adam'})
# Any other operator in between cleans the registers, but for these, which were seen not to, or which compute nothing.
_NO_HELP = ('elementwise_add_grad', 'reshape', 'squeeze', 'unsqueeze', 'flatten')
_PRODUCTS = ('mul', 'matmul', 'bmm', 'conv', 'depthwise_conv', 'fc', 'lstm', 'gru', 'rnn')

_ARRAYS: Mapping[str, ArrayAccess] = MappingProxyType({
    'read_from_array': ArrayAccess.READS_ELEMENT,
    'write_to_array': ArrayAccess.WRITES_ELEMENT,
    'lod_tensor_to_array': ArrayAccess.WRITES_ALL,
    'assign': ArrayAccess.WRITES_ALL,
    'tensor_array_to_tensor_grad': ArrayAccess.APPENDS,
})
# These make two names share memory without saying so to the executor.
_SHARE_UNSAID = frozenset({'share_buffer', 'share_data', 'coalesce_tensor'})
# Their kernels compute each element by the same instructions wherever it stands: nothing that is computed in another way at the
# end of a tensor, as exponentials are. tests/backends/paddle2/test_row_kernels.py runs them on parts.
ELEMENTWISE = frozenset({'abs', 'clip', 'relu', 'scale', 'sign', 'square'})
_MEANINGS: Mapping[str, Meaning] = MappingProxyType({
    'cast': Meaning.CONVERTED,
    'where': Meaning.SELECT,
    'elementwise_div': Meaning.QUOTIENT,
    'slice': Meaning.ROWS,
    'assign_value': Meaning.ROW_NUMBERS,
    'index_add': Meaning.ROWS_ADDED,
})

# Values that a recurrent layer's kernel keeps per step and unit for its gradient: gates, and states of the cell.
_RNN_KEPT: Mapping[str, int] = MappingProxyType({'LSTM': 6, 'GRU': 4})


@lru_cache(maxsize=None)
def by_name(kind: str) -> OpFacts:
    """What the name of an operator tells; all else is as if nothing were known."""
    return OpFacts(shares_unsaid=kind in _SHARE_UNSAID,
                   array=_ARRAYS.get(kind),
                   means=_MEANINGS.get(kind),
                   work=_work(kind))


def kept_rows(mode: str, layers: int) -> int:
    """Rows, each of as many elements as the result has, that the kernel of recurrent layers keeps for its gradient: of each layer, and
    what goes between them."""
    return _RNN_KEPT.get(mode, 1) * layers + layers - 1


def share_kept(dropped: float) -> float:
    """What Paddle's own CPU kernel of a dropout that scales up divides by: in single precision, whatever the operand's."""
    return float(numpy.float32(1.0) - numpy.float32(dropped))


def _work(kind: str) -> Work:
    return Work(heavy=_is_heavy(kind),
                filters=kind.startswith(_CONVOLUTIONS),
                backward=kind.endswith('_grad'),
                picks=kind.startswith(_PICKS),
                by_rows=kind in _BY_ROWS,
                slowness=next((f for name, f in _SLOW.items() if kind.startswith(name)), 1.0),
                unit=_unit(kind))


def _unit(kind: str) -> Unit:
    if kind in _VECTOR_UPDATES:
        return Unit.VECTOR_UPDATE
    if kind.startswith(_PRODUCTS):
        return Unit.PRODUCT
    return Unit.NEITHER if kind.startswith(_NO_HELP) else Unit.OTHER


def _is_heavy(kind: str) -> bool:
    if any(kind.startswith(name) for name in _NOT_HEAVY):
        return False
    words = kind.replace('_v2', '').replace('_grad', '').split('_')
    return any(word.startswith(_HEAVY) for word in words) or kind.startswith(_HEAVY)
