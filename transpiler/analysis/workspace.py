"""What kernels allocate for themselves while they run (Paddle 2.6.2 on a CPU, without oneDNN).

A convolution lays out one image at a time as columns, for a product with its filter: `[channels / groups, kernel,
result]`. A kernel of one element that neither skips nor pads needs none. The gradient of a layer norm has two tensors
of the size of its operand and a number for each row, that of a batch norm two for each channel. What a kernel of a
whole recurrent layer (`rnn`) takes is not known here; a GPU's kernels have workspaces of their own.
"""

from __future__ import annotations

import math
from typing import Iterator, Mapping

from transpiler.analysis.timeline import Point, Timeline
from transpiler.ir import Graph, Op

_GRADIENT = '_grad'
_NORMS = ('layer_norm', 'batch_norm')
_CONVOLUTIONS = ('conv2d', 'depthwise_conv2d')


def workspace_bytes(graph: Graph, op: Op, dims: Mapping[str, int]) -> int:
    """Bytes that the kernel of `op` needs besides what it reads and writes."""
    kind = op.kind[:-len(_GRADIENT)] if op.kind.endswith(_GRADIENT) else op.kind
    if kind in _CONVOLUTIONS:
        return _columns(graph, op, kind, dims)
    if kind in _NORMS and kind != op.kind:
        return _norm(graph, op, kind, dims)
    return 0


def _columns(graph: Graph, op: Op, kind: str, dims: Mapping[str, int]) -> int:
    # The gradient reads the result's gradient, which has its shape.
    named = op.operands + (op.results if op.kind == kind else ())
    values = [graph.values[v] for v in named if v >= 0 and len(graph.values[v].shape or ()) == 4]
    weights = [v for v in values if v.parameter and v.size is not None]
    images = [v for v in values if not v.parameter]
    if len(weights) != 1 or len(images) != 2:
        return 0
    before, after = ([d.evaluate(dims) for d in image.shape[2:]] for image in images)
    results, _, *kernel = (d.evaluate(dims) for d in weights[0].shape)
    if kind == 'conv2d' and math.prod(kernel) == 1 and before == after:
        return 0
    return weights[0].size.evaluate(dims) // results * math.prod(after)


def _norm(graph: Graph, op: Op, kind: str, dims: Mapping[str, int]) -> int:
    """Operands are one or two images, and statistics that are smaller; parameters aside."""
    values = [graph.values[v] for v in op.data_reads()]
    sizes = [v.size.evaluate(dims) for v in values if v.size and not v.parameter]
    if len(sizes) < 2:
        return 0
    return 2 * max(sizes) + min(sizes) if kind == 'layer_norm' else 2 * min(sizes)


def points_with_workspaces(graph: Graph, timeline: Timeline) -> Iterator[Point]:
    """The points of `timeline`, which is of `graph`, each op's workspace counted."""
    return (Point(p.op, p.bytes + workspace_bytes(graph, graph.ops[p.op], timeline.dims))
            for p in timeline.points)


def peak_with_workspaces(graph: Graph, timeline: Timeline) -> int:
    """The most bytes of `points_with_workspaces`."""
    return max((point.bytes for point in points_with_workspaces(graph, timeline)), default=0)
