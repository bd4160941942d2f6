"""What rematerialization decides about: ops and cells by index, what may run again, until when, and at what cost."""

from __future__ import annotations

import bisect
import operator
from dataclasses import dataclass, replace
from typing import Dict, List, Set, Tuple

from transpiler.analysis.accesses import Accesses
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import workspace_bytes
from transpiler.ir import Graph, Op, Replay, ValueKind
from transpiler.ir.boundary import state_of_calls
from transpiler.passes.cloning import Races, made_again, may_be_cloned
from transpiler.passes.context import PassContext
from transpiler.passes.orders.order_problem import OrderProblem, given_order
from transpiler.passes.replay import can_be_replayed, replay_seconds, replayed, scratch_bytes

_MAIN = 0


@dataclass
class RematProblem:
    """Ops of the main region by index, in the order that is kept, and the cells of an `OrderProblem`.

    `ops` are op ids, `cells` the storages. `operands[op]` are the cells whose data an op that may be cloned reads, and
    `results[op]` those that its clone makes again; both are empty for the others. `producer[cell]` is the op whose clone
    makes it again, -1 if none may. A clone gives the same bytes before position `deadline[op]` only: there something
    that it reads is overwritten. Nothing is cloned before `boundary`, where the backward part begins, and nothing of that part; of
    a program that has none all ops may be cloned, anywhere behind themselves: its boundary is 0.
    """

    memory: OrderProblem
    ops: List[int]
    cells: List[int]
    operands: List[Tuple[int, ...]]
    results: List[Tuple[int, ...]]
    scratch: List[
        int]  # bytes that a clone writes and nobody reads, and those that its kernel takes for itself
    producer: List[int]
    deadline: List[int]
    seconds: List[float]
    boundary: int

    def __len__(self) -> int:
        return len(self.ops)


def remat_problem(graph: Graph, context: PassContext, timeline: Timeline) -> RematProblem:
    """The problem of the main region of `graph`, in its order. `timeline` is of `graph`, under the collecting runtime."""
    memory = given_order(graph, timeline, _nested_peaks(graph, timeline))
    return _Builder(graph, context, memory, timeline).build()


def backward_start(graph: Graph) -> int:
    """Position in the main region of the first op of the backward part; 0 if there is none."""
    flags = (op.backward for op in graph.region_ops(_MAIN))
    return next((at for at, flag in enumerate(flags) if flag), 0)


