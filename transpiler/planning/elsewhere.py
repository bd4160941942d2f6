"""Whether plans need more than no plan where they were not made for: at other sizes of the open dims, where what an op reads is as
large as what it makes, where kernels allocate less for themselves than they may, where what the data decides is less than it can
be, or takes something where nobody knows how much, where nothing is held in other layouts, where branches are not taken (at some
other sizes, too), where a caller lets go of what it gave, and in the first run of a runtime that retains."""

from __future__ import annotations

from functools import partial
from typing import (Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple)

from transpiler.analysis.elsewhere import (NotRun, alike_at_one, not_run, other_sizes, other_ways,
                                           some_sizes, there_at, unknown_results, without)
from transpiler.analysis.kept import boundary_of
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import bytes_with_workspaces, less_bounds, workspace_bytes
from transpiler.ir import Graph
from transpiler.ir.boundary import with_inputs_let_go
from transpiler.runtime import Runtime

_Sizes = Tuple[Tuple[str, int], ...]
_Peaks = Tuple[int, ...]


def _with_and_without_workspaces(graph: Graph, timeline: Timeline) -> Tuple[List[int], ...]:
    """Bytes by point. Of some workspaces only a bound is known: a kernel may take less, and hides what others need."""
    most = bytes_with_workspaces(graph, timeline)
    return most, less_bounds(graph, timeline, most), timeline.live


class _Top(NamedTuple):
    """What there is where a program needs the most, in a region: storages, with their bytes; and what the op there takes for itself."""

    region: int
    there: List[Tuple[Tuple[int, ...], int]]
    own: int

    def without(self, out: NotRun) -> int:
        """Bytes that are left there at least where something is not run; less than nothing if that is not known."""
        if self.region in out.regions:
            return -1
        return self.own + sum(
            size for storages, size in self.there if out.storages.isdisjoint(storages))


class _Change(NamedTuple):
    """How to make the program of another run of a graph, and the sizes at which to look at it. `left_out` are branches that are not
    taken; by the change of number `base` alone it runs them, at all those sizes."""

    made: Callable[[Graph], Graph]
    sizes: List[Mapping[str, int]]
    left_out: FrozenSet[int] = frozenset()
    base: int = -1


