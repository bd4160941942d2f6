"""What gradient regions read of what their forward regions have made."""

from __future__ import annotations

from typing import Dict, Iterator, List, Set, Tuple

from transpiler.ir import Graph, Op, Region

_NONE = -1


class Readers:
    """By gradient region: the values of its forward region that its ops, nested ones included, read; with those ops.

    Of a graph of which ops may read less later, but no more of what a forward region has made, and write nothing else that was
    there. Found in one pass, where to look into each gradient would take time with the square of how deep they are nested.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ops: Dict[int, Dict[int, List[int]]] = {}  # by gradient and value
        self._gradients: Dict[Tuple[int, int], int] = {}  # by region inside, and forward region
        self._writers: Dict[int, int] = {}
        forward = {region.forward for region in graph.regions}
        for op in graph.walk():
            for value in op.writes():
                self._writers[value] = self._writers.get(value, 0) + 1
            for value in op.reads():
                home = graph.values[value].region
                if home in forward and home != op.region:
                    gradient = self._gradient_around(op.region, home)
                    if gradient != _NONE:
                        self._ops.setdefault(gradient, {}).setdefault(value, []).append(op.id)

    def writers(self, value: int) -> int:
        """How many ops write `value`."""
        return self._writers.get(value, 0)

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
        ops = self._graph.ops
        for value, readers in self._ops.get(gradient.id, {}).items():
            yield from ((value, ops[at]) for at in readers if value in ops[at].reads())

    def _gradient_around(self, inner: int, forward: int) -> int:
        """The gradient of `forward` that region `inner` is, or is in."""
        regions, passed, found = self._graph.regions, [], None
        while found is None:
            passed.append(inner)
            if inner < 0 or regions[inner].forward == forward:
                found = inner if inner >= 0 else _NONE
            else:
                inner = regions[inner].parent
                found = self._gradients.get((inner, forward))
        self._gradients.update(((each, forward), found) for each in passed)
        return found
