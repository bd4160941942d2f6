"""What passes have made of the graphs of one program, each once, for all plans that are tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Hashable, List, Mapping, Optional, Tuple

from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph
from transpiler.passes.context import Reuse
from transpiler.planning.elsewhere import Elsewhere
from transpiler.planning.sequences import NamedPass
from transpiler.runtime import Runtime


@dataclass(frozen=True)
class Done:
    """What a pass made of a graph, which it leaves as it is: the graph itself where it changed nothing."""

    graph: Graph
    after: Timeline
    reuses: List[Reuse]
    left_alone: Dict[int, str]
    saved_seconds: float
    spent_seconds: float


class Met:
    """Graphs that passes lead to, for one runtime, each once whatever the dims."""

    def __init__(self) -> None:
        self._found: Dict[int, List[Tuple[Graph, Timeline]]] = {}  # by `_look`

    def first(self, graph: Graph, make: Callable[[], Timeline]) -> Tuple[Graph, Timeline]:
        """The first graph that was equal to `graph`, to which several sequences of passes may lead, with its timeline at some
        dims: that which `make` makes of `graph`, if that is the first."""
        alike = self._found.setdefault(_look(graph), [])
        for known, timeline in alike:
            if known == graph:
                return known, timeline
        alike.append((graph, make()))
        return alike[-1]


@dataclass
class Work:
    """For one runtime, one set of dims and one of options. No graph that it knows may be changed any more. `also` are other dims
    at which no plan may need more than no plan. `everywhere`: what was met at other dims, too."""

    also: Tuple[Mapping[str, int], ...] = ()
    everywhere: Met = field(default_factory=Met)
    solved: Dict[Hashable, Any] = field(default_factory=dict)  # see PassContext
    _done: Dict[Tuple[Hashable, ...], Tuple[Graph, Done]] = field(default_factory=dict)
    _known: Dict[int, Tuple[Graph,
                            Dict[str, Any]]] = field(default_factory=dict)  # by id, which it keeps
    _met: Dict[int, Timeline] = field(default_factory=dict)  # by id of the graph
    _elsewhere: Dict[int,
                     Elsewhere] = field(default_factory=dict)  # by id of the graph, which it keeps

    def done(self, graph: Graph, step: NamedPass, saved: float, spent: float,
             make: Callable[[], Done]) -> Done:
        """What `step` makes of `graph` once the passes before it have saved and spent so many seconds."""
        key = (id(graph), step, saved, spent)
        if key not in self._done:
            self._done[key] = (graph, make())
        return self._done[key][1]

    def known_of(self, graph: Graph, after: Timeline, runtime: Runtime) -> Dict[str, Any]:
        """What was found out of `graph`, for passes that start from it."""
        if id(graph) not in self._known:
            known: Dict[str, Any] = {'timeline': after}
            if runtime.collects:
                known['collecting'] = after
            self._known[id(graph)] = (graph, known)
        return self._known[id(graph)][1]

    def met(self, graph: Graph, runtime: Runtime, dims: Mapping[str, int],
            after: Optional[Timeline]) -> Tuple[Graph, Timeline]:
        """The first graph that was equal to `graph`, to which several sequences of passes may lead, and its timeline for `dims`.

        `after` is the timeline of `graph`, if somebody has made it.
        """
        known, found = self.everywhere.first(graph, lambda: after or Timeline(graph, runtime, dims))
        if id(known) not in self._met:
            self._met[id(known)] = found.at(dims)
        return known, self._met[id(known)]

    def grows_elsewhere(self, graph: Graph, after: Timeline, original: Graph,
                        before: Timeline) -> bool:
        """Whether `graph` may not stand for `original`, as it needs more where it was not made for; with the timelines of both."""
        if id(original) not in self._elsewhere:
            runtime = before.lifetimes.runtime
            self._elsewhere[id(original)] = Elsewhere(original, runtime, before.dims, self.also,
                                                      before)
        return self._elsewhere[id(original)].grows(graph, after)


def _look(graph: Graph) -> int:
    """Equal for equal graphs, and seldom for others."""
    return hash((tuple([v.storage for v in graph.values]), len(graph.ops),
                 tuple([tuple(region.ops) for region in graph.regions])))
