"""A plan, and what a caller allows it to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Dict, FrozenSet, List, Optional, Tuple

from transpiler.analysis.cost import CostModel
from transpiler.analysis.runtime import RuntimeModel
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import lagging_peak_with_workspaces, peak_with_workspaces
from transpiler.ir import RELEASE, Graph
from transpiler.passes.context import Reuse
from transpiler.passes.in_time import left_to_collector
from transpiler.planning.sequences import PROMPT, SURE, NamedPass


@dataclass(frozen=True)
class Recomputed:
    """What recomputing in the main block costs. Times are seconds, by the cost model.

    `curve` are all plans that were in the choice, as (peak bytes above resting, extra seconds). `bound_seconds`: no plan
    for the peak that was chosen takes less extra time, in the order that the program has.
    """

    clones: int
    seconds: float
    bound_seconds: float
    curve: Tuple[Tuple[int, float], ...]


@dataclass
class Plan:
    """A graph that is at least as good as the original, and what was done to get there.

    `savings` lists (pass, bytes by which it lowered the predicted peak). `held` are the regions whose order must be
    pinned for the prediction to come true. Times are by the cost model.
    """

    original: Graph
    graph: Graph
    before: Timeline
    after: Timeline
    reuses: List[Reuse] = field(default_factory=list)
    left_alone: Dict[int, str] = field(default_factory=dict)
    savings: List[Tuple[str, int]] = field(default_factory=list)
    steps: Tuple[NamedPass, ...] = ()
    held: FrozenSet[int] = frozenset()
    saved_seconds: float = 0.0  # of a step, by loop passes
    extra_seconds: float = 0.0  # of a step, for recomputing inside loops and branches
    recomputed: Optional[Recomputed] = None  # in the main block
    step_seconds: float = 0.0  # of the original, where anything of it is computed again

    @property
    def changed(self) -> bool:
        return self.graph is not self.original or bool(self.held)

    @cached_property
    def needed_bytes(self) -> int:
        """The peak, with what kernels allocate for themselves, and with the copies of what the caller fetches."""
        fed = sum(v.size.evaluate(self.after.dims) for v in self.graph.values if v.fed and v.size)
        return max(peak_with_workspaces(self.graph, self.after), fed + 2 * self._fetched_copies)

    @property
    def _fetched_copies(self) -> int:
        dims = self.after.dims
        return sum(v.size.evaluate(dims) for v in self.graph.values if v.copied_out and v.size)

    @cached_property
    def needed_before(self) -> int:
        """The same of the original."""
        return peak_with_workspaces(self.original, self.before)

    @cached_property
    def _converted_bytes(self) -> int:
        """Copies in other layouts of what ops read and write, where their region does not free them at once."""
        dims, values, regions = self.after.dims, self.graph.values, self.graph.regions
        return sum(values[v].size.evaluate(dims) for op in self.graph.walk()
                   if op.facts.converts and not regions[op.region].frees_at_once
                   for v in op.reads() + op.writes() if values[v].size is not None)

    @cached_property
    def timely_bytes(self) -> int:
        """The same, with all the small values that a late collector may still hold: what stays when the rest is released."""
        return self.needed_bytes + left_to_collector(self.graph, self.after)

    @cached_property
    def sure_bytes(self) -> int:
        """What no run needs more than, and so what a budget must bear; bytes above resting, by runtime:

        - collecting: `timely_bytes`, and what a late collector lets pile up inside loops and branches. In the main block
          nothing does in a plan for a budget: it releases by itself. And the copies of what the caller fetches, which
          may be made as soon as that is there.
        - retaining: `needed_bytes` of a later run, which begins with all that the one before has left, and those copies.
          Where the program releases, and its order is not held, ops may start before the releases: what it needed before.
        - a saved program for a predictor: `needed_bytes`. Its ops are in a block whose variables are freed by the thread
          that runs it, before its next op starts.

        Where kernels have layouts of their own (oneDNN, as `paddle.static.amp.bf16` asks for), the executor's copies of what
        they read and write come on top: the first run frees none of them before its end.
        """
        if self.after.lifetimes.model is not RuntimeModel.COLLECTING:
            unheld = not self.held and any(op.kind == RELEASE for op in self.graph.walk())
            most = self.needed_before if unheld else 0
            return max(self.timely_bytes, most) + self._fetched_copies + self._converted_bytes
        inner = len(self.graph.regions) > 1
        late = lagging_peak_with_workspaces(self.graph, self.after) if inner else 0
        return max(self.timely_bytes, late) + self._fetched_copies + self._converted_bytes

    @property
    def frees_in_time(self) -> bool:
        """Whether it releases itself what a late collector would let pile up."""
        return PROMPT in self.steps or SURE in self.steps


@dataclass(frozen=True)
class PlanOptions:
    """What the caller allows; see memory_optimize."""

    level: int = 0
    skip_grads: bool = True
    recompute: str = 'auto'
    max_overhead: float = 0.10
    parallel: bool = False
    budget: Optional[int] = None  # bytes above resting
    cost: CostModel = CostModel()
