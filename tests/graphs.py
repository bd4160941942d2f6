"""Graphs that no Paddle made, and what they mean, spelled out path by path.

`traces` runs a graph in every way that its loops and branches allow, each loop for at most two trips.
Two trips are enough: a path without repetition passes each back edge once. Nothing here is shared with
`transpiler.analysis` or `transpiler.verify`, which the tests compare with it.
"""
from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import product
from typing import Dict, FrozenSet, Iterable, Iterator, List, Sequence, Set, Tuple

from transpiler.backends.operators import by_name
from transpiler.ir import Graph, Op, Region, RegionKind, Size, ValueKind

LOOPS = (RegionKind.LOOP, RegionKind.LOOP_GRADIENT)
MOST_TRIPS = 2
# Of generated values: two sizes known, and two that are open, of which none is always the larger one of a known one.
_ROWS = (1024, 1024, 1024, 2048, Size.dim('N'), Size.dim('N') * 2)

# ---------------------------------------------------------------------------------------------------
# Building


class Draft:
    """A graph while it is written. Values are named; an op's operands and results are given by name."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.graph.new_region(RegionKind.BLOCK)
        self._ids: Dict[Tuple[int, str], int] = {}

    def value(self, name: str, rows: object = 1024, region: int = 0, **facts: object) -> int:
        """A float32 vector of `rows`, a number or a Size."""
        shape = (Size.of(rows),)
        made = self.graph.new_value(name,
                                    region,
                                    dtype='FP32',
                                    shape=shape,
                                    size=Size.product(shape) * 4,
                                    **facts)
        self._ids[region, name] = made.id
        return made.id

    def values(self, names: str, rows: object = 1024, region: int = 0, **facts: object) -> None:
        for name in names.split():
            self.value(name, rows, region, **facts)

    def id(self, name: str, region: int = 0) -> int:
        """The value of that name in `region` or, if it has none, in the nearest region around it."""
        while (region, name) not in self._ids:
            if region < 0:
                raise KeyError(f'no value is called {name!r}')
            facts = self.graph.regions[region]
            region = facts.forward if facts.forward >= 0 and (facts.forward, name) in self._ids \
                else facts.parent
        return self._ids[region, name]

    def op(self,
           kind: str,
           reads: str = '',
           writes: str = '',
           region: int = 0,
           **facts: object) -> Op:
        return self.graph.new_op(kind,
                                 region,
                                 operands=tuple(self.id(n, region) for n in reads.split()),
                                 results=tuple(self.id(n, region) for n in writes.split()),
                                 facts=replace(by_name(kind), **facts))

    def region(self, op: Op, kind: RegionKind, **facts: object) -> int:
        """A region that `op` runs."""
        made = self.graph.new_region(kind, op=op.id, parent=op.region, **facts)
        op.regions += (made.id,)
        return made.id


def trained_loop(body_values: str) -> Tuple[Draft, int]:
    """A loop over the fed `x` that carries `h`, and its body, which has these values and no op yet; `g` is there for the
    gradient."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('h g')
    draft.op('fill', '', 'h')
    body = draft.region(draft.op('while', 'x h', 'h'), RegionKind.LOOP, keeps_scopes=True)
    draft.values(body_values, region=body)
    return draft, body


