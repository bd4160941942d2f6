"""Live bytes at each op, the peak, and what makes it up."""

from __future__ import annotations

import copy
from typing import (Any, Callable, Dict, FrozenSet, Hashable, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple, TypeVar)

from transpiler.analysis.allocations import Allocations
from transpiler.analysis.alternatives import Alternatives, Fullest, Place
from transpiler.analysis.cost import CostModel
from transpiler.analysis.lifetimes import Lifetime, Lifetimes
from transpiler.analysis.region_memory import RegionMemory, Resident
from transpiler.analysis.residents import residents
from transpiler.ir import RELEASE, Graph, Op, Region, RegionKind, Size
from transpiler.runtime import Runtime

_T = TypeVar('_T')


class _Late(NamedTuple):
    """How many ops late what dies in a region is freed, by region; what only `released` storages hold is in time.

    `asleep`: by position of the main region, for how many ops after it the collector may sleep on, with what loops and branches
    have left to it; empty where that is as long as for the region's own.
    """

    ops: Callable[[Region], int]
    released: FrozenSet[int] = frozenset()
    asleep: Sequence[int] = ()


class _Own(NamedTuple):
    """Bytes while each op of a region runs, and where regions inside begin."""

    bytes: List[int]
    entries: List[_Entry]


class Point(NamedTuple):
    op: int
    bytes: int


class _Changes:
    """Bytes that are added, or taken away, at each position of a region: `always`, and to alternatives, by position."""

    def __init__(self, positions: int) -> None:
        self.always = [0] * positions
        self.chosen: Dict[int, List[Tuple[Place, int]]] = {}

    def note(self, at: int, place: Optional[Place], amount: int) -> None:
        if at >= len(self.always):
            return
        if place is None:
            self.always[at] += amount
        else:
            self.chosen.setdefault(at, []).append((place, amount))


class _Entry(NamedTuple):
    """A region begins inside the op at this position of the one around it, and finds `base` bytes."""

    at: int
    region: Region
    base: int


