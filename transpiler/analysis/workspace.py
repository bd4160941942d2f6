"""What kernels allocate for themselves while they run.

Paddle's convolution on a CPU (2.6.2, without oneDNN) lays out one image at a time as columns, for a product with its
filter: `[channels / groups, kernel, result]`. A kernel of one element that neither skips nor pads needs none. Nothing
else of size is known; a GPU's convolutions have workspaces of their own.
"""

from __future__ import annotations

import math
from typing import Iterator, Mapping

from transpiler.analysis.timeline import Point, Timeline
from transpiler.ir import Graph, Op

_CONVOLUTIONS = ('conv2d', 'conv2d_grad')


def workspace_bytes(graph: Graph, op: Op, dims: Mapping[str, int]) -> int:
    """Bytes that the kernel of `op` needs besides what it reads and writes."""
    if op.kind not in _CONVOLUTIONS:
        return 0
    # The gradient reads the result's gradient, which has its shape.
    named = op.operands + (op.results if op.kind == 'conv2d' else ())
    values = [graph.values[v] for v in named if v >= 0 and len(graph.values[v].shape or ()) == 4]
    weights = [v for v in values if v.parameter and v.size is not None]
    images = [v for v in values if not v.parameter]
    if len(weights) != 1 or len(images) != 2:
        return 0
    before, after = ([d.evaluate(dims) for d in image.shape[2:]] for image in images)
    results, _, *kernel = (d.evaluate(dims) for d in weights[0].shape)
    if math.prod(kernel) == 1 and before == after:
        return 0
    return weights[0].size.evaluate(dims) // results * math.prod(after)


def points_with_workspaces(graph: Graph, timeline: Timeline) -> Iterator[Point]:
    """The points of `timeline`, which is of `graph`, each op's workspace counted."""
    return (Point(p.op, p.bytes + workspace_bytes(graph, graph.ops[p.op], timeline.dims))
            for p in timeline.points)


def peak_with_workspaces(graph: Graph, timeline: Timeline) -> int:
    """The most bytes of `points_with_workspaces`."""
    return max((point.bytes for point in points_with_workspaces(graph, timeline)), default=0)
