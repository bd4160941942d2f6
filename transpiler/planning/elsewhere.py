"""Whether plans need more than no plan where they were not made for: at other sizes of the open dims, where what the data decides
is less than it can be, where no copies in other layouts are kept, where branches are not taken, and in the first run of a runtime
that retains."""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, Iterator, List, Mapping, Tuple

from transpiler.analysis.elsewhere import other_sizes, other_ways, without
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import peak_with_workspaces
from transpiler.ir import Graph
from transpiler.runtime import Runtime

_Change = Callable[[Graph], Graph]


class Elsewhere:
    """The peaks of `original`, each found once, against those of plans for it."""

    def __init__(self, original: Graph, runtime: Runtime, dims: Mapping[str, int]) -> None:
        self._original, self._dims = original, dims
        # One that retains frees what it can in its first run, while it finds out in what order it will run.
        self._runtimes = tuple({runtime, runtime.freeing()})
        self._found: Dict[int, Tuple[Graph, bool]] = {}  # by id of the graph, which it keeps
        self._changes = _changes(original, dims)
        self._peaks: Dict[Tuple[int, int], List[int]] = {}

    def grows(self, graph: Graph) -> bool:
        """Whether `graph` needs more than the original anywhere."""
        if graph is self._original:
            return False
        if id(graph) not in self._found:
            self._found[id(graph)] = graph, any(
                self._grows(graph, j) for j in range(len(self._runtimes)))
        return self._found[id(graph)][1]

    def _grows(self, graph: Graph, j: int) -> bool:
        """Whether it does on one of the runtimes."""
        most = 0  # at the sizes that the plan is made for, with all branches taken
        for i, (change, sizes) in enumerate(self._changes):
            before = self._before(i, j)
            if i and len(sizes) == 1 and most <= before[0]:  # with less to run, it needs no more
                continue
            after = _peaks(change(graph), self._runtimes[j], self._dims, sizes)
            for now, then in zip(after, before):
                if now > then:
                    return True
                most = most or now
        return False

    def _before(self, i: int, j: int) -> List[int]:
        if (i, j) not in self._peaks:
            change, sizes = self._changes[i]
            found = _peaks(change(self._original), self._runtimes[j], self._dims, sizes)
            self._peaks[i, j] = list(found)
        return self._peaks[i, j]


def _changes(original: Graph, dims: Mapping[str,
                                            int]) -> List[Tuple[_Change, List[Mapping[str, int]]]]:
    """How to make the program of another run of a graph, and the sizes at which to look at it."""
    here: List[Mapping[str, int]] = [dims]
    sizes = here + list(other_sizes(dims))
    found: List[Tuple[_Change, List[Mapping[str, int]]]] = [(lambda graph: graph, sizes)]
    if original.has_bounds:
        found.append((Graph.without_bounds, sizes))
    if any(op.facts.converts for op in original.region_ops(0)):
        found.append((Graph.without_conversions, sizes))
    return found + [(partial(without, branches=way), here) for way in other_ways(original)]


def _peaks(graph: Graph, runtime: Runtime, dims: Mapping[str, int],
           sizes: List[Mapping[str, int]]) -> Iterator[int]:
    timeline = Timeline(graph, runtime, dims)
    return (peak_with_workspaces(graph, timeline.at(each)) for each in sizes)
