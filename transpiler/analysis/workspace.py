"""What kernels allocate for themselves while they run, on top of what lives."""

from __future__ import annotations

from typing import FrozenSet, Iterable, Iterator, List, Mapping

from transpiler.analysis.timeline import Point, Timeline
from transpiler.ir import Graph, Op


def workspace_bytes(op: Op, dims: Mapping[str, int]) -> int:
    """Bytes that the kernel of `op` needs besides what it reads and writes; 0 where nobody knows."""
    return op.workspace.evaluate(dims) if op.workspace else 0


def points_with_workspaces(graph: Graph, timeline: Timeline) -> Iterator[Point]:
    """The points of `timeline`, which is of `graph`, each op's workspace counted."""
    return _with_workspaces(graph, timeline, timeline.points)


def uncollected_with_workspaces(graph: Graph,
                                timeline: Timeline,
                                released: FrozenSet[int],
                                lags: bool = False) -> Iterator[Point]:
    """The same of `timeline.uncollected_points(released, lags)`."""
    return _with_workspaces(graph, timeline, timeline.uncollected_points(released, lags))


def peak_with_workspaces(graph: Graph, timeline: Timeline) -> int:
    """The most bytes of `points_with_workspaces`."""
    return max((point.bytes for point in points_with_workspaces(graph, timeline)), default=0)


def unknown_workspaces(graph: Graph) -> List[str]:
    """Kinds of ops of which nobody knows what their kernels allocate for themselves: no figure has it."""
    return sorted({op.kind for op in graph.walk() if op.workspace is None})


def _with_workspaces(graph: Graph, timeline: Timeline, points: Iterable[Point]) -> Iterator[Point]:
    return (Point(p.op, p.bytes + workspace_bytes(graph.ops[p.op], timeline.dims)) for p in points)
