"""Parameters laid side by side: a recurrent layer's, in the main program, in each run anew.

What is given out are slices of one buffer that is declared without elements. In the graph the memory is the buffer's, who reads a slice
reads the buffer, too, and both are let go of by nobody: alone each would still be there under the names of the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Tuple

from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.naming import bare_kind
from transpiler.backends.second_names import names_in_one_memory, read_too
from transpiler.ir import NOTHING, Graph, Size, Value

FLATTENS = 'coalesce_tensor'
_SLICES, _BUFFER, _IN_CHUNKS = 'output', 'fused_output', 'use_align'
# Paddle's smallest allocation on a CPU, to which the kernel rounds each slice up if it is asked to.
_CHUNK = 4096


def link_flattened(graph: Graph, handles: Mapping[int, Any]) -> Dict[int, FrozenSet[int]]:
    """By value: all that have its memory. `handles` are of the ops."""
    pairs: List[Tuple[Value, Value]] = []
    for op in graph.ops:
        handle = handles.get(op.id)
        if handle is None or bare_kind(handle.op) != FLATTENS:
            continue
        names = handle.op.get_output_names()
        slices = [graph.values[i] for i in handle.results[names.index(_SLICES)] if i >= 0]
        buffer = graph.values[handle.results[names.index(_BUFFER)][0]]
        buffer.shape, buffer.size = None, _total(slices, given_attributes(handle.op)[_IN_CHUNKS])
        for each in slices:
            each.size = NOTHING
            read_too(graph, each, buffer)
        op.facts = replace(op.facts, side_effect=True)
        pairs += [(buffer, each) for each in slices]
    return names_in_one_memory(pairs)


def _total(slices: List[Value], in_chunks: bool) -> Optional[Size]:
    """Bytes of them all, None if those are not known."""
    sizes = [each.size for each in slices if each.size is not None]
    if len(sizes) < len(slices):
        return None
    if not in_chunks:
        return Size.total(sizes)
    if not all(size.is_constant for size in sizes):
        return None
    return Size.of(_CHUNK * sum(-(-size.evaluate({}) // _CHUNK) for size in sizes))
