"""What gradient regions read of what their forward regions have made."""

from __future__ import annotations

from typing import Dict, Iterator, List, Set, Tuple

from transpiler.analysis.positions import Positions
from transpiler.ir import Graph, Op, Region


class Readers:
    """By gradient region: the values of its forward region that its ops, nested ones included, read; with those ops.

    Of a graph of which ops may read less later, but no more of what a forward region has made. Found in one pass, where to look
    into each gradient would take time with the square of how deep they are nested.
    """

    def __init__(self, graph: Graph, positions: Positions) -> None:
        self._graph, self._positions = graph, positions
        # By forward region: its values that ops of others read, with those.
        self._elsewhere: Dict[int, List[Tuple[int, int]]] = {}
        forward = {region.forward for region in graph.regions}
        for op in graph.walk():
            for value in op.reads():
                home = graph.values[value].region
                if home in forward and home != op.region:
                    self._elsewhere.setdefault(home, []).append((value, op.id))

    def of(self, gradient: Region) -> Set[int]:
        """Values of its forward region that are read there."""
        return {value for value, _ in self._each(gradient)}

    def named_by_regions(self, gradient: Region) -> Set[int]:
        """Those of them that an op with regions names as an operand."""
        return {v for v, op in self._each(gradient) if op.regions and v in op.operands}

    def ops(self, gradient: Region) -> List[Op]:
        """The ops that read any of them."""
        return list({op.id: op for _, op in self._each(gradient)}.values())

    def _each(self, gradient: Region) -> Iterator[Tuple[int, Op]]:
        for value, at in self._elsewhere.get(gradient.forward, ()):
            op = self._graph.ops[at]
            inside, later = self._positions.seen_from(op, gradient.id)
            if inside >= 0 and not later and value in op.reads():
                yield value, op
