"""What BuildStrategy.fuse_elewise_add_act_ops makes one op of must still run where its parts stood.

Paddle's graphs know which op reads what another wrote, and not which one writes what another has read before (2.6.2). An op
that a pass has made has no place in the program, so it comes right before the first that reads its results, or last. By
then a name that it reads may have been released, or hold another value, and no one would say so.

So where a plan writes such a name again and a `share_buffer` does so, that reads what the second of the two seems to write, too,
and waits for it; most kernels would look for what they read. Elsewhere an op without effect between the two names what one
hands to the other as what it reads and writes: then the second reads what another op wrote, and the two stay two.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import ROLE
from transpiler.backends.paddle2.pinning import FUSED_GRADIENTS, fused_pairs, names_in, order, uncopied

# An op of ours, which has one, but makes nothing of what it reads in a slot that it does not know.
_READS_ANYTHING = frozenset({'share_buffer'})


def keep_fused_in_order(block: framework_pb2.BlockDesc, origins: List[Optional[int]]) -> None:
    """Adds to `block` what keeps the order that names ask for, whatever Paddle makes one op of.

    Args:
        origins: what each of its ops stands for; gets None for each one that is added.
    """
    ops = block.ops
    pairs = fused_pairs(ops)
    moved = {position for first, second, _ in pairs for position in (first, second)}
    last = {name: i for i, op in enumerate(ops) for name in names_in(op.outputs)} if pairs else {}
    singles = {v.name for v in block.vars if _is_single(v)} if pairs else set()
    apart: Dict[int, str] = {}
    late: Set[Tuple[int, int]] = set()  # of one second there may be two pairs
    for first, second, handed in pairs:
        early = _too_early(ops, first, second, moved, last)
        alone = not (_disturbed(ops, first, second, handed) or _overwrites(ops, first, second))
        if alone and early is not None and _bears_order(ops[early], singles):
            late.add((second, early))
        elif early is not None or not alone:
            apart[first] = handed
    for second, early in sorted(late):
        order(block, ops[second], ops[early], f'{second}-{early}')
    for first in sorted(apart, reverse=True):
        ops.insert(first + 1, _between(ops[first], apart[first]))
        origins.insert(first + 1, None)


def _bears_order(op: framework_pb2.OpDesc, singles: Set[str]) -> bool:
    """Whether `op` may read the variable of an order: Paddle asks what it reads for one type, and takes that for float32."""
    return op.type in _READS_ANYTHING and names_in(op.inputs) <= singles


def _is_single(variable: framework_pb2.VarDesc) -> bool:
    looks = variable.type
    return (looks.type == framework_pb2.VarType.LOD_TENSOR and
            looks.lod_tensor.tensor.data_type == framework_pb2.VarType.FP32)


def _between(first: framework_pb2.OpDesc, handed: str) -> framework_pb2.OpDesc:
    """An op without effect, of the role of `first`, that reads `handed` and seems to write it."""
    op = framework_pb2.OpDesc()
    uncopied(op, handed)
    op.attrs.extend(a for a in first.attrs if a.name == ROLE)
    return op


def _disturbed(ops: Sequence[framework_pb2.OpDesc], first: int, second: int, handed: str) -> bool:
    """Whether an op between the two would be in the way of the first if that came with the second. Of an addition and an
    activation none is made if anybody else reads what is handed on; of their gradients one is."""
    reads = names_in(ops[first].inputs)
    shared = (ops[first].type, ops[second].type) in FUSED_GRADIENTS
    return any(shared and handed in names_in(op.inputs) or reads & names_in(op.outputs)
               for op in ops[first + 1:second])


def _overwrites(ops: Sequence[framework_pb2.OpDesc], first: int, second: int) -> bool:
    """Whether what the two write is in memory that they read: one op made of them would read it again afterwards."""
    reads = names_in(ops[first].inputs) | names_in(ops[second].inputs)
    written = names_in(ops[first].outputs) | names_in(ops[second].outputs)
    before = ops[first - 1] if first else None
    shared = names_in(before.outputs) if before and before.type in _READS_ANYTHING else set()
    return bool((reads - names_in(ops[first].outputs)) & written or shared & written - reads)


def _too_early(ops: Sequence[framework_pb2.OpDesc], first: int, second: int, moved: Set[int],
               last: Mapping[str, int]) -> Optional[int]:
    """Position of an op that writes what the two read or write, and for which one made of them would be too late; None if it is in
    time for all: ahead of the first op that reads its results, if that is none of the `moved`.

    `last`: the last writer of each name.
    """
    touched: Set[str] = set()
    for op in (ops[first], ops[second]):
        touched |= names_in(op.inputs) | names_in(op.outputs)
    made = names_in(ops[first].outputs) | names_in(ops[second].outputs)
    for i in range(second + 1, 1 + max((last.get(name, -1) for name in touched), default=-1)):
        written = names_in(ops[i].outputs)
        if made & names_in(ops[i].inputs):
            if i not in moved:
                return None
            made |= written
        elif touched & written:
            return i
        else:
            made -= written
    return None