class Timeline:
    """Bytes above resting that exist while each op runs, for one runtime and concrete dims.

    A loop is one pass over its body, at its fullest trip: what earlier trips left for the gradient is
    counted `trips - 1` times below it. Of what is never there together, the results and scopes of branches that exclude
    each other, the largest is counted. What kernels allocate for themselves is not in it.

    Args:
        graph: the program.
        runtime: its rules.
        dims: concrete value of every symbolic dim that the graph's sizes use.
    """

    def __init__(self, graph: Graph, runtime: Runtime, dims: Mapping[str, int]) -> None:
        self.lifetimes = Lifetimes(graph, runtime)
        # A runtime that retains has, of each branch, what was left when it was last taken.
        alternatives = Alternatives(graph, self.lifetimes.positions) if runtime.collects else None
        self._order: Sequence[int] = tuple(op.id for op in graph.walk())  # of `points`
        # Of the main region, where nothing runs inside its ops, and nothing excludes anything.
        self._allocations = None if len(graph.regions) > 1 or alternatives else Allocations(
            self.lifetimes.by_region[0].values(), len(self._order),
            [graph.ops[op].kind == RELEASE for op in self._order], self.lifetimes.release_position)
        self._measure(RegionMemory(graph, self.lifetimes, alternatives, dict(dims)))

    def _measure(self, memory: RegionMemory) -> None:
        self._memory = memory
        self._once: Dict[Hashable, Any] = {}
        self._bases: Dict[int, int] = {}  # bytes that a region finds
        self._peaks: Dict[int, int] = {}  # and the most there is while it runs
        self.live = self._live_bytes()
        most = max(self.live, default=0)
        self.peak = Point(self._order[self.live.index(most)], most) if self.live else Point(-1, 0)

    def _live_bytes(self, late: Optional[_Late] = None) -> List[int]:
        """Bytes while each op runs, in the order of `points`."""
        if late:  # whoever has it for as long as it lasts frees it, too
            late = late._replace(released=late.released | self.lifetimes.lasting)
        if self._allocations is None:
            found: List[int] = []
            self._run(self.graph.regions[0], 0, found, late)
            return found
        lag, released = (late.ops(self.graph.regions[0]), late.released) if late else (0,
                                                                                       frozenset())
        live = self._allocations.live(self.evaluate, lag, released)
        if late is None:
            self._bases[0], self._peaks[0] = 0, max(live, default=0)
        return live

    @property
    def order(self) -> Sequence[int]:
        """The ops of `points`."""
        return self._order

    @property
    def points(self) -> List[Point]:
        """Each op with the bytes that exist while it runs, in program order."""
        return self.once('points', lambda: self._points(self.live))

    def _points(self, live: Sequence[int]) -> List[Point]:
        return list(map(Point, self._order, live))

    def at(self, dims: Mapping[str, int]) -> Timeline:
        """The same for other values of the symbolic dims."""
        if dims == self.dims:
            return self
        other = copy.copy(self)
        other._measure(self._memory.at(dict(dims)))
        return other

    def once(self, what: Hashable, work_out: Callable[[], _T]) -> _T:
        """What `work_out` makes of this timeline and its graph: worked out when `what` is first asked for."""
        if what not in self._once:
            self._once[what] = work_out()
        return self._once[what]

    def once_for_all_sizes(self, what: Hashable, work_out: Callable[[], _T]) -> _T:
        """The same for what does not depend on the dims: `at` others, too, it is worked out once."""
        return self._memory.once_for_all_sizes(what, work_out)

    @property
    def graph(self) -> Graph:
        """The graph that it is of."""
        return self._memory.graph

    @property
    def dims(self) -> Mapping[str, int]:
        """The concrete dims that it is for."""
        return self._memory.dims

    @property
    def peak_bytes(self) -> int:
        return self.peak.bytes

    @property
    def lagging_peak_bytes(self) -> int:
        """The most bytes of `lagging`."""
        return self.once('lagging peak', lambda: max(self.lagging(), default=0))

    def lagging(self) -> List[int]:
        """The bytes of `points`, if each storage is freed late.

        Paddle's collector frees in a thread of its own: the next ops may allocate before that. A storage whose next
        tenant moves in at once is not freed in between, and RELEASE ops free by themselves: both are safe from it.
        """
        return self._live_bytes(_Late(self.ops_late))

    def uncollected(self, released: FrozenSet[int], lags: bool) -> List[int]:
        """The bytes of `points`, if of the main block nothing is freed in a run but by RELEASE ops, and what only `released` storages
        hold. In loops and branches it is freed in time, or late as in `lagging` if that `lags`; what they leave to the
        collector is there until that has come for sure.

        The collector's thread sleeps: where a step takes no longer than that, it does not come in time for any of it.
        """
        if not lags or self._allocations is not None:  # nothing is left to a collector inside
            return self._live_bytes(_Late(_never_in_main, released))
        return self._live_bytes(_Late(self._never_in_main_and_late, released, self._asleep))

    def ops_late(self, region: Region) -> int:
        """How many ops of `region` the collector may be behind. In a loop or branch the ops are short, and follow each other
        faster than its thread wakes up."""
        if region.frees_at_once:
            return 0
        delays = self.lifetimes.runtime.delays
        return delays.inner_ops if region.parent >= 0 else delays.ops

    @property
    def left_inside(self) -> int:
        """Bytes that loops and branches of a run may leave to a late collector, and that are there when the next one begins."""
        if self._allocations is not None:
            return 0
        main, left = self.graph.regions[0], Fullest()
        late = _Late(self._never_in_main_and_late, asleep=self._asleep)
        for at, place, amount in self._left_to_collector(main, late):
            if at + self._asleep[at] >= len(main.ops):
                left.add(place, amount)
        return left.total

    @property
    def _asleep(self) -> List[int]:
        """By position of the main region: how many of the ops after it may begin before the collector has woken up; from the
        next run on, if more than there are."""
        delays = self.lifetimes.runtime.delays
        return self.once(
            'asleep', lambda: [
                max(ops, delays.ops)
                for ops in CostModel().ops_within(self.graph, 0, self.dims, delays.seconds)
            ])

    def _never_in_main_and_late(self, region: Region) -> int:
        return self.ops_late(region) if region.parent >= 0 else len(region.ops)

    def peak_size(self) -> Size:
        """The sum at the peak as a polynomial. Which op is the peak depends on the dims."""
        return Size.total(r.size * r.count for r in self.residents(self.peak.op))

    def residents(self, op: int) -> List[Resident]:
        """All that exists while `op` runs, largest first."""
        found = residents(self._memory, op) if op >= 0 else []
        return sorted(found, key=lambda r: -self.evaluate(r.size) * self.evaluate(r.count))

    def kept_per_trip(self, region: int) -> Size:
        """Bytes that one trip of `region` leaves behind for the gradient, the scopes that inner loops leave in it included."""
        return self._memory.kept_per_trip(region)

    def evaluate(self, size: Size) -> int:
        """Bytes, or a count, for the concrete dims of this timeline."""
        return self._memory.evaluate(size)

    def while_handing_out(self, op: Op) -> int:
        """Bytes that exist while `op` hands out what its regions made, besides what lives where it stands. Arrays grow as
        scopes go, and the scopes inside a branch's go first: what is never there together is not counted, so it may be less
        than nothing."""
        inside = [self.graph.regions[r] for r in op.regions]
        if not any(r.kind.is_gradient for r in inside):
            return 0
        adding = [r for r in inside if self._memory.grows(r)]
        never_whole = sum(
            self._memory.missing_bytes(r, self._memory.missing_in_sums(r)) for r in adding)
        branch = self._memory.gradient_branch(op)
        gone = self._memory.kept_inside(self.graph.regions[branch.forward]) if branch else 0
        return self._memory.total(self._memory.handed_out(op)) - never_whole - gone

    def _while_running(self, op: Op, live: Fullest, late: Optional[_Late] = None) -> int:
        """Bytes that exist while `op` runs regions where `live` bytes live. A gradient whose branch was not taken hands out zeros,
        which were not made before."""
        popping = self._memory.popping(op) if late is None else []
        if popping:
            return max(
                live.given(self._memory.place(each)) -
                sum(self.evaluate(size)
                    for _, size in self._memory.popped(each).values())
                for each in popping)
        branch = self._memory.gradient_branch(op)
        if branch is None:
            return live.total + self.while_handing_out(op)
        return max(live.total, live.given(self._memory.place(branch)) + self.while_handing_out(op))

    def around_a_trip(self, region: Region) -> int:
        """Bytes that exist around the fullest trip of `region`, besides what lives where its op stands: what earlier trips
        have left, without what is not there yet, or any more."""
        left = self._earlier_trips(region) * self._memory.kept_bytes(
            region) if region.keeps_scopes else 0
        arriving = sum(self.evaluate(each.size) for each in self._memory.arrivals(region).values())
        return left - self._memory.missing_bytes(region, self._memory.missing(region)) - arriving

    def trips_late(self, region: Region) -> int:
        """How many trips of `region` before the one that runs the collector may be behind."""
        return min(self._earlier_trips(region), self.lifetimes.runtime.delays.trips)

    def _earlier_trips(self, region: Region) -> int:
        return max(0, self.evaluate(region.trips) - 1)

    def _run(self, region: Region, base: int, found: List[int], late: Optional[_Late]) -> None:
        """Adds to `found` the bytes at each op of `region`, and of those inside it behind its op, above `base` bytes."""
        first, own = len(found), self._own(region, base, late)
        done = 0
        for at, inner, inner_base in own.entries:
            found += own.bytes[done:at + 1]
            done = at + 1
            self._run(inner, inner_base, found, late)
        found += own.bytes[done:]
        if late is None:
            self._bases[region.id] = base
            self._peaks[region.id] = max(found[first:], default=base)

    def _own(self, region: Region, base: int, late: Optional[_Late]) -> _Own:
        """Of the ops of `region` themselves, above `base` bytes."""
        before, after = self._events(region, late)
        own = _Own([], [])
        inner = self._memory.running_regions(region)
        if not before.chosen and not after.chosen:
            live = base
            for more, less in zip(before.always, after.always):
                live += more
                own.bytes.append(live)
                live += less
            for at, op in inner:
                self._enter(at, op, Fullest(own.bytes[at]), late, own)
            return own
        entering, level = dict(inner), Fullest(base)
        for at, (more, less) in enumerate(zip(before.always, after.always)):
            level.total += more
            for place, amount in before.chosen.get(at, ()):
                level.add(place, amount)
            own.bytes.append(level.total)
            if at in entering:
                self._enter(at, entering[at], level, late, own)
            level.total += less
            for place, amount in after.chosen.get(at, ()):
                level.add(place, amount)
        return own

    def _enter(self, at: int, op: Op, live: Fullest, late: Optional[_Late], own: _Own) -> None:
        """Notes what there is while `op`, at that position, runs regions where `live` bytes live, and what those find."""
        own.bytes[at] = self._while_running(op, live, late)
        for inner in map(self.graph.regions.__getitem__, op.regions):
            found = live.given(self._memory.place(inner)) + self.around_a_trip(inner)
            if late and late.ops(inner):
                found += self.trips_late(inner) * self._memory.collected_in(inner)
            own.entries.append(_Entry(at, inner, found))

    def counts_as_cells(self, region: int) -> bool:
        """Whether what a region needs is that of its cells and ops: no branch there excludes another, and it makes nothing for
        the region around it that is there only from some op of it on."""
        return not self._memory.alternatives and not self._memory.arrivals(
            self.graph.regions[region])

    def rise_within(self,
                    region: int,
                    ops: Sequence[int],
                    rises: Optional[Mapping[int, int]] = None) -> int:
        """The most that is added while `region` runs, if its ops stood in the order of `ops`: what runs inside them, and around
        it, stays as it is. `rises` is the same of the regions inside, where it is not what it was."""
        rises = rises or {}
        regions = list(self.graph.regions)
        regions[region] = regions[region].with_ops(ops)
        graph = Graph(self.graph.values, self.graph.ops, regions)
        other = copy.copy(self)
        other.lifetimes = self.lifetimes.reordered(graph, region)
        other._memory = self._memory.reordered(graph, other.lifetimes, region)
        other._once = {}
        own = other._own(regions[region], 0, late=None)
        inner = (each.base + rises.get(each.region.id, self.rise_of(each.region.id))
                 for each in own.entries)
        return max([*own.bytes, *inner], default=0)

    def rise_of(self, region: int) -> int:
        """The most that is added while `region` runs, as it is."""
        return self._peaks[region] - self._bases[region]

    def peak_within(self, region: int, ops: Sequence[int]) -> int:
        """The most that exists while `region` runs in that order."""
        return self._bases[region] + self.rise_within(region, ops)

    def _events(self, region: Region, late: Optional[_Late]) -> Tuple[_Changes, _Changes]:
        """What changes before and after each op of `region`; storages end as late as `late` says."""
        lag, released = (late.ops(region), late.released) if late else (0, frozenset())
        before, after = _Changes(len(region.ops)), _Changes(len(region.ops) + lag)
        evaluate, begins, ends = self._memory.evaluate, before.always, after.always
        for lifetime, place in self._memory.placed(region):
            size, until = evaluate(lifetime.size), lifetime.last
            if lag and self.graph.ops[region.ops[until]].kind != RELEASE:
                until += lag
                if released.issuperset(lifetime.storages):
                    until = min(until, self._release_position(region, lifetime))
            if place is None:  # as of most
                begins[lifetime.first] += size
                ends[until] -= size
            else:
                before.note(lifetime.first, place, size)
                after.note(until, place, -size)
        for at, place, amount in self._left_to_collector(region, late) if late else ():
            asleep = late.asleep[at] if late.asleep and not region.id else self.ops_late(region)
            after.note(at, place, amount)
            after.note(at + asleep, place, -amount)
        for arrival in self._memory.arrivals(region).values():
            before.note(arrival.at, None, evaluate(arrival.size))
            if arrival.handed:
                place, size = self._memory.place_of(region,
                                                    arrival.handed), self.evaluate(arrival.size)
                before.note(arrival.at, place, -size)
                after.note(arrival.at, place, size)
        for at, size in self._memory.popped(region).values() if late is None else ():
            after.note(at, None, -self.evaluate(size))
        for place, copied in self._memory.copied(region):
            size, end = self.evaluate(copied.size), len(region.ops) - 1
            before.note(end, place, size)
            after.note(end, place, -size)
        for left in self._memory.scopes_left_in(region):
            amount, place = self.evaluate(left.size), self._memory.place_left(region, left)
            (before if left.start < 0 else after).note(max(0, left.start), place, amount)
            after.note(left.until, place, -amount)
        return before, after

    def _release_position(self, region: Region, lifetime: Lifetime) -> int:
        return lifetime.last if region.id else self.lifetimes.release_position(lifetime)

    def _left_to_collector(self, region: Region,
                           late: _Late) -> Iterator[Tuple[int, Optional[Place], int]]:
        """Bytes that branches in `region` may leave to a late collector when they are through, with where they stand; loops too
        where it may sleep on for many ops."""
        for at, op in self._memory.running_regions(region):
            for inner in map(self.graph.regions.__getitem__, op.regions):
                is_branch = inner.kind in (RegionKind.BRANCH, RegionKind.BRANCH_GRADIENT)
                asleep = bool(late.asleep)
                if late.ops(inner) and (is_branch or (asleep and not region.id)):
                    trips = 1 if is_branch else 1 + self.trips_late(inner)
                    yield (at, self._memory.place(inner),
                           trips * self._memory.collected_in(inner, asleep))


def _never_in_main(region: Region) -> int:
    return 0 if region.parent >= 0 else len(region.ops)


def once_for(graph: Graph, timeline: Timeline, what: str, work_out: Callable[[], _T]) -> _T:
    """What `work_out` makes of `graph`, at any size, if that is the graph that `timeline` is of, which changes no more."""
    return timeline.once_for_all_sizes(what, work_out) if graph is timeline.graph else work_out()
