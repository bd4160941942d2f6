"""What an order is chosen for: the ops of one region, what they depend on, and the memory that they touch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar

import numpy as np

from transpiler.analysis.accesses import Accesses
from transpiler.analysis.dependences import dependences, successors
from transpiler.analysis.memory_profile import Pair
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, Op, RegionKind

T = TypeVar('T')
Order = List[int]  # indices of ops, each once, all dependences kept


@dataclass
class OrderProblem:
    """Ops by index, in the given order, and cells (storages that the region owns) by index. Sizes are bytes.

    A cell exists from the first op that touches it to the last. `from_start` cells exist before the first op,
    `to_end` cells after the last. `pairs[op]` are (operand cell, result cell) that share one allocation if the operand
    is not touched again and the result was not before: Paddle's executor does so in the main block.
    `transient[op]` is what nested regions need while it runs, `leaves[op]` what it leaves behind outside of all cells
    (scopes of loop trips), `collects[op]` how much of that ends with it.
    """

    before: List[List[int]]
    touches: List[Tuple[int, ...]]
    sizes: List[int]
    from_start: List[bool]
    to_end: List[bool]
    pairs: List[Tuple[Pair, ...]]
    transient: List[int]
    leaves: List[int]
    collects: List[int]
    after: List[List[int]] = field(init=False)
    users: List[List[int]] = field(init=False)  # by cell: the ops that touch it
    _known: Dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.after = successors(self.before)
        self.users = [[] for _ in self.sizes]
        for op, cells in enumerate(self.touches):
            for cell in cells:
                self.users[cell].append(op)

    def __len__(self) -> int:
        return len(self.before)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What several ask for: it is made for the first of them."""
        if name not in self._known:
            self._known[name] = make()
        return self._known[name]

    def arrays(self) -> Tuple[np.ndarray, ...]:
        """Sizes, from start, to end; and by op what it needs while it runs, and what it leaves behind."""
        left = np.array(self.leaves, float) - np.array(self.collects, float)
        return (np.array(self.sizes), np.array(self.from_start, bool), np.array(self.to_end, bool),
                np.array(self.transient, float), left)

    def renumbered(self, order: Sequence[int]) -> OrderProblem:
        """The same problem with `order` as the given one."""
        number = {op: at for at, op in enumerate(order)}
        return replace(self,
                       before=[sorted(number[p] for p in self.before[op]) for op in order],
                       **{
                           name: [getattr(self, name)[op] for op in order]
                           for name in ('touches', 'pairs', 'transient', 'leaves', 'collects')
                       })

    def mirrored(self) -> OrderProblem:
        """The problem with time reversed: what is good for its orders is good for theirs read backwards.

        Exact but for what shares an allocation: a pair is only kept as (result, operand).
        """
        return self.once('mirrored', self._mirrored)

    def _mirrored(self) -> OrderProblem:
        last = len(self) - 1
        turn = lambda rows: list(reversed(rows))
        return replace(self,
                       before=[sorted(last - op for op in ops) for ops in turn(self.after)],
                       touches=turn(self.touches),
                       from_start=self.to_end,
                       to_end=self.from_start,
                       pairs=turn([tuple((b, a) for a, b in pairs) for pairs in self.pairs]),
                       transient=turn(self.transient),
                       leaves=turn(self.collects),
                       collects=turn(self.leaves))

    def window(self, order: Sequence[int], start: int, stop: int) -> OrderProblem:
        """The ops `order[start:stop]` alone, between what comes before and after them."""
        inside = {op: i for i, op in enumerate(order[start:stop])}
        position = {op: at for at, op in enumerate(order)}
        cells = sorted({c for op in inside for c in self.touches[op]})
        number = {c: i for i, c in enumerate(cells)}
        at = {c: [position[op] for op in self.users[c]] for c in cells}
        chosen = list(inside)
        rows = {
            name: [getattr(self, name)[op] for op in chosen]
            for name in ('transient', 'leaves', 'collects')
        }
        return OrderProblem(
            before=[sorted(inside[p] for p in self.before[op] if p in inside) for op in chosen],
            touches=[tuple(number[c] for c in self.touches[op]) for op in chosen],
            sizes=[self.sizes[c] for c in cells],
            from_start=[self.from_start[c] or min(at[c]) < start for c in cells],
            to_end=[self.to_end[c] or max(at[c]) >= stop for c in cells],
            pairs=[tuple((number[a], number[b]) for a, b in self.pairs[op]) for op in chosen],
            **rows)


def region_problem(graph: Graph,
                   region: int,
                   timeline: Timeline,
                   inner_peaks: Dict[int, int],
                   accesses: Optional[Accesses] = None) -> OrderProblem:
    """The problem of ordering `region`.

    Args:
        graph: the program.
        region: the region whose ops may move.
        timeline: of `graph`, under the collecting runtime; sizes and scopes are taken from it.
        inner_peaks: peak of each nested region by itself, in bytes.
        accesses: of `graph`, if they are known.
    """
    before = dependences(graph, region, accesses).before
    return _Builder(graph, region, timeline).build(inner_peaks, before)