class Elsewhere:
    """The peaks of `original`, each found once, against those of plans for it, at `dims`, at `also`, and at sizes near `dims`."""

    def __init__(self,
                 original: Graph,
                 runtime: Runtime,
                 dims: Mapping[str, int],
                 also: Sequence[Mapping[str, int]] = (),
                 before: Optional[Timeline] = None) -> None:
        """`before` is the timeline of `original` on `runtime`, if somebody has made it."""
        dims = dict(dims)  # who asks a timeline what there is adds to its own
        self._original, self._dims, self._timeline = original, dims, before
        # The first trip of a loop is as its first run is, the others are not.
        self._runtimes = tuple({runtime, runtime.freeing(), _in_first_run(runtime, original)})
        self._found: Dict[int, Tuple[Graph, bool]] = {}  # by id of the graph, which it keeps
        self._changes = _changes(original, dims, also)
        if not runtime.inputs_stay and boundary_of(original):
            self._changes.append(_Change(with_inputs_let_go, self._changes[0].sizes))
        # By change, and by runtime.
        self._peaks: Dict[Tuple[int, int], Dict[_Sizes, _Peaks]] = {}
        self._at_least: Dict[Tuple[int, int, _Sizes], _Peaks] = {}
        self._not_run: Dict[FrozenSet[int], Optional[NotRun]] = {}  # by branches that are left out

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
            sizes = self._undecided(i, j, most)
            before = self._before(i, j, sizes)
            for key, each in self._of(change, graph, timeline, j, sizes):
                now = _peaks(_with_and_without_workspaces(each.graph, each))
                if _above(now, before[key]):
                    return True
                most.setdefault(key, now)
        return False

    def _undecided(self, i: int, j: int, most: Mapping[_Sizes, _Peaks]) -> List[Mapping[str, int]]:
        """The sizes of a change at which a plan may need more: where branches are not taken, it needs no more than the `most` that it
        does with all."""
        change = self._changes[i]
        if not change.left_out:
            return change.sizes
        least = self._at_least
        sizes = [k for k in change.sizes if _above(most[_key(k)], least.get((i, j, _key(k))))]
        before = self._before(i, j, sizes)
        return [k for k in sizes if _above(most[_key(k)], before[_key(k)])]

    def _before(self, i: int, j: int, sizes: Iterable[Mapping[str, int]]) -> Dict[_Sizes, _Peaks]:
        """The peaks of the original, and what it needs at least where branches are not taken."""
        known = self._peaks.setdefault((i, j), {})
        missing = [each for each in sizes if _key(each) not in known]
        for key, timeline in self._of(self._changes[i], self._original, self._timeline, j, missing):
            found = _with_and_without_workspaces(timeline.graph, timeline)
            known[key] = _peaks(found)
            ways = self._ways_from(i, key)
            tops = _tops(timeline, found) if ways else []
            for way, out in ways.items():
                self._at_least[way, j, key] = tuple(top.without(out) for top in tops)
        return known

    def _ways_from(self, base: int, key: _Sizes) -> Dict[int, NotRun]:
        """By change that leaves out branches besides what `base` changes, at these sizes: what then does not run, if that is known."""
        found = {}
        for way, change in enumerate(self._changes):
            if change.base == base and any(_key(each) == key for each in change.sizes):
                out = self._left_out(change.left_out)
                if out is not None:
                    found[way] = out
        return found

    def _left_out(self, branches: FrozenSet[int]) -> Optional[NotRun]:
        if branches not in self._not_run:
            self._not_run[branches] = not_run(self._original, branches)
        return self._not_run[branches]

    def _of(self, change: _Change, graph: Graph, known: Optional[Timeline], j: int,
            sizes: List[Mapping[str, int]]) -> Iterator[Tuple[_Sizes, Timeline]]:
        """Timelines at `sizes` if `graph` is changed so; `known` is its timeline as it is, on some runtime."""
        if not sizes:
            return
        changed, runtime = change.made(graph), self._runtimes[j]
        if known is None or changed is not graph or known.lifetimes.runtime != runtime:
            known = Timeline(changed, runtime, self._dims)
        for each in sizes:
            yield _key(each), known.at(each)


def _in_first_run(runtime: Runtime, graph: Graph) -> Runtime:
    """Where a runtime collects, its first run is as all others, if no op holds on to anything."""
    others = runtime.collects and not any(value.lasting for value in graph.values)
    return runtime if others else runtime.in_first_run()


def _tops(timeline: Timeline, found: Tuple[List[int], ...]) -> List[_Top]:
    """Where there is the most of each of `_with_and_without_workspaces`."""
    ops = [timeline.graph.ops[timeline.order[each.index(max(each))]] for each in found]
    own = [workspace_bytes(op, timeline.dims) for op in ops]
    there = {op.id: there_at(timeline, op.id) for op in ops}
    counted = own[0], 0 if ops[1].bounded else own[1], 0
    return [_Top(op.region, there[op.id], each) for op, each in zip(ops, counted)]


def _peaks(found: Tuple[List[int], ...]) -> _Peaks:
    return tuple(max(each, default=0) for each in found)


def _above(now: _Peaks, then: Optional[_Peaks]) -> bool:
    return then is None or any(a > b for a, b in zip(now, then))


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
    ]
    for base, each in enumerate(less):
        found += _with_ways_left_out(base, each.made, fewer, ways)
    for names in alike_at_one(original, sizes):
        at_one = partial(Graph.with_ones, names=names)
        here = [each for each in sizes if all(each[name] == 1 for name in names)]
        base = len(found)
        found += [_Change(at_one, here), *_with_ways_left_out(base, at_one, here, ways)]
    return found


def _with_ways_left_out(base: int, made: Callable[[Graph], Graph], sizes: List[Mapping[str, int]],
                        ways: Iterable[FrozenSet[int]]) -> List[_Change]:
    return [_Change(_then(made, partial(without, branches=way)), sizes, way, base) for way in ways]


def _then(first: Callable[[Graph], Graph], second: Callable[[Graph],
                                                            Graph]) -> Callable[[Graph], Graph]:
    return lambda graph: second(first(graph))


def _key(dims: Mapping[str, int]) -> _Sizes:
    return tuple(sorted(dims.items()))
