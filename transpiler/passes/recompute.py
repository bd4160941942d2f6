"""Save less: forward values that a gradient region reads are rebuilt there from what is kept anyway.

Needs: nothing. Keeps: the order of the ops that are there. Changes: adds clones of forward ops, and reads of arrays that hold
what a trip made, to gradient regions, which read their results instead.

For each region with a gradient region (the body of a training loop, a branch), which values to keep per trip and which to
rebuild is a minimum cut: keeping a value costs its bytes, rebuilding it costs its op's time, at an exchange rate. The rate
is the lowest at which the extra time stays within `max_overhead` of the step (a Lagrangian of the budget).
The closure formulation is that of min-cut rematerialization (Chen et al. 2016 for the idea; AOTAutograd's partitioner
for the cut), here with compute time on the arcs and trips as a factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, FrozenSet, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ortools.graph.python.max_flow import SimpleMaxFlow

from transpiler.analysis.cost import is_heavy
from transpiler.analysis.counters import mirrored_counters
from transpiler.analysis.positions import Positions
from transpiler.analysis.reloads import reloads
from transpiler.ir import Graph, Op, Region, ValueKind
from transpiler.passes.cloning import Cloner
from transpiler.passes.context import PassContext
from transpiler.passes.loop_copies import is_stable, seen_by_gradient
from transpiler.passes.replay import add_replay, can_be_replayed, replay_seconds, replayed

_Limits = Tuple[Tuple[int, float], ...]  # of gradient regions: id, and seconds of a step
_Node = Tuple[int, str]  # a value or an op, and what of it
_SOURCE, _SINK = (-1, 'source'), (-1, 'sink')
_FOREVER = float('inf')
# How long `_put_back` tries: values kept after all, and values looked at for each.
_MOST_PUT_BACK, _MOST_CANDIDATES = 6, 40
# Levels for budgets: so many, and fewer where a graph has many ops; two rates have at most so many between them.
_MOST_LEVELS, _FEWEST_LEVELS, _OPS_OF_LEVELS, _MOST_BETWEEN = 24, 4, 40_000, 6
# Bytes that a second of compute is worth: from nearly nothing to more than any memory.
_RATES = [10.0**(k / 8) for k in range(24, 121)]


@dataclass
class _Problem:
    """One forward region and its gradient region: what is needed there and how it may be had."""

    forward: Region
    gradient: Region
    needed: Set[int]  # forward values whose data the gradient reads
    producer: Dict[int, Op]  # by forward value, ops that may be cloned
    free: Set[int]  # values that the gradient can read at no cost
    size: Dict[int, int] = field(default_factory=dict)  # bytes kept per run of the gradient's loop
    seconds: Dict[int, float] = field(default_factory=dict)  # of all clones of an op, by op


def recompute_in_regions(graph: Graph, context: PassContext) -> Graph:
    """Rewrites every gradient region, innermost last."""
    return _recompute(graph, context, _allowed_seconds(graph, context))


def recompute_less_in_regions(graph: Graph, context: PassContext) -> Graph:
    """The same with half the time: the main block may make more of the rest."""
    return _recompute(graph, context, _allowed_seconds(graph, context) / 2)


@dataclass(frozen=True)
class RecomputeWithin:
    """The pass with a limit for each gradient region: (region, seconds of a step)."""

    limits: _Limits

    def __call__(self, graph: Graph, context: PassContext) -> Graph:
        return _recompute_within(graph, context, self.limits)


def recompute_levels(graph: Graph, context: PassContext) -> List[RecomputeWithin]:
    """Passes that rebuild more and more, from nothing that takes time to all that can be.

    They depend on the graph alone, not on any budget.
    """
    rungs = _rungs(graph, context)
    most = min(_MOST_LEVELS, max(_FEWEST_LEVELS, _OPS_OF_LEVELS // max(1, len(graph.ops))))
    found = rungs[:1]  # takes no time, but may rebuild what takes none
    for rung in rungs[1:]:
        found.extend((*_between(found[-1], rung, rungs[0].kept // most), rung))
    return [RecomputeWithin(rung.limits) for rung in _spread(found, rungs[0].kept / most)]


def _allowed_seconds(graph: Graph, context: PassContext) -> float:
    if context.recompute != 'auto':
        return _FOREVER
    step = context.cost.region_seconds(graph, 0, context.dims)
    return context.max_overhead * step + context.saved_seconds


def _gradient_regions(graph: Graph) -> List[Region]:
    return [region for region in graph.regions if region.forward >= 0]


def _recompute(graph: Graph, context: PassContext, seconds: float) -> Graph:
    """All regions at the lowest exchange rate for which `seconds` of a step are enough; who comes first gets the rest."""
    if not context.recompute:
        return graph
    fitting = [rung for rung in _rungs(graph, context) if rung.seconds <= seconds]
    return _recompute_within(graph, context, fitting[-1].limits, seconds - fitting[-1].seconds)


def _recompute_within(graph: Graph,
                      context: PassContext,
                      limits: _Limits,
                      spare: float = 0.0) -> Graph:
    for region, limit in limits:
        gradient = graph.regions[region]
        _drop_shape_readers(graph, gradient)
        problem = _problem(graph, gradient, context)
        rebuilt = _choose(problem, limit + spare)
        spent = _seconds(problem, rebuilt)
        context.spent_seconds += spent
        spare = max(0.0, limit + spare - spent)
        if rebuilt:
            _Rebuilder(graph, problem, rebuilt).run()
    return graph


@dataclass(frozen=True)
class _Rung:
    """What stays for the gradients, in bytes, if they may take so long."""

    kept: int
    limits: _Limits

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.limits)


def _rungs(graph: Graph, context: PassContext) -> List[_Rung]:
    """All regions at one exchange rate, which falls, from that at which nothing is rebuilt."""
    graph = graph.copy()
    problems = []
    for gradient in _gradient_regions(graph):
        _drop_shape_readers(graph, gradient)
        problems.append(_problem(graph, gradient, context))
    found = [_rung((problem, frozenset()) for problem in problems)]
    for rate in reversed(_RATES):
        rung = _rung((problem, _cut(problem, rate)) for problem in problems)
        if rung != found[-1]:
            found.append(rung)
    return found


def _rung(choices: Iterable[Tuple[_Problem, FrozenSet[int]]]) -> _Rung:
    chosen = list(choices)
    return _Rung(
        sum(_kept_bytes(problem, rebuilt) for problem, rebuilt in chosen),
        tuple((problem.gradient.id, _seconds(problem, rebuilt)) for problem, rebuilt in chosen))


def _between(last: _Rung, rung: _Rung, least: int) -> Iterator[_Rung]:
    """No rate gives the sets between those of two neighbouring rates; a limit of the time does. They differ by `least`
    bytes."""
    parts = min(_MOST_BETWEEN, (last.kept - rung.kept) // max(1, least))
    for part in range(1, parts):
        share = part / parts
        yield _Rung(
            int(last.kept + share * (rung.kept - last.kept)),
            tuple((region, before + share * (after - before))
                  for (region, before), (_, after) in zip(last.limits, rung.limits)))


def _spread(rungs: Sequence[_Rung], least: float) -> List[_Rung]:
    """The last, and those before it that each keep `least` bytes less than the one before."""
    found: List[_Rung] = []
    for rung in rungs:
        if rung is rungs[-1] or not found or found[-1].kept - rung.kept >= least:
            found.append(rung)
    return found


def _drop_shape_readers(graph: Graph, gradient: Region) -> None:
    """An operand of which only the shape is read becomes another operand of the same shape.

    The runtime keeps all that a gradient block names, even for its shape alone.
    """
    for op in list(graph.walk(gradient.id)):
        operands = list(op.operands)
        for position in op.facts.shape_only:
            value = operands[position]
            if value < 0 or graph.values[value].region != gradient.forward:
                continue
            twin = _same_shape(graph, op, value)
            if twin is not None:
                operands[position] = twin
        if tuple(operands) != op.operands:
            graph.ops[op.id] = replace(op, operands=tuple(operands))


def _same_shape(graph: Graph, op: Op, value: int) -> Optional[int]:
    wanted = graph.values[value]
    for other in op.data_reads():
        has = graph.values[other]
        if wanted.shape is not None and (has.shape, has.dtype, has.lod_level,
                                         has.kind) == (wanted.shape, wanted.dtype, wanted.lod_level,
                                                       wanted.kind):
            return other
    return None


def _problem(graph: Graph, gradient: Region, context: PassContext) -> _Problem:
    forward = graph.regions[gradient.forward]
    copies = {inner for _, inner in forward.arguments}
    pinned = {v for op in graph.walk(gradient.id) if op.regions for v in op.operands}
    needed = {
        v for op in graph.walk(gradient.id) for v in op.reads()
        if v >= 0 and graph.values[v].region == forward.id and v not in copies
    }
    free = copies | (pinned & needed)
    trips = forward.trips.evaluate(context.dims)
    problem = _Problem(forward, gradient, needed - free, {}, free)
    problem.producer = {**_clonable(graph, forward, gradient), **_reloads(graph, gradient)}
    for value in graph.values:
        if value.region == forward.id and value.size is not None:
            problem.size[value.id] = value.size.evaluate(context.dims) * trips
    for op in problem.producer.values():
        problem.seconds[op.id] = _clone_seconds(graph, op, context) * trips
    if context.recompute == 'cheap':
        problem.producer = {v: op for v, op in problem.producer.items() if not is_heavy(op)}
    return problem


def _clone_seconds(graph: Graph, op: Op, context: PassContext) -> float:
    if op.facts.replay is not None:
        return replay_seconds(graph, op, context.cost, context.dims)
    return context.cost.seconds(graph, op, context.dims)


def _operands(op: Op) -> Tuple[int, ...]:
    """What a clone of `op` reads, or what makes its result again."""
    return op.reads() if op.facts.replay is None else replayed(op, op.facts.replay)[0]


def _results(op: Op) -> Tuple[int, ...]:
    return op.writes() if op.facts.replay is None else (replayed(op, op.facts.replay)[1],)


def _reloads(graph: Graph, gradient: Region) -> Dict[int, Op]:
    """Ops, not yet in the graph, that read values of the trip from arrays that have them too."""
    return {
        value:
            Op(-2 - value,
               'read_from_array',
               gradient.id,
               operands=(reload.array, reload.index),
               results=(value,),
               origin=None,
               backward=True)
        for value, reload in reloads(graph, gradient).items()
        if graph.values[value].size is not None
    }


def _clonable(graph: Graph, forward: Region, gradient: Region) -> Dict[int, Op]:
    """Ops whose clone in the gradient gives the same bytes and has no other effect, by result."""
    writes: Dict[int, int] = {}
    for op in graph.walk(forward.id):
        for value in op.writes():
            writes[value] = writes.get(value, 0) + 1
    positions = Positions(graph)
    stepwise = _Stepwise(graph, gradient, positions)
    found: Dict[int, Op] = {}
    written_before: Set[int] = set()
    for op in graph.region_ops(forward.id):
        if (_may_be_cloned(graph, op, forward, writes) and all(
                _may_be_read(graph, v, forward, writes, written_before, positions) or
                stepwise.may_read(op, v) for v in _operands(op))):
            found.update((v, op) for v in _results(op) if stepwise.comes_in_time(op, v))
        written_before.update(op.writes())
        written_before.update(v for inner in graph.inside(op) for v in inner.writes())
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


def _may_be_cloned(graph: Graph, op: Op, forward: Region, writes: Dict[int, int]) -> bool:
    if op.regions or op.origin is None or (op.facts.ordered and op.facts.replay is None):
        return False
    if op.facts.replay is not None and not can_be_replayed(graph, op):
        return False
    for value in op.writes():
        facts = graph.values[value]
        if facts.region != forward.id or facts.kind is not ValueKind.DENSE or writes[value] > 1:
            return False
        if facts.size is None or facts.storage != value or value in op.reads():
            return False
    return True


def _may_be_read(graph: Graph, value: int, forward: Region, writes: Dict[int, int],
                 written_before: Set[int], positions: Positions) -> bool:
    facts = graph.values[value]
    if facts.region == forward.id:
        return (facts.kind is ValueKind.DENSE and writes.get(value, 0) <= 1 and
                facts.size is not None)
    return _gradient_sees(graph, value, forward, written_before, positions)


def _gradient_sees(graph: Graph, value: int, forward: Region, written_before: Set[int],
                   positions: Positions) -> bool:
    """Whether the gradient finds, for a value from outside, what this op of the forward region read.

    Either the trip's scope has a copy, made before the first write, or nobody changes the value.
    """
    if any(outer == value for outer, _ in forward.arguments):
        return value not in written_before
    return is_stable(graph, positions, value, forward)


def _choose(problem: _Problem, seconds: float) -> FrozenSet[int]:
    """Values to rebuild, at the lowest exchange rate whose extra time fits into `seconds`.

    A higher rate never rebuilds more, so the lowest is found by bisection. No rate gives the sets between those of two
    neighbouring rates: so starting from what takes too long, values are put back until the time fits.
    """
    best: FrozenSet[int] = frozenset()
    low, high = 0, len(_RATES)
    while low < high:
        middle = (low + high) // 2
        rebuilt = _cut(problem, _RATES[middle])
        if _seconds(problem, rebuilt) <= seconds:
            best, high = rebuilt, middle
        else:
            low = middle + 1
    if high == 0:
        return best
    between = (_put_back(problem, seconds, rate) for rate in {_RATES[0], _RATES[high - 1]})
    return min((best, *between), key=lambda rebuilt: _kept_bytes(problem, rebuilt))


def _put_back(problem: _Problem, seconds: float, rate: float) -> FrozenSet[int]:
    """What is rebuilt at `rate`, which takes too long, with a few values kept after all: greedily the one after which the
    time fits and least is kept, or else the one that takes most time off for its bytes."""
    kept: FrozenSet[int] = frozenset()
    rebuilt = _cut(problem, rate)
    for _ in range(_MOST_PUT_BACK):
        options = [(_cut(problem, rate, kept | {value}), value)
                   for value in sorted(rebuilt)[:_MOST_CANDIDATES]]
        if not options:
            break
        fitting = [option for option in options if _seconds(problem, option[0]) <= seconds]
        rank = _kept_bytes if fitting else _seconds
        rebuilt, value = min(fitting or options, key=lambda option: rank(problem, option[0]))
        if fitting:
            return rebuilt
        kept |= {value}
    return frozenset()


def _seconds(problem: _Problem, rebuilt: FrozenSet[int]) -> float:
    return sum(problem.seconds[op] for op in _ops_of(problem, rebuilt))


def _kept_bytes(problem: _Problem, rebuilt: FrozenSet[int]) -> int:
    """Bytes of what stays for the gradient: what it needs and what the rebuilt values are made of."""
    made_of = {v for value in rebuilt for v in _operands(problem.producer[value])}
    kept = (problem.needed | made_of) - rebuilt
    return sum(problem.size.get(v, 0) for v in kept - problem.free)


def _cut(problem: _Problem, rate: float, kept: FrozenSet[int] = frozenset()) -> FrozenSet[int]:
    """Values to rebuild when a second costs `rate` bytes. A value's node is split: the arc inside is keeping it, the arc
    from the source is rebuilding it, the arcs from its op's operands say that these must be had too. `kept` values are
    not rebuilt at any price."""
    network = _Network()
    pending, seen = sorted(problem.needed), set(problem.needed)
    for value in pending:
        network.arc((value, 'had'), _SINK)
    while pending:
        value = pending.pop()
        op = None if value in kept else problem.producer.get(value)
        network.arc((value, 'made'), (value, 'had'), problem.size.get(value, 0) + 1)
        if op is None:  # keeping it is the only way: any cost above that of keeping it says so
            network.arc(_SOURCE, (value, 'made'), problem.size.get(value, 0) + 2)
            continue
        network.arc(_SOURCE, (op.id, 'op'), int(problem.seconds[op.id] * rate) + 1)
        network.arc((op.id, 'op'), (value, 'made'))
        for operand in _operands(op) if op.facts.replay is not None else op.data_reads():
            if operand in problem.free or operand not in problem.size:
                continue
            network.arc((operand, 'had'), (op.id, 'op'))
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return frozenset(value for value, what in network.sink_side() if what == 'made')


class _Network:
    """Arcs between named nodes; the last capacity counts where one is added again."""

    def __init__(self) -> None:
        self._arcs: Dict[Tuple[_Node, _Node], Optional[int]] = {}

    def arc(self, tail: _Node, head: _Node, capacity: Optional[int] = None) -> None:
        """Without a capacity it is infinite."""
        self._arcs[tail, head] = capacity

    def sink_side(self) -> List[_Node]:
        """Nodes on the sink's side of a minimum cut: of several, the one nearest to the sink, which rebuilds least."""
        nodes = list(dict.fromkeys([_SOURCE, _SINK, *(node for arc in self._arcs for node in arc)]))
        numbers = {node: number for number, node in enumerate(nodes)}
        infinite = 1 + sum(capacity or 0 for capacity in self._arcs.values())
        flow = SimpleMaxFlow()
        for (tail, head), capacity in self._arcs.items():
            flow.add_arc_with_capacity(numbers[tail], numbers[head],
                                       infinite if capacity is None else capacity)
        status = flow.solve(numbers[_SOURCE], numbers[_SINK])
        if status != SimpleMaxFlow.OPTIMAL:
            raise ArithmeticError(f'the minimum cut of a loop of {len(nodes)} nodes: {status}')
        return [nodes[number] for number in flow.get_sink_side_min_cut()]


