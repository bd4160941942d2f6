"""Results that hold more than their shape says.

`einsum` keeps the operands as it has turned them, for its gradient, in results without elements. Their names must stay
theirs alone: the gradient takes whatever tensor it finds there for such a copy. `rnn` makes a mask like its result, a byte an
element, whatever it drops; shape inference says nothing of it.
"""

from __future__ import annotations

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.workspaces import values_of
from transpiler.ir import NOTHING, Graph, Op, Size

_KEPT = {'einsum': ('Operands', 'InnerCache')}  # operands, and what holds a copy of each
_BARE_SHAPES = 'XShape'  # of the operands of such an op, for its gradient: never allocated
_MASKS = {'rnn': ('Out', 'DropoutState')}  # a result, and what has a byte for each of its elements


def count_caches(graph: Graph, op: Op, desc: framework_pb2.OpDesc) -> None:
    """Gives such results of `op`, imported from `desc`, the size that they can have at the most."""
    if desc.type in _MASKS:
        like, masks = _MASKS[desc.type]
        results = values_of(graph, desc.outputs, op.results)
        for result, mask in zip(results.get(like, ()), results.get(masks, ())):
            mask.size = None if result.shape is None else Size.product(result.shape)
    if desc.type not in _KEPT:
        return
    source, kept = _KEPT[desc.type]
    operands = values_of(graph, desc.inputs, op.operands).get(source, ())
    caches = values_of(graph, desc.outputs, op.results).get(kept, ())
    for operand, cache in zip(operands, caches):
        cache.size, cache.skipped = operand.size, True
    for bare in values_of(graph, desc.outputs, op.results).get(_BARE_SHAPES, ()):
        bare.size = NOTHING
