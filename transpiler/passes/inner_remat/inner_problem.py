"""What a gradient region needs of its forward region, and which of it may be rebuilt there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, Optional, Set, Tuple

from transpiler.analysis.counters import mirrored_counters
from transpiler.analysis.positions import Positions
from transpiler.analysis.reloads import reloads
from transpiler.analysis.writers import Writers
from transpiler.ir import READ_ELEMENT, ArrayAccess, Graph, Op, OpFacts, Region, ValueKind, Work
from transpiler.passes.cloning import Races, may_be_cloned
from transpiler.passes.context import PassContext
from transpiler.passes.inner_remat.readers import Readers
from transpiler.passes.loop_copies import is_stable
from transpiler.passes.replay import can_be_replayed, replay_seconds, replayed

_READS_ELEMENT = OpFacts(array=ArrayAccess.READS_ELEMENT, work=Work(picks=True))


@dataclass
class InnerProblem:
    """One forward region and its gradient region: what is needed there and how it may be had."""

    forward: Region
    gradient: Region
    needed: Set[int]  # forward values whose data the gradient reads
    producer: Dict[int, Op]  # by forward value, ops that may be cloned
    free: Set[int]  # values that the gradient can read at no cost
    repeats: int = 1  # how often the forward op runs in a step
    # In all trips of one run, for a cut has no numbers for those of many loops in loops.
    size: Dict[int, int] = field(default_factory=dict)  # bytes kept
    seconds: Dict[int, float] = field(default_factory=dict)  # of all clones of an op


def drop_shape_readers(graph: Graph, gradient: Region, readers: Readers) -> None:
    """An operand of which only the shape is read becomes another operand of the same shape.

    The runtime keeps all that a gradient block names, even for its shape alone.
    """
    for op in [op for op in readers.ops(gradient) if op.facts.shape_only]:
        operands = list(op.operands)
        for position in op.facts.shape_only:
            value = operands[position]
            if value < 0 or graph.values[value].region != gradient.forward:
                continue
            twin = _same_shape(graph, op, value, gradient)
            if twin is not None:
                operands[position] = twin
        if tuple(operands) != op.operands:
            graph.ops[op.id] = replace(op, operands=tuple(operands))


def _same_shape(graph: Graph, op: Op, value: int, gradient: Region) -> Optional[int]:
    """What `op` reads and looks like `value`; or, where that may not be, what is in the gradient region by then."""
    wanted, others = graph.values[value], op.data_reads()
    if op.facts.apart:
        others = tuple(v for v in _there(graph, op, gradient) if v not in others)
    for other in others:
        has = graph.values[other]
        if wanted.extent is not None and (has.extent, has.dtype, has.lod_level,
                                          has.kind) == (wanted.extent, wanted.dtype,
                                                        wanted.lod_level, wanted.kind):
            return other
    return None


def _there(graph: Graph, op: Op, gradient: Region) -> Tuple[int, ...]:
    """Values of `gradient` that are there when `op`, one of its own, begins."""
    before = gradient.ops[:gradient.ops.index(op.id)] if op.region == gradient.id else ()
    made = (v for other in before for v in graph.ops[other].writes())
    return (*(inner for _, inner in gradient.arguments),
            *(v for v in made if graph.values[v].region == gradient.id))


def inner_problem(graph: Graph, gradient: Region, context: PassContext, writers: Writers,
                  races: Races, readers: Readers) -> InnerProblem:
    """The problem of `gradient`, whose shape readers are dropped; `writers`, `races` and `readers` are those of `graph`."""
    forward = graph.regions[gradient.forward]
    copies = {inner for _, inner in forward.arguments}
    needed = readers.of(gradient) - copies
    free = copies | (readers.named_by_regions(gradient) & needed)
    trips = forward.trips.evaluate(context.dims)
    repeats = graph.runs_of(forward.parent).evaluate(context.dims)
    problem = InnerProblem(forward, gradient, needed - free, {}, free, repeats)
    problem.producer = {
        **_clonable(graph, forward, gradient, writers, races, context.recompute == 'cheap'),
        **_reloads(graph, gradient)
    }
    asked = {v for op in problem.producer.values() for v in op.reads() + op.writes()}
    for value in map(graph.values.__getitem__, problem.needed | asked):
        if value.region == forward.id and value.size is not None:
            problem.size[value.id] = value.size.evaluate(context.dims) * trips
    for op in problem.producer.values():
        problem.seconds[op.id] = _clone_seconds(graph, op, context) * trips
    return problem


def _clone_seconds(graph: Graph, op: Op, context: PassContext) -> float:
    if op.facts.replay is not None:
        return replay_seconds(graph, op, context.cost, context.dims)
    return context.cost.seconds(graph, op, context.dims)


def clone_operands(op: Op) -> Tuple[int, ...]:
    """What a clone of `op` reads, or what makes its result again."""
    return op.reads() if op.facts.replay is None else replayed(op, op.facts.replay)[0]


def clone_results(op: Op) -> Tuple[int, ...]:
    """What a clone of `op` makes that the gradient may read instead."""
    return op.writes() if op.facts.replay is None else (replayed(op, op.facts.replay)[1],)


def _reloads(graph: Graph, gradient: Region) -> Dict[int, Op]:
    """Ops, not yet in the graph, that read values of the trip from arrays that have them too."""
    return {
        value:
            Op(-2 - value,
               READ_ELEMENT,
               gradient.id,
               operands=(reload.array, reload.index),
               results=(value,),
               facts=_READS_ELEMENT,
               origin=None,
               backward=True)
        for value, reload in reloads(graph, gradient).items()
        if graph.values[value].size is not None
    }


def _clonable(graph: Graph, forward: Region, gradient: Region, writers: Writers, races: Races,
              cheap: bool) -> Dict[int, Op]:
    """Ops whose clone in the gradient gives the same bytes and has no other effect, by result."""
    stepwise = _Stepwise(graph, gradient, writers.positions)
    found: Dict[int, Op] = {}
    written_before: Set[int] = set()
    for op in graph.region_ops(forward.id):
        if (_may_be_cloned(graph, op, writers, cheap) and not races.of_clone(op) and all(
                _may_be_read(graph, v, forward, written_before, writers) or
                stepwise.may_read(op, v) for v in clone_operands(op))):
            found.update((v, op) for v in clone_results(op) if stepwise.comes_in_time(op, v))
        if forward.arguments:  # else nobody asks
            written_before.update(op.writes(), *[inner.writes() for inner in graph.inside(op)])
    return found


class _Stepwise:
    """What the gradient sees as the loop did only after it has counted back: counters, and arrays with one element a step.

    Clones that read them, and clones of what is made from those, come after that; so no op before it may need them.
    """

    def __init__(self, graph: Graph, gradient: Region, positions: Positions) -> None:
        self._graph = graph
        self._positions = positions
        self._counts: Dict[int, int] = {}  # position of the op that counts, by storage
        ready = 0
        for counter in mirrored_counters(graph, gradient):
            for storage in (counter.storage, *counter.arrays):
                self._counts[storage] = positions.of[counter.counts]
            ready = max(ready, positions.of[counter.counts_back])
        early = [graph.ops[op] for op in gradient.ops[:ready + 1]]
        nested = [inner for op in early for inner in graph.inside(op)]
        self._needed_early = {v for op in early + nested for v in op.reads()}
        self._late: Set[int] = set(self._counts)  # storages, and values made from them

    def may_read(self, op: Op, value: int) -> bool:
        counts = self._counts.get(self._graph.values[value].storage)
        return counts is not None and self._positions.of[op.id] < counts

    def comes_in_time(self, op: Op, result: int) -> bool:
        """Whether a clone of `op` would be there when its result is first needed. To be asked in the order of ops."""
        if not self._late.intersection(self._graph.values[v].storage for v in op.reads()):
            return True
        self._late.update(op.writes())
        return result not in self._needed_early


def _may_be_cloned(graph: Graph, op: Op, writers: Writers, cheap: bool) -> bool:
    """What an op updates, or names as a result, has no stand-in here, and of what it makes all sizes must be known."""
    if op.facts.replay is not None and not can_be_replayed(graph, op):
        return False
    sized = all(graph.values[v].size is not None for v in op.writes())
    return (sized and not op.facts.updates and not op.left_as_it_is() and
            may_be_cloned(graph, op, writers.count, cheap))


def _may_be_read(graph: Graph, value: int, forward: Region, written_before: Set[int],
                 writers: Writers) -> bool:
    facts = graph.values[value]
    if facts.region == forward.id:
        return (facts.kind is ValueKind.DENSE and writers.count(value) <= 1 and
                facts.size is not None)
    return _gradient_sees(graph, value, forward, written_before, writers)


def _gradient_sees(graph: Graph, value: int, forward: Region, written_before: Set[int],
                   writers: Writers) -> bool:
    """Whether the gradient finds, for a value from outside, what this op of the forward region read.

    Either the trip's scope has a copy, made before the first write, that nobody changes, or nobody changes the value.
    """
    copies = [inner for outer, inner in forward.arguments if outer == value]
    if copies:
        changed = writers.inside(forward.id)
        return value not in written_before and changed.isdisjoint(
            graph.values[c].storage for c in copies)
    return is_stable(graph, writers, value, forward)