def _nested_peaks(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """Peak of each nested region above what its op finds, in bytes."""
    points = {p.op: p.bytes for p in timeline.points} if len(graph.regions) > 1 else {}
    most: Dict[int, int] = {}  # with what exists outside
    peaks: Dict[int, int] = {}
    for region in graph.regions[:0:-1]:  # inner ones come after those around them
        ops = [op for op in graph.region_ops(region.id) if op.id in points]
        inside = [points[op.id] for op in ops
                 ] + [most[r] for op in ops for r in op.regions if r in most]
        if inside:
            most[region.id] = max(inside)
        kept = (timeline.evaluate(region.trips) - 1) * timeline.evaluate(
            timeline.kept_per_trip(region.id)) if region.keeps_scopes else 0
        base = points.get(region.op, 0) + kept
        peaks[region.id] = max(0, max(inside, default=base) - base)
    return peaks


class _Builder:

    def __init__(self, graph: Graph, context: PassContext, memory: OrderProblem,
                 timeline: Timeline) -> None:
        self._graph = graph
        self._context = context
        self._memory = memory
        self._timeline = timeline
        self._ops = list(graph.region_ops(_MAIN))
        storages = timeline.lifetimes.by_region[_MAIN].values()
        self._cells = list(dict.fromkeys(s for lifetime in storages for s in lifetime.storages))
        self._number = {s: i for i, s in enumerate(self._cells)}
        self._pinned = self._pinned_values()
        self._writes: Dict[int, List[int]] = {}  # storage -> positions
        self._races = Races(graph)
        accesses, state = Accesses(graph), state_of_calls(graph)
        for at, op in enumerate(self._ops):
            for storage in accesses.of(op)[1] | (state if op.facts.boundary else set()):
                self._writes.setdefault(storage, []).append(at)

    def build(self) -> RematProblem:
        boundary = backward_start(self._graph)
        cost, dims = self._context.cost, self._context.dims
        spent = [cost.seconds(self._graph, op, dims) for op in self._ops]
        own = [workspace_bytes(op, dims) for op in self._ops]
        memory = replace(self._memory,
                         transient=list(map(operator.add, self._memory.transient, own)))
        problem = RematProblem(memory, [op.id for op in self._ops], self._cells,
                               [()] * len(self._ops), [()] * len(self._ops), own,
                               [-1] * len(self._cells), [0] * len(self._ops), spent, boundary)
        for at, op in enumerate(self._ops[:boundary] if self._graph.trains else self._ops):
            if self._may_be_cloned(op):
                self._add(problem, at, op)
        return problem

    def _add(self, problem: RematProblem, at: int, op: Op) -> None:
        if op.facts.replay is not None:
            self._add_replay(problem, at, op, op.facts.replay)
            return
        state = dict(op.facts.updates)
        operands = [v for i, v in enumerate(op.operands) if i not in op.facts.shape_only]
        read = [v for i, v in enumerate(op.operands) if v in operands and i not in state]
        problem.deadline[at] = min((self._next_write(v, at) for v in read if v >= 0),
                                   default=len(self._ops))
        problem.operands[at] = tuple(dict.fromkeys(c for c in map(self._cell, read) if c >= 0))
        made = made_again(op)
        cells = [c for c in map(self._cell, made) if c >= 0]
        again = [c for v, c in zip(made, map(self._cell, made)) if c >= 0 and v not in self._pinned]
        problem.results[at] = tuple(again)
        problem.scratch[at] += sum(self._memory.sizes[c] for c in cells if c not in again)
        for cell in again:
            problem.producer[cell] = at

    def _add_replay(self, problem: RematProblem, at: int, op: Op, replay: Replay) -> None:
        read, result = replayed(op, replay)
        problem.deadline[at] = min(self._next_write(v, at) for v in read)
        cell = self._cell(result)
        if cell < 0 or result in self._pinned:
            return
        problem.operands[at] = tuple(c for c in map(self._cell, read) if c >= 0)
        problem.results[at] = (cell,)
        problem.producer[cell] = at
        problem.scratch[at] = scratch_bytes(self._graph, op, self._context.dims)
        problem.seconds[at] = replay_seconds(self._graph, op, self._context.cost,
                                             self._context.dims)

    def _cell(self, value: int) -> int:
        return self._number.get(self._graph.values[value].storage, -1) if value >= 0 else -1

    def _next_write(self, value: int, at: int) -> int:
        positions = self._writes.get(self._graph.values[value].storage, [])
        following = bisect.bisect_right(positions, at)
        return positions[following] if following < len(positions) else len(self._ops)

    def _pinned_values(self) -> Set[int]:
        """Values that keep the name and the contents that they have: nobody may read a clone of them instead. A test program has no
        clones of a training program, but what reads behind the backward part and is none of it, as a metric does."""
        pinned = {
            v.id for v in self._graph.values if v.fed or v.fetched or v.skipped or v.buffer >= 0
        }
        if self._graph.trains:
            behind = self._ops[backward_start(self._graph):]
            for op in (op for op in behind if not op.backward):
                pinned.update(op.reads(), *(inner.reads() for inner in self._graph.inside(op)))
        return pinned | self._graph.touched_elsewhere()

    def _may_be_cloned(self, op: Op) -> bool:
        cheap = self._context.recompute == 'cheap'
        if not may_be_cloned(self._graph, op, lambda value: len(self._writes[value]), cheap):
            return False
        if self._races.of_clone(op):
            return False
        if op.facts.replay is not None:
            return can_be_replayed(self._graph, op)
        state = dict(op.facts.updates)
        reads = [v for i, v in enumerate(op.operands) if v >= 0 and i not in state]
        return all(self._graph.values[v].kind is ValueKind.DENSE for v in reads)
