"""What an op costs in time, from its shapes."""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass
from typing import Callable, List, Mapping, Optional, Sequence, Tuple

from transpiler.ir import Graph, Op, Region


@dataclass(frozen=True)
class CostModel:
    """Time as bytes over bandwidth plus multiply-adds over throughput.

    The defaults are one CPU core's, first touch of fresh pages included. What an op touches is not fresh, and in the
    cache, where it is small and the op runs trip after trip. `seconds_per_trip` is what the runtime takes for a scope
    and for starting on the body, `seconds_per_sum` for making an op that adds a trip's gradient to the others.
    """

    bytes_per_second: float = 4e9
    flops_per_second: float = 40e9
    seconds_per_op: float = 4e-6
    cached_bytes_per_second: float = 16e9
    cache_bytes: int = 1 << 16
    seconds_per_trip: float = 80e-6
    seconds_per_sum: float = 15e-6
    seconds_per_row: float = 1.5e-6

    def seconds(self, graph: Graph, op: Op, dims: Mapping[str, int]) -> float:
        """One run of `op`, nested ops not counted."""
        touched = _touched(graph, op, dims)
        flops = _flops(graph, op, dims) if is_heavy(op) else 0.0
        rows = _rows(graph, op, dims) if op.facts.work.by_rows else 0
        cached = op.region != 0 and touched <= self.cache_bytes
        bandwidth = self.cached_bytes_per_second if cached else self.bytes_per_second
        return (self.seconds_per_op + rows * self.seconds_per_row +
                touched * op.facts.work.slowness / bandwidth + flops / self.flops_per_second)

    def region_seconds(self, graph: Graph, region: int, dims: Mapping[str, int]) -> float:
        """One run of the ops of `region`, loops with all their trips."""
        return sum(self.whole_seconds(graph, op, dims) for op in graph.region_ops(region))

    def ops_within(self, graph: Graph, region: int, dims: Mapping[str, int],
                   seconds: float) -> List[int]:
        """By position of `region`: how many of the ops after it begin less than `seconds` after it ends; one more than there are
        if all end before that."""
        ends = list(
            itertools.accumulate(
                self.whole_seconds(graph, op, dims) for op in graph.region_ops(region)))
        return [bisect.bisect_left(ends, end + seconds, lo=at) - at for at, end in enumerate(ends)]

    def whole_seconds(self,
                      graph: Graph,
                      op: Op,
                      dims: Mapping[str, int],
                      of_region: Optional[Callable[[int], float]] = None) -> float:
        """One run of `op` and of what it runs, loops with all their trips. `of_region`: seconds of one run of a region's ops; all
        of them one after the other unless it says otherwise."""
        if not op.regions:
            return self.seconds(graph, op, dims)
        total = 0.0
        for inner in op.regions:
            facts = graph.regions[inner]
            loops = facts.kind.is_loop
            trips = facts.trips.evaluate(dims) if loops else 1
            once = of_region(inner) if of_region else self.region_seconds(graph, inner, dims)
            total += trips * once
            if loops:
                total += trips * self._trip_seconds(graph, facts, dims)
        return total

    def _trip_seconds(self, graph: Graph, region: Region, dims: Mapping[str, int]) -> float:
        """What the runtime does itself in a trip: it adds each gradient that the trip hands out to the sum of all."""
        added = [_bytes(graph, inner, dims) for inner, _ in region.results]
        return (self.seconds_per_trip + len(added) * self.seconds_per_sum +
                3 * sum(added) / self.cached_bytes_per_second)


def is_heavy(op: Op) -> bool:
    """Whether `op` computes more than it touches, as a matmul or a convolution does."""
    return op.facts.work.heavy


def _rows(graph: Graph, op: Op, dims: Mapping[str, int]) -> int:
    shapes = [_concrete(graph, v, dims) for v in op.reads() + op.writes()]
    return max((shape[0] for shape in shapes if shape), default=0)


def _touched(graph: Graph, op: Op, dims: Mapping[str, int]) -> int:
    """Bytes read and written; an op that picks parts of an operand reads no more than it writes."""
    written = sum([_bytes(graph, v, dims) for v in op.writes()])
    read = sum([_bytes(graph, v, dims) for v in op.data_reads()])
    return written + (min(read, written) if op.facts.work.picks else read)


def _bytes(graph: Graph, value: int, dims: Mapping[str, int]) -> int:
    size = graph.values[value].size
    return size.evaluate(dims) if size is not None else 0


def _flops(graph: Graph, op: Op, dims: Mapping[str, int]) -> float:
    """Of b products of (m, k) and (k, n): the square root of b mk * b kn * b mn is b m * k * n times the root of b.

    A gradient has a product for each operand that gets one, of the three tensors that it reads.
    """
    backward = op.facts.work.backward
    values = list(op.data_reads()) if backward else [*op.data_reads(), *op.writes()]
    products = min(2, len(list(op.writes()))) if backward else 1
    shapes = {v: _concrete(graph, v, dims) for v in values}
    if op.facts.work.filters:
        filters = [v for v in values if graph.values[v].parameter and len(shapes[v]) > 2]
        if filters:
            return products * _convolution_flops(shapes, filters[0])
    largest = sorted(filter(math.prod, shapes.values()), key=math.prod, reverse=True)[:3]
    elements = [float(math.prod(shape)) for shape in largest]
    if len(largest) < 3:
        return 2.0 * sum(elements)
    return products * 2.0 * math.sqrt(math.prod(elements) / _batch(largest))


def _batch(shapes: Sequence[Tuple[int, ...]]) -> int:
    """How many products of matrices one op is: the dims ahead of the matrices, where all have the same."""
    ahead = {shape[:-2] for shape in shapes}
    return math.prod(ahead.pop()) if len(ahead) == 1 else 1


def _convolution_flops(shapes: Mapping[int, Tuple[int, ...]], weights: int) -> float:
    """Of each element of the result: the weights of one of its channels."""
    channels = shapes[weights][0]
    others = [shape for v, shape in shapes.items() if v != weights and len(shape) > 2]
    results = [shape for shape in others if channels in (shape[1], shape[-1])] or others
    # Its operand may have as many channels: as large a result, if there is no stride.
    size = min((math.prod(shape) for shape in results), default=0)
    return 2.0 * size * math.prod(shapes[weights]) / max(1, channels)


def _concrete(graph: Graph, value: int, dims: Mapping[str, int]) -> Tuple[int, ...]:
    return tuple(d.evaluate(dims) for d in graph.values[value].shape or ())
