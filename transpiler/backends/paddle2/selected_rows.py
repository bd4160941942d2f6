"""How large gradients of chosen rows of a table can be.

A sparse gradient holds one row for each id that was looked up, and the same row twice if an id came twice; sums hold all
rows of their operands. Merging only makes fewer: how many depends on the ids of the batch, so that no sum of sizes is
exact here. What is counted is the most that there can be.
"""

from __future__ import annotations

from typing import Optional

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.workspaces import item_bytes, values_of
from transpiler.ir import Graph, Op, Size, ValueKind

_IDS = 'Ids'
# Gives the rows themselves as a tensor, though shape inference says that it is as large as the table.
_ROWS_ALONE = 'get_tensor_from_selected_rows'


def bound_rows(graph: Graph, op: Op, desc: framework_pb2.OpDesc) -> None:
    """Gives the results of `op`, imported from `desc`, that are selected rows their shape and size at the most."""
    made = [graph.values[v] for v in op.writes()]
    for value in made:
        is_new = value.kind is ValueKind.SELECTED_ROWS and value.size is None
        if value.shape is not None and (is_new or desc.type == _ROWS_ALONE):
            rows = _rows(graph, op, desc)
            value.shape = None if rows is None else (rows, *value.shape[1:])
            value.size = None if rows is None else Size.product(value.shape) * item_bytes(
                value.dtype)


def _rows(graph: Graph, op: Op, desc: framework_pb2.OpDesc) -> Optional[Size]:
    sparse = [graph.values[v] for v in op.operands if v >= 0]
    sparse = [v for v in sparse if v.kind is ValueKind.SELECTED_ROWS]
    if sparse:
        return None if any(v.size is None for v in sparse) else Size.total(
            v.shape[0] for v in sparse)
    ids = values_of(graph, desc.inputs, op.operands).get(_IDS, ())
    return Size.product(ids[0].shape) if ids and ids[0].shape is not None else None