@dataclass
class _Generator:
    """Random graphs: chains of small ops that rewrite names, work in place, loop, branch and go back."""

    dice: random.Random
    draft: Draft
    count: int = 0

    def run(self) -> Graph:
        self.draft.value('x', fed=True)
        self.draft.value('w', persistable=True, parameter=True)
        self._ops(0, ['x', 'w'], depth=0)
        last = self.draft.graph.values[self.dice.choice(self._written_in_main())]
        last.fetched = last.copied_out = True
        return self.draft.graph

    def _written_in_main(self) -> List[int]:
        written = [v for op in self.draft.graph.region_ops(0) for v in op.writes()]
        own = [v for v in written if self.draft.graph.values[v].region == 0]
        return own or [0]

    def _ops(self, region: int, visible: List[str], depth: int) -> List[str]:
        own: List[str] = []
        for _ in range(self.dice.randint(2, 5 - depth)):
            roll = self.dice.random()
            if roll < 0.25 and depth < 2 and len(self.draft.graph.regions) < 4:
                self._nested(region, visible + own, own, depth)
            else:
                self._plain(region, visible + own, own)
        return own

    def _plain(self, region: int, readable: List[str], own: List[str]) -> None:
        reads = [self.dice.choice(readable) for _ in range(self.dice.randint(1, 2))]
        again = [
            n for n in own if self.draft.graph.values[self.draft.id(n, region)].region == region
        ]
        writes = [
            self.dice.choice(again) if again and self.dice.random() < 0.2 else self._new(region)
        ]
        if self.dice.random() < 0.2:
            writes.append(self._new(region))
        if self.dice.random() < 0.1:  # a loop-carried value, or a branch's result
            writes[0] = self.dice.choice(readable)
            if writes[0] in ('x', 'w'):
                writes[0] = self._new(region)
        shape_only = frozenset({1}) if len(reads) > 1 and self.dice.random() < 0.3 else frozenset()
        in_place = ((0, 0),) if self.dice.random() < 0.6 else ()
        if in_place and len(reads) > 1 and self.dice.random() < 0.4:
            in_place += (self.dice.choice(((1, 0), (1, 1)) if len(writes) > 1 else ((1, 0),)),)
        self.draft.op('op',
                      ' '.join(reads),
                      ' '.join(dict.fromkeys(writes)),
                      region,
                      shape_only=shape_only,
                      in_place=in_place,
                      same_name=self.dice.random() < 0.8,
                      random=self.dice.random() < 0.1)
        own.extend(n for n in writes if n not in own and n not in readable)

    def _new(self, region: int, rows: object = None) -> str:
        self.count += 1
        name = f'v{self.count}'
        self.draft.value(name, rows or self.dice.choice(_ROWS), region)
        return name

    def _nested(self, region: int, readable: List[str], own: List[str], depth: int) -> None:
        kind = self.dice.choice((RegionKind.LOOP, RegionKind.BRANCH))
        op = self.draft.op('nested', '', '', region)
        inner = self.draft.region(op, kind)
        facts = self.draft.graph.regions[inner]
        if kind is RegionKind.LOOP:
            facts.trips = Size.dim(f'T{inner}')
            facts.keeps_scopes = self.dice.random() < 0.6
        given = self._arguments(inner, readable) if self.dice.random() < 0.4 else []
        local = given + self._ops(inner, readable + given, depth + 1)
        if self.dice.random() < 0.4:
            self._results(inner, local, own)
        _declare_what_is_named(self.draft.graph, op)
        self._plain(region, readable + own, own)
        if facts.keeps_scopes and local:
            self._gradient(region, inner, readable, local)

    def _arguments(self, inner: int, readable: List[str]) -> List[str]:
        """Names of values of the region that it gets from outside at each entry."""
        outer = self.dice.choice(readable)
        like = self.draft.graph.values[self.draft.id(outer, inner)]
        name = self._new(inner, like.shape[0])
        facts = self.draft.graph.regions[inner]
        facts.arguments += ((like.id, self.draft.id(name, inner)),)
        return [name]

    def _results(self, inner: int, local: List[str], own: List[str]) -> None:
        """A value of the region that it hands out at each exit, to a new one of the region around it."""
        facts = self.draft.graph.regions[inner]
        name = self.dice.choice(local)
        made = self.draft.graph.values[self.draft.id(name, inner)]
        if made.region == inner:
            own.append(self._new(facts.parent, made.shape[0]))
            facts.results += ((made.id, self.draft.id(own[-1], facts.parent)),)

    def _gradient(self, region: int, forward: int, readable: List[str], local: List[str]) -> None:
        op = self.draft.op('gradient', '', '', region)
        inner = self.draft.region(op,
                                  RegionKind.LOOP_GRADIENT,
                                  forward=forward,
                                  trips=self.draft.graph.regions[forward].trips)
        own: List[str] = []
        for _ in range(self.dice.randint(1, 3)):
            self._plain(inner, readable + local + own, own)
        _declare_what_is_named(self.draft.graph, op)


def _declare_what_is_named(graph: Graph, op: Op) -> None:
    """The op names what its region takes from outside, as a while op's X and Out do."""
    inside = {r for r in op.regions
             } | {r.id for r in graph.regions if r.op >= 0 and _within(graph, r, op)}
    outside = lambda v: graph.values[v].region not in inside and not _forward_of(graph, op, v)
    named = list(graph.inside(op))
    given = [outer for r in op.regions for outer, _ in graph.regions[r].arguments]
    made = [outer for r in op.regions for _, outer in graph.regions[r].results]
    op.operands = tuple(dict.fromkeys(given + [v for o in named for v in o.reads() if outside(v)]))
    op.results = tuple(dict.fromkeys(made + [v for o in named for v in o.writes() if outside(v)]))


def _within(graph: Graph, region: Region, op: Op) -> bool:
    while region.op >= 0:
        if region.op == op.id:
            return True
        region = graph.regions[graph.ops[region.op].region]
    return False


def _forward_of(graph: Graph, op: Op, value: int) -> bool:
    return any(graph.regions[r].forward == graph.values[value].region for r in op.regions)


def generated(seed: int) -> Graph:
    """A random graph: at most three nested regions, so that all its paths can be listed. Of ops with two results, some can make them
    one by one."""
    graph = _Generator(random.Random(seed), Draft()).run()
    for op in list(graph.walk()):
        if op.id % 2 and len(set(op.operands)) == len(op.results) == 2 and not (op.regions or
                                                                                op.facts.random):
            separate = ((0, frozenset({0})), (1, frozenset({1})))
            graph.ops[op.id] = replace(op, facts=replace(op.facts, separate=separate))
    return graph