def given_order(graph: Graph, timeline: Timeline, inner_peaks: Dict[int, int]) -> OrderProblem:
    """As `region_problem` of the main region, for an order that stays as it is: nothing depends on anything in it."""
    before: List[List[int]] = [[] for _ in graph.regions[0].ops]
    return _Builder(graph, 0, timeline).build(inner_peaks, before)


class _Builder:

    def __init__(self, graph: Graph, region: int, timeline: Timeline) -> None:
        self._graph = graph
        self._region = graph.regions[region]
        self._timeline = timeline
        self._index = {op: i for i, op in enumerate(self._region.ops)}
        lifetimes = timeline.lifetimes.by_region[region]
        sizes = {s: l.size for l in lifetimes.values() for s in l.storages}
        self._cell = {s: i for i, s in enumerate(sizes)}
        self._sizes = list(sizes.values())
        self._from_start = [False] * len(sizes)
        self._to_end = [False] * len(sizes)

    def build(self, inner_peaks: Dict[int, int], before: List[List[int]]) -> OrderProblem:
        touches = self._touches()
        self._mark_ends()
        ops = [self._graph.ops[op] for op in self._region.ops]
        leaves, collects = self._scopes(ops)
        return OrderProblem(before=before,
                            touches=touches,
                            sizes=[self._timeline.evaluate(size) for size in self._sizes],
                            from_start=self._from_start,
                            to_end=self._to_end,
                            pairs=[tuple(self._pairs(op)) for op in ops],
                            transient=[self._transient(op, inner_peaks) for op in ops],
                            leaves=leaves,
                            collects=collects)

    def _touches(self) -> List[Tuple[int, ...]]:
        found: List[Dict[int, None]] = [{} for _ in self._region.ops]
        lifetimes, values = self._timeline.lifetimes, self._graph.values
        for op, value in lifetimes.touches(self._region.id):
            cell = self._cell.get(values[value].storage)
            if cell is None:
                continue
            at, kept = lifetimes.seen_from(op, self._region.id)
            if at > lifetimes.emptied_at(value):
                continue
            if kept:
                self._to_end[cell] = True
            if at >= 0 and not kept:
                found[at][cell] = None
        return [tuple(cells) for cells in found]

    def _mark_ends(self) -> None:
        values = self._graph.values if self._region.id == 0 else [
        ]  # nobody feeds or fetches inner ones
        for value in values:
            cell = self._cell.get(value.storage)
            if cell is not None and value.region == 0:
                self._from_start[cell] = self._from_start[cell] or value.fed
                self._to_end[cell] |= value.fed or value.fetched or value.lasting
        for inner, _ in self._region.results:
            self._mark(inner, from_start=False)
        if self._region.kind is RegionKind.LOOP:
            for _, inner in self._region.arguments:
                self._mark(inner, from_start=True)

    def _mark(self, value: int, from_start: bool) -> None:
        cell = self._cell.get(self._graph.values[value].storage)
        if cell is not None and self._graph.values[value].region == self._region.id:
            self._from_start[cell] = self._from_start[cell] or from_start
            self._to_end[cell] = True

    def _pairs(self, op: Op) -> Iterator[Pair]:
        for source, target in self._timeline.lifetimes.in_place.pairs(op):
            a, b = self._cell.get(source, -1), self._cell.get(target, -1)
            if a >= 0 and b >= 0 and not self._to_end[a]:
                yield a, b

    def _kept_bytes(self, region: int) -> int:
        return self._timeline.evaluate(self._timeline.kept_per_trip(region))

    def _transient(self, op: Op, inner_peaks: Dict[int, int]) -> int:
        if not op.regions:
            return 0
        regions = map(self._graph.regions.__getitem__, op.regions)
        trips = (self._timeline.around_a_trip(r) + inner_peaks[r.id] for r in regions)
        return max(self._timeline.while_handing_out(op), *trips)

    def _scopes(self, ops: List[Op]) -> Tuple[List[int], List[int]]:
        leaves, collects = [0] * len(ops), [0] * len(ops)
        gradient = {r.forward: r.op for r in self._graph.regions if r.forward >= 0}
        for i, op in enumerate(ops):
            for region in map(self._graph.regions.__getitem__, op.regions):
                if region.keeps_scopes:
                    amount = self._timeline.evaluate(region.trips) * self._kept_bytes(region.id)
                    leaves[i] += amount
                    until = self._index.get(gradient.get(region.id, -1))
                    if until is not None:
                        collects[until] += amount
        return leaves, collects
