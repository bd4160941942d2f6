"""A plan, and what a caller allows it to do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Tuple, Union

from transpiler.analysis.cost import CostModel
from transpiler.analysis.layouts import copied_bytes
from transpiler.analysis.retained import retained_peak, retained_peak_in_any_order
from transpiler.analysis.segments import Segments, UpkeepOf, upkeep
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import peak_with_workspaces
from transpiler.ir import RELEASE, Graph
from transpiler.passes.context import Reuse
from transpiler.passes.releases.in_time import without_collector
from transpiler.planning.sequences import PROMPT, RECENT, SURE, NamedPass


@dataclass(frozen=True)
class Recomputed:
    """What recomputing in the main block costs. Times are seconds, by the cost model.

    `curve` are all plans that were in the choice, as (peak bytes above resting, extra seconds). `bound` gives what finds the
    least seconds: no plan for the peak that was chosen takes less extra time than that, in the order that the program has.
    `by_origin`: the parts of `seconds`, by the op of the program as it was read that runs again; None for those of ops that it did
    not have.
    """

    clones: int
    seconds: float
    bound: Callable[[], Callable[[], float]] = field(repr=False, compare=False)
    curve: Tuple[Tuple[int, float], ...]
    by_origin: Mapping[Optional[int], float] = field(default_factory=dict)


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
    loose: bool = False  # no order will be held, and nothing released for a budget
    served: bool = False  # a predictor runs it
    segments: Segments = ()  # of the main region of `graph`; `after` counts with them
    unsegmented: str = ''  # why not
    grows_elsewhere: bool = False  # it needs more than no plan where it was not made for
    sizes: Tuple[Mapping[str, int],
                 ...] = ()  # those that it was chosen for, where a hint is missing

    def at(self, dims: Mapping[str, int]) -> Plan:
        """The same, its bytes for other values of the symbolic dims; its times stay those of the sizes that it was made for."""
        return replace(self, before=self.before.at(dims), after=self.after.at(dims))

    @property
    def changed(self) -> bool:
        return self.graph is not self.original or bool(self.held)

    @property
    def upkeep_before(self) -> UpkeepOf:
        """What the executor keeps besides tensors, and how long it takes to build that."""
        return upkeep(self.original, self.before.lifetimes.runtime)

    @property
    def upkeep_after(self) -> UpkeepOf:
        return upkeep(self.graph, self.before.lifetimes.runtime, self.segments)

    @cached_property
    def needed_bytes(self) -> int:
        """The peak, with what kernels allocate for themselves, and with the copies of what the caller fetches."""
        return max(peak_with_workspaces(self.graph, self.after), self._handed_over)

    @cached_property
    def _fed_bytes(self) -> int:
        return sum(
            v.bound.evaluate(self.after.dims) for v in self.graph.values if v.fed and v.bound)

    @property
    def _fetched_copies(self) -> int:
        return sum(self._fetched_sizes)

    @property
    def _fetched_sizes(self) -> List[int]:
        dims = self.after.dims
        return [v.bound.evaluate(dims) for v in self.graph.values if v.copied_out and v.bound]

    @cached_property
    def needed_before(self) -> int:
        """The same of the original."""
        return max(peak_with_workspaces(self.original, self.before), self._handed_over)

    @property
    def _handed_over(self) -> int:
        """What is there when all else is gone: inputs, what the caller fetches, and copies of that."""
        return self._fed_bytes + 2 * self._fetched_copies

    @cached_property
    def _converted_bytes(self) -> int:
        """Copies in other layouts of what ops read and write, where their region does not free them at once."""
        dims, values, regions = self.after.dims, self.graph.values, self.graph.regions
        return sum(values[v].bound.evaluate(dims) for op in self.graph.walk()
                   if op.facts.converts and not regions[op.region].frees_at_once
                   for v in op.reads() + op.writes() if values[v].bound is not None)

    @cached_property
    def timely_bytes(self) -> int:
        """The same, with all that a late collector may still hold of the main block when the program has released what it can.

        A runtime that retains takes the next run's inputs while it has those of the one before; a predictor's have a place. There
        several ops may be at work at once where their order is not held.
        """
        if self.served:
            return self.needed_bytes
        if self._bears_delays:
            return max(self.needed_bytes, self.after.lagging_peak_bytes)
        if self._in_segments:
            return self.needed_bytes + self._fed_bytes * self.after.lifetimes.runtime.delays.runs
        if not self.after.lifetimes.runtime.collects:
            return self._retained_bytes + self._fed_bytes
        return self._uncollected(self.loose or self.frees_in_time, lags=False)

    @property
    def _retained_bytes(self) -> int:
        """The most of any run of a runtime that retains, whatever batches came before."""
        most = retained_peak if 0 in self.held else retained_peak_in_any_order
        return max(self.needed_bytes, most(self.graph, self.after)) + copied_bytes(
            self.graph, self.after)

    @property
    def _bears_delays(self) -> bool:
        return self.after.lifetimes.runtime.collects and self.after.lifetimes.runtime.bears_delays

    def _uncollected(self, as_it_is: bool, lags: bool, any_order: bool = False) -> int:
        most = without_collector(self.graph, self.after, as_it_is, lags, any_order)
        return max(self.needed_bytes, most)

    @cached_property
    def sure_bytes(self) -> int:
        """What no run of the program as it is needs more than; bytes above resting, by runtime:

        - collecting: as if the collector freed nothing of the main block in a run, and what the runs before have left to it
          were still there; so only what RELEASE ops free is gone, and that only where the order is held, as another may start
          ops before them. A plan for a budget releases by itself what would not fit. And the copies of what the caller
          fetches, which may be made as soon as that is there.
        - retaining: `needed_bytes` of a later run, which begins with all that the one before has left, the inputs of two
          runs, those copies, and what the results of a smaller batch had while larger ones are allocated; what piles up from run
          to run (`leftovers.piled_up`) is counted once. Where the program releases, and its order is not held, ops may start
          before the releases: what it needed before.
        - a saved program for a predictor: `needed_bytes`. Its ops are in a block whose variables are freed by the thread
          that runs it, before its next op starts.
        - a layer's program: `needed_bytes`, or the peak with a collector two ops behind, if that is more. Nothing in it could give back.

        Where kernels have layouts of their own (oneDNN, as `paddle.static.amp.bf16` asks for), the executor's copies of what
        they read and write come on top: the first run frees none of them before its end.
        """
        if not self._waits_for_collector:
            return self.budget_bytes
        return self._uncollected(as_it_is=True, lags=True, any_order=0
                                 not in self.held) + self._copies

    @cached_property
    def budget_bytes(self) -> int:
        """What a budget must bear, in bytes above resting: `sure_bytes` if the program released what it can, in its order, as it
        does under a budget that would not bear the rest."""
        if self._waits_for_collector:
            in_time = self._uncollected(self.frees_in_time, lags=True) + self._copies
            return self.sure_bytes if self.loose else in_time
        most = self.timely_bytes
        if not self.served and not self.after.lifetimes.runtime.collects and 0 not in self.held:
            releases = any(op.kind == RELEASE for op in self.graph.region_ops(0))
            most = max(most, self.needed_before) if releases else most
        return most + self._copies

    @cached_property
    def loose_bytes(self) -> int:
        """The same for a collector that frees nothing, if the program releases no more than it does: enough in any order."""
        return self._uncollected(as_it_is=True, lags=True, any_order=True) + self._copies

    @property
    def _waits_for_collector(self) -> bool:
        """Whether its main block leaves anything to a collector that may be late."""
        collects = self.after.lifetimes.runtime.collects
        return collects and not (self.served or self._bears_delays or self._in_segments)

    @property
    def _in_segments(self) -> bool:
        return bool(self.segments) and len(self.graph.regions) == 1

    @property
    def _copies(self) -> int:
        """Of what the caller fetches, twice what the runtime keeps; if it keeps nothing, one is there twice at a time."""
        most = max(self._fetched_sizes, default=0)
        again = self._fetched_copies if self.after.lifetimes.runtime.keeps_fetched else most
        return self._fetched_copies + again + self._converted_bytes

    @property
    def frees_in_time(self) -> bool:
        """Whether it releases itself what a late collector would let pile up."""
        return not {PROMPT, RECENT, SURE}.isdisjoint(self.steps)


def _untold(what: str) -> None:
    """For nobody who waits."""


@dataclass(frozen=True)
class PlanOptions:
    """What the caller allows; see memory_optimize. `progress` is told what is done next."""

    level: int = 0
    skip_grads: bool = True
    recompute: str = 'auto'
    max_overhead: float = 0.10
    parallel: bool = False
    budget: Optional[int] = None  # bytes above resting
    # None where it pays, True wherever it can be done, or of so many ops each at the most.
    segments: Union[None, bool, int] = False
    cost: CostModel = CostModel()
    progress: Callable[[str], None] = field(default=_untold, compare=False)