def dims_of(graph: Graph, trips: int) -> Dict[str, int]:
    """Of loops `trips`, of rows so many that either of the known sizes may be the larger one."""
    sizes = [r.trips for r in graph.regions] + [v.size for v in graph.values if v.size is not None]
    rows = {'N': 512 * (trips - 1)}
    return {name: rows.get(name, trips) for size in sizes for name in size.dims}


# ---------------------------------------------------------------------------------------------------
# Meaning


@dataclass(frozen=True)
class Event:
    """An op runs: it reads the data of values, then writes values; a write that may not happen kills nothing."""

    op: int
    reads: FrozenSet[int] = frozenset()
    writes: FrozenSet[int] = frozenset()
    may_write: FrozenSet[int] = frozenset()


Trace = Tuple[Event, ...]


def traces(graph: Graph) -> List[Trace]:
    """Every run of the program, loops for 0, 1 or 2 trips, branches taken or not."""
    kept = frozenset(v.id for v in graph.values if v.region == 0 and (v.fetched or v.persistable))
    return [trace + (Event(-1, reads=kept),) for trace in _region_traces(graph, 0)]


def entry_of(region: int) -> int:
    """What stands for the op in the event that begins a trip of `region`, or a branch."""
    return -2 - region


def _region_traces(graph: Graph, region: int) -> List[Trace]:
    facts = graph.regions[region]
    runs: List[Trace] = [(Event(entry_of(region)),)]
    if facts.arguments:
        runs = [
            runs[0] + (Event(-1, frozenset(o for o, _ in facts.arguments),
                             frozenset(i for _, i in facts.arguments)),)
        ]
    for op in graph.region_ops(region):
        runs = [run + more for run in runs for more in _op_traces(graph, op)]
    if facts.results:
        end = Event(-1, frozenset(i for i, _ in facts.results), frozenset(),
                    frozenset(o for _, o in facts.results))
        runs = [run + (end,) for run in runs]
    return runs


def _op_traces(graph: Graph, op: Op) -> List[Trace]:
    if not op.regions:
        return [(Event(op.id, frozenset(_data_reads(op)),
                       frozenset(v for v in op.results if v >= 0)),)]
    start = Event(op.id, frozenset(v for v in op.operands if v >= 0))
    end = Event(-1, may_write=frozenset(v for v in op.results if v >= 0))
    inner: List[List[Trace]] = []
    for region in op.regions:
        once = _region_traces(graph, region)
        most = MOST_TRIPS if graph.regions[region].kind in LOOPS else 1
        inner.append(
            [sum(trips, ()) for count in range(most + 1) for trips in product(once, repeat=count)])
    return [(start,) + sum(each, ()) + (end,) for each in product(*inner)]


def _data_reads(op: Op) -> Iterator[int]:
    for position, value in enumerate(op.operands):
        if value >= 0 and position not in op.facts.shape_only:
            yield value


def live_after(trace: Trace) -> List[FrozenSet[int]]:
    """For each event, the values of which somebody reads later what they hold now."""
    live: FrozenSet[int] = frozenset()
    found = []
    for event in reversed(trace):
        found.append(live)
        live = (live - event.writes) | event.reads
    return found[::-1]


def interfering(graph: Graph, runs: Iterable[Trace]) -> Set[FrozenSet[int]]:
    """Pairs of values that can't be in one memory: one is written while the other is read or is needed later."""
    pairs: Set[FrozenSet[int]] = set()
    for trace in runs:
        for event, live in zip(trace, live_after(trace)):
            for new in event.writes | event.may_write:
                clobbered = (live | event.writes | _read_beside(graph, event, new)) - {new}
                pairs.update(frozenset((new, old)) for old in clobbered)
    return pairs


def _read_beside(graph: Graph, event: Event, new: int) -> FrozenSet[int]:
    """What the op reads while it writes `new`, but for an operand that it may overwrite by it."""
    if event.op < 0:
        return frozenset()
    op = graph.ops[event.op]
    may_give = {
        op.operands[i] for i, j in op.facts.in_place if op.results[j] == new and
        op.operands.count(op.operands[i]) == 1 and op.results.count(new) == 1
    }
    return event.reads - may_give


def eligible(graph: Graph, value: int) -> bool:
    """Whether a plan may touch the value at all."""
    v = graph.values[value]
    return (v.kind is ValueKind.DENSE and v.size is not None and
            not (v.persistable or v.fed or v.fetched))


def same_region_pairs(graph: Graph) -> Iterator[Tuple[int, int]]:
    ids: Sequence[int] = [v.id for v in graph.values if eligible(graph, v.id)]
    for i, a in enumerate(ids):
        for b in ids[i + 1:]:
            if graph.values[a].region == graph.values[b].region:
                yield a, b
