"""Which passes run, in which order, and whether their result is kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from transpiler.analysis.runtime import RuntimeModel
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph
from transpiler.passes.context import PassContext, Reuse
from transpiler.passes.inplace import coalesce_in_place
from transpiler.passes.loop_copies import drop_invariant_copies, drop_unread_copies
from transpiler.passes.recompute import recompute_in_regions
from transpiler.passes.release import release_storages
from transpiler.passes.reuse import reuse_storages

Pass = Callable[[Graph, PassContext], Graph]

_IN_PLACE: Tuple[str, Pass] = ('in-place', coalesce_in_place)
_REUSE: Tuple[str, Pass] = ('reuse', reuse_storages)
_COPIES: Tuple[str, Pass] = ('loop-invariant copies', drop_invariant_copies)
_UNREAD: Tuple[str, Pass] = ('unread loop copies', drop_unread_copies)
_RECOMPUTE: Tuple[str, Pass] = ('recompute', recompute_in_regions)
_RELEASE: Tuple[str, Pass] = ('release', release_storages)
Sequences = Tuple[Tuple[Tuple[str, Pass], ...], ...]
# Simplest first: a longer sequence must do strictly better to be chosen.
OPTIMIZE: Sequences = tuple(loops + rest
                            for loops in ((), (_COPIES, _UNREAD), (_COPIES, _RECOMPUTE, _UNREAD))
                            for rest in ((), (_IN_PLACE,), (_REUSE,), (_IN_PLACE, _REUSE),
                                         (_RELEASE,), (_IN_PLACE, _REUSE, _RELEASE))
                            if loops + rest)
RELEASE_ONLY: Sequences = ((_RELEASE,),)


@dataclass
class Plan:
    """A graph that is at least as good as the original, and what was done to get there.

    `savings` lists (pass, bytes by which it lowered the predicted peak).
    """

    original: Graph
    graph: Graph
    before: Timeline
    after: Timeline
    reuses: List[Reuse] = field(default_factory=list)
    left_alone: Dict[int, str] = field(default_factory=dict)
    savings: List[Tuple[str, int]] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return self.graph is not self.original


@dataclass(frozen=True)
class PlanOptions:
    """What the caller allows; see memory_optimize."""

    level: int = 0
    skip_grads: bool = True
    recompute: str = 'auto'
    max_overhead: float = 0.10


def plan(graph: Graph,
         model: RuntimeModel,
         dims: Mapping[str, int],
         options: PlanOptions = PlanOptions(),
         sequences: Sequences = OPTIMIZE) -> Plan:
    """The best of the pass sequences by the timeline of `model`; the original if none lowers the peak."""
    before = Timeline(graph, model, dims)
    best = Plan(graph, graph, before, before)
    for sequence in sequences:
        context = PassContext(model, dims, options.level, options.skip_grads, options.recompute,
                              options.max_overhead)
        candidate = _run(graph, before, sequence, context)
        best.left_alone.update(context.left_alone)
        if candidate.after.peak_bytes < best.after.peak_bytes:
            best = replace(candidate, left_alone=best.left_alone)
    return best


def _run(graph: Graph, before: Timeline, sequence: Sequence[Tuple[str, Pass]],
         context: PassContext) -> Plan:
    current, after, savings = graph.copy(), before, []
    for name, rewrite in sequence:
        current = rewrite(current, context)
        timeline = Timeline(current, context.model, context.dims)
        savings.append((name, after.peak_bytes - timeline.peak_bytes))
        after = timeline
    return Plan(graph, current, before, after, context.reuses, context.left_alone, savings)
