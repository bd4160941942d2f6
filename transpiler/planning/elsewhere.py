"""Whether plans need more than no plan where they were not made for: at other sizes of the open dims, where what an op reads is as
large as what it makes, where kernels allocate less for themselves than they may, where what the data decides is less than it can
be, or takes something where nobody knows how much, where nothing is held in other layouts, where branches are not taken (at some
other sizes, too), where a caller lets go of what it gave, and in the first run of a runtime that retains."""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from transpiler.analysis.elsewhere import (alike_at_one, other_sizes, other_ways, some_sizes,
                                           unknown_results, without)
from transpiler.analysis.kept import boundary_of
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import peak_with_workspaces, peak_without_bounds
from transpiler.ir import Graph
from transpiler.ir.boundary import with_inputs_let_go
from transpiler.runtime import Runtime

_Sizes = Tuple[Tuple[str, int], ...]
_Peaks = Tuple[int, ...]


def _with_and_without_workspaces(graph: Graph, timeline: Timeline) -> _Peaks:
    """Of some workspaces only a bound is known: a kernel may take less, and hides what others need."""
    most, known = peak_with_workspaces(graph, timeline), peak_without_bounds(graph, timeline)
    return most, known, timeline.peak_bytes


class _Change(NamedTuple):
    """How to make the program of another run of a graph, and the sizes at which to look at it. `runs_less`: ops are left out."""

    made: Callable[[Graph], Graph]
    sizes: List[Mapping[str, int]]
    runs_less: bool = False


class Elsewhere:
    """The peaks of `original`, each found once, against those of plans for it, at `dims`, at `also`, and at sizes near `dims`."""

    def __init__(self,
                 original: Graph,
                 runtime: Runtime,
                 dims: Mapping[str, int],
                 also: Sequence[Mapping[str, int]] = (),
                 before: Optional[Timeline] = None) -> None:
        """`before` is the timeline of `original` on `runtime`, if somebody has made it."""
        self._original, self._dims, self._timeline = original, dims, before
        # The first trip of a loop is as its first run is, the others are not.
        self._runtimes = tuple({runtime, runtime.freeing(), _in_first_run(runtime, original)})
        self._found: Dict[int, Tuple[Graph, bool]] = {}  # by id of the graph, which it keeps
        self._changes = _changes(original, dims, also)
        if not runtime.inputs_stay and boundary_of(original):
            self._changes.append(_Change(with_inputs_let_go, self._changes[0].sizes))
        self._peaks: Dict[Tuple[int, int], List[_Peaks]] = {}

    def grows(self, graph: Graph, after: Optional[Timeline] = None) -> bool:
        """Whether `graph` needs more than the original anywhere; `after` is its timeline, if somebody has made it."""
        if graph is self._original:
            return False
        if id(graph) not in self._found:
            self._found[id(graph)] = graph, any(
                self._grows(graph, after, j) for j in range(len(self._runtimes)))
        return self._found[id(graph)][1]

    def _grows(self, graph: Graph, timeline: Optional[Timeline], j: int) -> bool:
        """Whether it does on one of the runtimes."""
        most: Dict[_Sizes, _Peaks] = {}  # with all branches taken
        for i, change in enumerate(self._changes):
            before = self._before(i, j)
            sizes, limits = change.sizes, before
            if change.runs_less:  # it needs no more than with all to run
                left = [k for k, each in enumerate(sizes) if _above(most[_key(each)], before[k])]
                sizes, limits = [sizes[k] for k in left], [before[k] for k in left]
            after = self._of(change, graph, timeline, j, sizes) if sizes else ()
            for size, now, then in zip(sizes, after, limits):
                if _above(now, then):
                    return True
                most.setdefault(_key(size), now)
        return False

    def _before(self, i: int, j: int) -> List[_Peaks]:
        if (i, j) not in self._peaks:
            change = self._changes[i]
            found = self._of(change, self._original, self._timeline, j, change.sizes)
            self._peaks[i, j] = list(found)
        return self._peaks[i, j]

    def _of(self, change: _Change, graph: Graph, known: Optional[Timeline], j: int,
            sizes: List[Mapping[str, int]]) -> Iterator[_Peaks]:
        """The peaks at `sizes` if `graph` is changed so; `known` is its timeline as it is, on some runtime."""
        changed, runtime = change.made(graph), self._runtimes[j]
        if known is None or changed is not graph or known.lifetimes.runtime != runtime:
            known = Timeline(changed, runtime, self._dims)
        return (_with_and_without_workspaces(changed, known.at(each)) for each in sizes)


def _in_first_run(runtime: Runtime, graph: Graph) -> Runtime:
    """Where a runtime collects, its first run is as all others, if no op holds on to anything."""
    others = runtime.collects and not any(value.lasting for value in graph.values)
    return runtime if others else runtime.in_first_run()


def _above(now: _Peaks, then: _Peaks) -> bool:
    return any(a > b for a, b in zip(now, then))


def _changes(original: Graph, dims: Mapping[str, int],
             also: Sequence[Mapping[str, int]]) -> List[_Change]:
    """The first one changes nothing."""
    here: List[Mapping[str, int]] = [dims, *(each for each in also if each != dims)]
    sizes, fewer = here + list(other_sizes(dims)), here + list(some_sizes(dims))
    less = [_Change(lambda graph: graph, sizes)]
    if original.has_bounds:
        less.append(_Change(Graph.without_bounds, sizes))
    if any(op.facts.converts for op in original.region_ops(0)):
        less.append(_Change(Graph.without_conversions, sizes))
    ways = other_ways(original)
    found = less + [
        _Change(partial(Graph.with_sizes, sizes=each), here) for each in unknown_results(original)
    ] + [
        _Change(_then(each.made, partial(without, branches=way)), fewer, runs_less=True)
        for each in less
        for way in ways
    ]
    for names in alike_at_one(original, sizes):
        at_one = partial(Graph.with_ones, names=names)
        here = [each for each in sizes if all(each[name] == 1 for name in names)]
        found.append(_Change(at_one, here))
        found += [
            _Change(_then(at_one, partial(without, branches=way)), here, runs_less=True)
            for way in ways
        ]
    return found


def _then(first: Callable[[Graph], Graph], second: Callable[[Graph],
                                                            Graph]) -> Callable[[Graph], Graph]:
    return lambda graph: second(first(graph))


def _key(dims: Mapping[str, int]) -> _Sizes:
    return tuple(sorted(dims.items()))