def _ops_of(problem: _Problem, rebuilt: FrozenSet[int]) -> Set[int]:
    return {problem.producer[v].id for v in rebuilt}


class _Rebuilder:
    """Puts clones into the gradient region, each right before the first op that needs it."""

    def __init__(self, graph: Graph, problem: _Problem, rebuilt: FrozenSet[int]) -> None:
        self._graph = graph
        self._problem = problem
        self._rebuilt = rebuilt
        self._clone_of: Dict[int, int] = {}
        self._cloner = Cloner(graph, problem.gradient.id)
        self._copies = dict(problem.forward.arguments)

    def run(self) -> None:
        old_ops, new_ops = list(self._problem.gradient.ops), []
        # An array has the trip's element only before the gradient has counted back.
        for value in sorted(v for v in self._rebuilt if self._problem.producer[v].origin is None):
            new_ops.extend(self._build(value))
        for op_id in old_ops:
            op = self._graph.ops[op_id]
            readers = [op, *self._graph.inside(op)]
            wanted = dict.fromkeys(
                v for reader in readers for v in reader.reads() if v in self._rebuilt)
            for value in wanted:
                new_ops.extend(self._build(value))
            for reader in readers:
                self._redirect(reader)
            new_ops.append(op_id)
        self._problem.gradient.ops = new_ops

    def _build(self, value: int) -> Iterator[int]:
        """Ids of the new ops that make `value` available, operands first."""
        if value in self._clone_of:
            return
        op = self._problem.producer[value]
        for operand in _operands(op):
            if operand in self._rebuilt:
                yield from self._build(operand)
        for result in _results(op):
            self._clone_of[result] = self._cloner.value(result)
        if op.facts.replay is not None:
            operand, _ = _operands(op)
            yield from add_replay(self._graph, self._cloner, op, self._in_gradient(operand),
                                  self._clone_of[value])
            return
        yield self._cloner.op(op, [self._in_gradient(v) for v in op.operands],
                              [self._clone_of.get(v, -1) for v in op.results])

    def _in_gradient(self, value: int) -> int:
        if value < 0:
            return value
        if value in self._rebuilt:
            return self._clone_of[value]
        if self._graph.values[value].region == self._problem.forward.id:
            return value
        if value in self._copies:
            return self._copies[value]
        return seen_by_gradient(self._graph, value, self._problem.forward)

    def _redirect(self, op: Op) -> None:
        operands = tuple(self._clone_of[v] if v in self._rebuilt else v for v in op.operands)
        if operands != op.operands:
            self._graph.ops[op.id] = replace(op, operands=operands)
