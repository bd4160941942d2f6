"""What every pass is told besides the graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Hashable, List, Mapping, Optional, TypeVar

from transpiler.analysis.cost import CostModel
from transpiler.analysis.interference import Interference, interference_of
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph
from transpiler.runtime import Runtime

T = TypeVar('T')

# Of the peak. In loops and branches an op more, or a variable, takes time in each trip: what is less than this is not worth it.
SMALL_SHARE = 0.01


@dataclass
class Reuse:
    """One value that took over the memory of earlier ones. Bytes are for the hinted dims."""

    value: int
    storage: int
    tier: str  # 'in-place', '1', '2' or '3'
    waste_bytes: int


@dataclass
class PassContext:
    """Hints and options in, decisions out.

    `dims` ranks choices; it never makes a plan unsafe for other sizes. `reuses` and `left_alone` (value id ->
    reason) are what the passes did and did not do, for the report. `known` is what was found out of the graph that the pass
    is given, which others may be given too; `given` is that graph, which no pass changes. `solved` are the answers to what
    graphs have in common, for all of them; `after` is the timeline of what the pass gives back, if it has made one.
    """

    runtime: Runtime
    dims: Mapping[str, int]
    level: int = 0
    skip_grads: bool = True
    recompute: str = 'auto'  # 'auto', 'cheap', 'max' or '' for nothing
    max_overhead: float = 0.10  # extra time that 'auto' may cost, as a share of the step
    cost: CostModel = field(default_factory=CostModel)
    parallel: bool = False  # share memory only where that adds no dependence
    reuses: List[Reuse] = field(default_factory=list)
    left_alone: Dict[int, str] = field(default_factory=dict)
    saved_seconds: float = 0.0  # time that earlier passes took off the step; recompute may spend it
    spent_seconds: float = 0.0  # extra time of a step that passes so far have spent on recomputing
    known: Optional[Dict[str, Any]] = None
    given: Optional[Graph] = None
    solved: Dict[Hashable, Any] = field(default_factory=dict)
    after: Optional[Timeline] = None

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` finds out of the graph that the pass was given, before it has changed it."""
        if self.known is None:
            return make()
        if name not in self.known:
            self.known[name] = make()
        return self.known[name]

    def timeline(self, graph: Graph) -> Timeline:
        """The timeline of the graph that the pass was given."""
        given = graph if self.given is None else self.given
        return self.once('timeline', lambda: Timeline(given, self.runtime, self.dims))

    def collecting(self, graph: Graph) -> Timeline:
        """The timeline of the graph that the pass was given, if the runtime freed all that is dead."""
        # Not of the copy that the pass changes: what a timeline finds out later would be of the changed one.
        given = graph if self.given is None else self.given
        return self.once('collecting', lambda: Timeline(given, self.runtime.freeing(), self.dims))

    def interference(self, graph: Graph) -> Interference:
        """Who may share memory with whom in the graph that the pass was given."""
        if self.known is None:
            return Interference(graph if self.given is None else self.given, self.skip_grads)
        return interference_of(self.timeline(graph), self.skip_grads)

    def answer(self, question: Hashable, make: Callable[[], T]) -> T:
        """What `make` finds, which must follow from `question`, `dims` and the options alone."""
        if question not in self.solved:
            self.solved[question] = make()
        return self.solved[question]
