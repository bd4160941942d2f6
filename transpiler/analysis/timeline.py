"""Live bytes at each op, the peak, and what makes it up."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import (Any, Callable, Dict, FrozenSet, Hashable, Iterable, Iterator, List, Mapping,
                    NamedTuple, Optional, Sequence, Set, Tuple, TypeVar, Union)

from transpiler.analysis.allocations import Allocations
from transpiler.analysis.alternatives import Alternatives, Fullest, Place, fullest
from transpiler.analysis.cost import CostModel
from transpiler.analysis.lifetimes import Lifetime, Lifetimes
from transpiler.ir import MOVE, ONE, RELEASE, Graph, Op, Region, RegionKind, Size, ValueKind
from transpiler.runtime import Runtime

_T = TypeVar('_T')


@dataclass(frozen=True)
class Resident:
    """Memory that exists at one op: a storage, its bytes, and how many of it there are (trips)."""

    storage: int
    size: Size
    count: Size


# Storages that are not there, and how many scopes of a loop's trips are gone.
_Missing = Tuple[FrozenSet[int], int]


class _Late(NamedTuple):
    """How many ops late what dies in a region is freed, by region; what only `released` storages hold is in time.

    `asleep`: by position of the main region, for how many ops after it the collector may sleep on, with what loops and branches
    have left to it; empty where that is as long as for the region's own.
    """

    ops: Callable[[Region], int]
    released: FrozenSet[int] = frozenset()
    asleep: Sequence[int] = ()


class _Left(NamedTuple):
    """Scopes of a loop or branch that the op that runs it leaves behind: positions from which on and until when. -1: by the run
    before."""

    start: int
    region: Region
    until: int
    size: Size


class _Own(NamedTuple):
    """Bytes while each op of a region runs, and where regions inside begin."""

    bytes: List[int]
    entries: List[_Entry]


class _Arrival(NamedTuple):
    """A storage that a branch makes for the region around it, at this position of its own; `handed` is what of its own gives it the
    buffer, if that does."""

    at: int
    size: Size
    handed: Optional[Lifetime] = None


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

    def apply(self, at: int, live: Fullest) -> None:
        live.total += self.always[at]
        for place, amount in self.chosen.get(at, ()):
            live.add(place, amount)


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
        self._graph = graph
        self.lifetimes = Lifetimes(graph, runtime)
        # A runtime that retains has, of each branch, what was left when it was last taken.
        self._alternatives = Alternatives(graph,
                                          self.lifetimes.positions) if runtime.collects else None
        self._gradient_op = {r.forward: r.op for r in graph.regions if r.forward >= 0}
        self._arriving: Dict[int, Dict[int, _Arrival]] = {}  # by region
        self._at_any_size: Dict[Hashable, Any] = {}
        self._order: Sequence[int] = tuple(_nested(graph, 0))  # of `points`
        # Of the main region, where nothing runs inside its ops, and nothing excludes anything.
        self._allocations = None if len(graph.regions) > 1 or self._alternatives else Allocations(
            self.lifetimes.by_region[0].values(), len(self._order),
            [graph.ops[op].kind == RELEASE for op in self._order])
        self._measure(dims)

    def _measure(self, dims: Mapping[str, int]) -> None:
        self._dims = dict(dims)
        # By region. Which branch is the fullest depends on the dims.
        self._kept_sizes: Dict[int, Size] = {}
        self._left: Dict[int, List[_Left]] = {}
        self._kept: Dict[int, int] = {}
        self._collected: Dict[int, int] = {}
        self._evaluated: Dict[Size, int] = {}
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
            self._run(self._graph.regions[0], 0, found, late)
            return found
        lag, released = (late.ops(self._graph.regions[0]), late.released) if late else (0,
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
        if dims == self._dims:
            return self
        other = copy.copy(self)
        other._measure(dims)
        return other

    def once(self, what: Hashable, work_out: Callable[[], _T]) -> _T:
        """What `work_out` makes of this timeline and its graph: worked out when `what` is first asked for."""
        if what not in self._once:
            self._once[what] = work_out()
        return self._once[what]

    def once_for_all_sizes(self, what: Hashable, work_out: Callable[[], _T]) -> _T:
        """The same for what does not depend on the dims: `at` others, too, it is worked out once."""
        if what not in self._at_any_size:
            self._at_any_size[what] = work_out()
        return self._at_any_size[what]

    @property
    def graph(self) -> Graph:
        """The graph that it is of."""
        return self._graph

    @property
    def dims(self) -> Mapping[str, int]:
        """The concrete dims that it is for."""
        return self._dims

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
        main, left = self._graph.regions[0], Fullest()
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
                for ops in CostModel().ops_within(self._graph, 0, self._dims, delays.seconds)
            ])

    def _never_in_main_and_late(self, region: Region) -> int:
        return self.ops_late(region) if region.parent >= 0 else len(region.ops)

    def peak_size(self) -> Size:
        """The sum at the peak as a polynomial. Which op is the peak depends on the dims."""
        return Size.total(r.size * r.count for r in self.residents(self.peak.op))

    def residents(self, op: int) -> List[Resident]:
        """All that exists while `op` runs, largest first."""
        found = self._residents(op) if op >= 0 else []
        return sorted(found, key=lambda r: -self.evaluate(r.size) * self.evaluate(r.count))

    def kept_per_trip(self, region: int) -> Size:
        """Bytes that one trip of `region` leaves behind for the gradient, the scopes that inner loops leave in it included."""
        if region not in self._kept_sizes:
            self._kept_sizes[region] = Size.total(each.size for each in self._fullest_kept(region))
        return self._kept_sizes[region]

    def evaluate(self, size: Size) -> int:
        """Bytes, or a count, for the concrete dims of this timeline."""
        found = self._evaluated.get(size)
        if found is None:
            found = self._evaluated[size] = size.evaluate(self._dims)
        return found

    def while_handing_out(self, op: Op) -> int:
        """Bytes that exist while `op` hands out what its regions made, besides what lives where it stands. Arrays grow as
        scopes go, and the scopes inside a branch's go first: what is never there together is not counted, so it may be less
        than nothing."""
        adding = [r for r in map(self._graph.regions.__getitem__, op.regions) if self._grows(r)]
        never_whole = sum(self._missing_bytes(r, self._missing_in_sums(r)) for r in adding)
        branch = self._gradient_branch(op)
        gone = self._kept_inside(self._graph.regions[branch.forward]) if branch else 0
        return self._total(self._handed_out(op)) - never_whole - gone

    def _gradient_branch(self, op: Op) -> Optional[Region]:
        """The region of `op` if that is the gradient of a branch, taken or not."""
        regions = [self._graph.regions[r] for r in op.regions]
        is_one = len(regions) == 1 and regions[0].kind is RegionKind.BRANCH_GRADIENT
        return regions[0] if is_one and self._alternatives is not None else None

    def _popping(self, op: Op) -> List[Region]:
        """The regions of `op`, if one is the gradient of a branch that is through with what that has kept when it ends."""
        regions = [self._graph.regions[r] for r in op.regions]
        return regions if self._alternatives and any(r.pops for r in regions) else []

    def _popped(self, region: Region) -> Dict[int, Tuple[int, Size]]:
        """By storage that the forward part of `region` has kept: the position here of its last reader, who ends it, and its size."""
        return self.once_for_all_sizes(
            ('popped', region.id), lambda: dict(self._find_popped(region)) if region.pops else {})

    def _copied(self, region: Region) -> Iterator[Tuple[Optional[Place], Lifetime]]:
        """What `region` has made and keeps, if it is there twice while its last op runs."""
        copies = region.copies_kept and not self.lifetimes.runtime.by_data
        return self._kept_storages(region) if copies else iter(())

    def _find_popped(self, region: Region) -> Iterator[Tuple[int, Tuple[int, Size]]]:
        forward = self._graph.regions[region.forward]
        last: Dict[int, int] = {}
        for op, value in self.lifetimes.touches(forward.id):
            storage, (at, _) = self._graph.values[value].storage, self.lifetimes.seen_from(
                op, region.id)
            last[storage] = max(at, last.get(storage, -1))
        for place, kept in self._kept_storages(forward):
            at = max(last.get(storage, -1) for storage in kept.storages)
            if place is None and at >= 0:
                yield kept.storages[0], (at, kept.size)

    def _while_running(self, op: Op, live: Fullest, late: Optional[_Late] = None) -> int:
        """Bytes that exist while `op` runs regions where `live` bytes live. A gradient whose branch was not taken hands out zeros,
        which were not made before."""
        popping = self._popping(op) if late is None else []
        if popping:
            return max(
                live.given(self._place(each)) -
                sum(self.evaluate(size)
                    for _, size in self._popped(each).values())
                for each in popping)
        branch = self._gradient_branch(op)
        if branch is None:
            return live.total + self.while_handing_out(op)
        return max(live.total, live.given(self._place(branch)) + self.while_handing_out(op))

    def around_a_trip(self, region: Region) -> int:
        """Bytes that exist around the fullest trip of `region`, besides what lives where its op stands: what earlier trips
        have left, without what is not there yet, or any more."""
        left = self._earlier_trips(region) * self._kept_bytes(region) if region.keeps_scopes else 0
        arriving = sum(self.evaluate(each.size) for each in self._arrivals(region).values())
        return left - self._missing_bytes(region, self._missing(region)) - arriving

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
        inner = self._running_regions(region)
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
        for at in range(len(region.ops)):
            before.apply(at, level)
            own.bytes.append(level.total)
            if at in entering:
                self._enter(at, entering[at], level, late, own)
            after.apply(at, level)
        return own

    def _enter(self, at: int, op: Op, live: Fullest, late: Optional[_Late], own: _Own) -> None:
        """Notes what there is while `op`, at that position, runs regions where `live` bytes live, and what those find."""
        own.bytes[at] = self._while_running(op, live, late)
        for inner in map(self._graph.regions.__getitem__, op.regions):
            found = live.given(self._place(inner)) + self.around_a_trip(inner)
            if late and late.ops(inner):
                found += self.trips_late(inner) * self._collected_in(inner)
            own.entries.append(_Entry(at, inner, found))

    def counts_as_cells(self, region: int) -> bool:
        """Whether what a region needs is that of its cells and ops: no branch there excludes another, and it makes nothing for
        the region around it that is there only from some op of it on."""
        return not self._alternatives and not self._arrivals(self._graph.regions[region])

    def rise_within(self,
                    region: int,
                    ops: Sequence[int],
                    rises: Optional[Mapping[int, int]] = None) -> int:
        """The most that is added while `region` runs, if its ops stood in the order of `ops`: what runs inside them, and around
        it, stays as it is. `rises` is the same of the regions inside, where it is not what it was."""
        regions = list(self._graph.regions)
        regions[region] = replace(regions[region], ops=list(ops))
        other = copy.copy(self)
        other._graph = Graph(self._graph.values, self._graph.ops, regions)
        other.lifetimes = self.lifetimes.reordered(other._graph, region)
        other._left = {}
        other._arriving = {}
        other._at_any_size = {}
        other._once = {}
        inner = {r: peak - self._bases[r] for r, peak in self._peaks.items()}
        inner.update(rises or {})
        own = other._own(regions[region], 0, late=None)
        return max([*own.bytes, *(e.base + inner[e.region.id] for e in own.entries)], default=0)

    def peak_within(self, region: int, ops: Sequence[int]) -> int:
        """The most that exists while `region` runs in that order."""
        return self._bases[region] + self.rise_within(region, ops)

    def _handed_out(self, op: Op) -> Iterator[Resident]:
        """Gradients that regions hand out: the runtime copies a branch's when it is through, or adds a trip's to the sum of
        all, and then lets go of them. A buffer that the region has moved out itself is there once."""
        for region in map(self._graph.regions.__getitem__, op.regions):
            if region.kind.is_gradient:
                moved = self._moved_out_of(region)
                made = self.lifetimes.by_region[region.id]
                inner = (self._graph.values[v].storage for v, _ in region.results if v not in moved)
                for storage in dict.fromkeys(inner):
                    if storage in made:
                        yield Resident(storage, made[storage].size, ONE)

    def _moved_out_of(self, region: Region) -> FrozenSet[int]:
        """Values of `region` whose buffers its ops hand to the variables outside that get what they hold."""
        pairs = set(region.results)
        return self.once_for_all_sizes(
            ('moved', region.id), lambda: frozenset(a for op in self._graph.region_ops(region.id)
                                                    if op.kind == MOVE
                                                    for a, b in zip(op.operands, op.results)
                                                    if (a, b) in pairs))

    def _sums(self, gradient: Region) -> Dict[int, Lifetime]:
        """Where the gradients of all trips are added up: made at the end of the first trip."""
        around = self.lifetimes.by_region[self._graph.ops[gradient.op].region]
        at = self.lifetimes.position[gradient.op]
        outer = (self._graph.values[v].storage for _, v in gradient.results)
        return {s: around[s] for s in outer if s in around and around[s].first == at}

    def _waits_for_sums(self, region: Region) -> bool:
        """Whether the trips of a loop and its gradient run in one region, which then has what the loop left."""
        if region.kind is not RegionKind.LOOP_GRADIENT or region.forward < 0:
            return False
        loop = self._graph.regions[region.forward]
        return (loop.keeps_scopes and
                self._graph.ops[loop.op].region == self._graph.ops[region.op].region)

    def _missing_bytes(self, region: Region, missing: _Missing) -> int:
        absent, gone = missing
        sums = self._sums(region) if absent else {}
        scopes = gone * self._kept_bytes(self._graph.regions[region.forward]) if gone else 0
        return scopes + sum(self.evaluate(sums[storage].size) for storage in absent)

    def _missing(self, region: Region) -> _Missing:
        """What is not there in the fullest trip of `region`: storages, and how many scopes of the loop's trips.

        The first trip of a gradient has no sums yet, the later ones find the scope of a trip less. A branch's gradient
        hands out what it has made when it is through.
        """
        if region.kind is RegionKind.BRANCH_GRADIENT:
            return frozenset(self._sums(region)), 0
        if not self._waits_for_sums(region):
            return frozenset(), 0
        trips = [(self._growing(region), 1), (frozenset(self._sums(region)), 0)]
        if self._growing(region):
            trips.append(self._last_trip(region))
        return min(trips, key=lambda trip: self._missing_bytes(region, trip))

    def _missing_in_sums(self, region: Region) -> _Missing:
        """The same, while what a trip hands out is added up: its own scope is there still."""
        trips = (self._growing(region), 0), self._last_trip(region)
        return min(trips, key=lambda trip: self._missing_bytes(region, trip))

    def _last_trip(self, region: Region) -> _Missing:
        return frozenset(), self.evaluate(region.trips) - 1

    def _growing(self, region: Region) -> FrozenSet[int]:
        """Arrays that get elements from each trip: full when the scopes of all trips but the last are gone."""
        return frozenset(
            s for s in self._sums(region) if self._graph.values[s].kind is ValueKind.ARRAY)

    def _grows(self, region: Region) -> bool:
        return self._waits_for_sums(region) and bool(self._growing(region))

    def _total(self, residents: Iterable[Resident]) -> int:
        return sum(self.evaluate(r.size) * self.evaluate(r.count) for r in residents)

    def _events(self, region: Region, late: Optional[_Late]) -> Tuple[_Changes, _Changes]:
        """What changes before and after each op of `region`; storages end as late as `late` says."""
        lag, released = (late.ops(region), late.released) if late else (0, frozenset())
        before, after = _Changes(len(region.ops)), _Changes(len(region.ops) + lag)
        for lifetime, place in self._placed(region):
            size, until = self.evaluate(lifetime.size), lifetime.last
            if lag and not (self._graph.ops[region.ops[until]].kind == RELEASE or
                            released.issuperset(lifetime.storages)):
                until += lag
            if place is None:  # as of most
                before.always[lifetime.first] += size
                after.always[until] -= size
            else:
                before.note(lifetime.first, place, size)
                after.note(until, place, -size)
        for at, place, amount in self._left_to_collector(region, late) if late else ():
            asleep = late.asleep[at] if late.asleep and not region.id else self.ops_late(region)
            after.note(at, place, amount)
            after.note(at + asleep, place, -amount)
        for arrival in self._arrivals(region).values():
            before.note(arrival.at, None, self.evaluate(arrival.size))
            if arrival.handed:
                place, size = self._place_of(region, arrival.handed), self.evaluate(arrival.size)
                before.note(arrival.at, place, -size)
                after.note(arrival.at, place, size)
        for at, size in self._popped(region).values() if late is None else ():
            after.note(at, None, -self.evaluate(size))
        for place, copied in self._copied(region):
            size, end = self.evaluate(copied.size), len(region.ops) - 1
            before.note(end, place, size)
            after.note(end, place, -size)
        for left in self._scopes_left_in(region):
            amount, place = self.evaluate(left.size), self._place_left(region, left)
            (before if left.start < 0 else after).note(max(0, left.start), place, amount)
            after.note(left.until, place, -amount)
        return before, after

    def _running_regions(self, region: Region) -> List[Tuple[int, Op]]:
        """The ops of `region` that run regions, each with its position."""
        return self.once_for_all_sizes(
            ('running', region.id),
            lambda: [(at, op)
                     for at, op in enumerate(self._graph.region_ops(region.id))
                     if op.regions])

    def _placed(self, region: Region) -> List[Tuple[Lifetime, Optional[Place]]]:
        """The lifetimes of `region`, each with its place."""
        return self.once_for_all_sizes(
            ('placed', region.id),
            lambda: [(lifetime, self._place_of(region, lifetime))
                     for lifetime in self.lifetimes.by_region[region.id].values()])

    def _left_to_collector(self, region: Region,
                           late: _Late) -> Iterator[Tuple[int, Optional[Place], int]]:
        """Bytes that branches in `region` may leave to a late collector when they are through, with where they stand; loops too
        where it may sleep on for many ops."""
        for at, op in self._running_regions(region):
            for inner in map(self._graph.regions.__getitem__, op.regions):
                is_branch = inner.kind in (RegionKind.BRANCH, RegionKind.BRANCH_GRADIENT)
                if late.ops(inner) and (is_branch or (late.asleep and not region.id)):
                    trips = 1 if is_branch else 1 + self.trips_late(inner)
                    yield at, self._place(inner), trips * self._collected_in(inner)

    def _arrivals(self, region: Region) -> Dict[int, _Arrival]:
        """By storage: what the op that runs `region`, a branch, makes, and is there only when an op inside has made it."""
        hands_on = region.kind is RegionKind.BRANCH_GRADIENT and not region.results
        if self._alternatives is None or not (hands_on or region.kind is RegionKind.BRANCH):
            return {}
        if region.id not in self._arriving:
            self._arriving[region.id] = dict(self._find_arrivals(region))
        return self._arriving[region.id]

    def _find_arrivals(self, region: Region) -> Iterator[Tuple[int, _Arrival]]:
        around, op = self._graph.regions[region.parent], self.lifetimes.position[region.op]
        outer = self._arrivals(around)
        for storage, ops in self._touching.get(region.id, {}).items():
            at = min(self.lifetimes.position[each] for each in ops)
            lifetime = self.lifetimes.by_region[around.id].get(storage)
            if self._graph.values[storage].fed:  # it is there, whoever is the first to touch it
                continue
            if lifetime is not None and lifetime.first == op and lifetime.storages == (storage,):
                size = lifetime.size
            elif storage in outer and outer[storage].at == op:
                size = outer[storage].size
            else:
                continue
            yield storage, _Arrival(at, size, self._handed_over(region, at, storage, size))

    def _handed_over(self, region: Region, at: int, storage: int, size: Size) -> Optional[Lifetime]:
        """What of `region` ends at this position of it, where an op gives its buffer to `storage` of a region around."""
        op, values = self._graph.ops[region.ops[at]], self._graph.values
        given = {values[op.results[j]].storage: op.operands[i] for i, j in op.facts.in_place}
        source = values[given[storage]].storage if given.get(storage, -1) >= 0 else -1
        own = self.lifetimes.by_region[region.id].values() if source >= 0 else ()
        return next((
            each for each in own
            if source in each.storages and each.last == at and each.size == size and not each.kept),
                    None)

    @cached_property
    def _touching(self) -> Dict[int, Dict[int, Set[int]]]:
        """By region, and by storage of a region around it: its ops that touch that, or have in them what does."""
        found: Dict[int, Dict[int, Set[int]]] = {}
        for home in self._graph.regions:
            for op, value in self.lifetimes.touches(home.id):
                storage, inside, at = self._graph.values[value].storage, op.region, op.id
                while inside not in (home.id, -1):
                    found.setdefault(inside, {}).setdefault(storage, set()).add(at)
                    inside, at = self._graph.regions[inside].parent, self._graph.regions[inside].op
        return found

    def _place(self, region: Region) -> Optional[Place]:
        return self._alternatives.of_scopes(region) if self._alternatives else None

    def _place_of(self, region: Region, lifetime: Lifetime) -> Optional[Place]:
        """The place of what is gone before its branch is next left out."""
        if self._alternatives is None:
            return None
        place = self._alternatives.of_storages(lifetime.storages)
        gone = not lifetime.kept and lifetime.last < len(region.ops) - 1
        return place if place is None or gone or self._begins_anew(region) else None

    def _place_left(self, region: Region, left: _Left) -> Optional[Place]:
        place = self._place(left.region)
        gone = left.until < len(region.ops)
        return place if place is None or gone or self._begins_anew(region) else None

    def _begins_anew(self, region: Region) -> bool:
        """Whether nothing is left in the scope of `region` when a trip begins: it is a new one, or a gradient has used up
        what was in it."""
        while region.keeps_scopes:
            if region.kind is RegionKind.LOOP or region.id in self._gradient_op:
                return True
            region = self._graph.regions[region.parent]
        return False

    def _collected_in(self, region: Region) -> int:
        """Bytes of a trip of `region`, of the regions in it too, that nobody but the runtime's collector frees."""
        if region.id not in self._collected:
            self._collected[region.id] = self._find_collected(region)
        return self._collected[region.id]

    def _find_collected(self, region: Region) -> int:
        handed_out = {self._graph.values[v].storage for v, _ in region.results}
        own = 0 if region.frees_at_once else sum(
            self.evaluate(lifetime.size)
            for lifetime in self.lifetimes.by_region[region.id].values()
            if not lifetime.kept and handed_out.isdisjoint(lifetime.storages) and
            self._graph.ops[region.ops[lifetime.last]].kind != RELEASE)
        inside = Fullest()
        for _, op in self._running_regions(region):
            for inner in map(self._graph.regions.__getitem__, op.regions):
                inside.add(self._place(inner), self._collected_in(inner))
        return own + inside.total

    def _kept_bytes(self, region: Region) -> int:
        if region.id not in self._kept:
            self._kept[region.id] = self.evaluate(self.kept_per_trip(region.id))
        return self._kept[region.id]

    def _scopes_left_in(self, region: Region) -> List[_Left]:
        """What ops of `region` leave behind."""
        found = self._left.get(region.id)
        if found is None:
            found = self._left[region.id] = list(self._find_scopes_left(region))
        return found

    def _find_scopes_left(self, region: Region) -> Iterator[_Left]:
        for at, op in self._running_regions(region):
            for inner in map(self._graph.regions.__getitem__, op.regions):
                if inner.keeps_scopes:
                    gradient = self._gradient_op.get(inner.id, -1)
                    here = gradient >= 0 and self._graph.ops[gradient].region == region.id
                    until = self.lifetimes.position[gradient] if here else len(region.ops)
                    size = inner.trips * self.kept_per_trip(inner.id)
                    yield _Left(at, inner, until, size)
                    if at and until == len(region.ops) and self._finds_scopes(inner):
                        yield _Left(-1, inner, at - 1, size)

    def _finds_scopes(self, inner: Region) -> bool:
        """Whether the op of `inner`, in the main region, finds the scopes that it left in the run before: a loop whose gradient is not
        there takes them away itself, when it next begins. No collector does."""
        begins_empty = self.lifetimes.runtime.begins_empty
        return inner.parent == 0 and inner.kind is RegionKind.LOOP and not begins_empty

    def _scopes_left_for_good(self, region: int) -> Iterator[_Left]:
        """Those that nobody in the region takes away."""
        facts = self._graph.regions[region]
        return (l for l in self._scopes_left_in(facts) if l.until >= len(facts.ops))

    def _fullest_kept(self, region: int) -> List[Union[Lifetime, _Left]]:
        """What the fullest trip of `region` leaves behind."""
        facts = self._graph.regions[region]
        scopes = (
            (self._place_left(facts, left), left) for left in self._scopes_left_for_good(region))
        found: List[Tuple[Optional[Place], Union[Lifetime, _Left]]]
        found = [*self._kept_storages(facts), *scopes]
        return fullest(found, lambda each: self.evaluate(each.size))

    def _own_kept(self, region: Region) -> List[Lifetime]:
        """What the fullest trip of `region` leaves behind, but for the scopes inside it."""
        return fullest(self._kept_storages(region), lambda each: self.evaluate(each.size))

    def _kept_storages(self, region: Region) -> Iterator[Tuple[Optional[Place], Lifetime]]:
        return ((place, lifetime) for lifetime, place in self._placed(region) if lifetime.kept)

    def _kept_inside(self, region: Region) -> int:
        """Bytes that are gone from what `region` has left when its gradient is through: the runtime drops the scopes inside
        before it looks for gradients to hand out."""
        own = sum(self.evaluate(each.size) for each in self._own_kept(region))
        return self._kept_bytes(region) - own

    def _kept_residents(self, region: Region) -> Iterator[Resident]:
        """What a trip of `region` leaves behind, the scopes that inner loops leave in it included."""
        pending = [(region, ONE)]
        while pending:
            around, count = pending.pop()
            for each in self._fullest_kept(around.id):
                if isinstance(each, Lifetime):
                    yield Resident(each.storages[0], each.size, count)
                else:
                    pending.append((each.region, count * each.region.trips))

    def _residents(self, op: int) -> Sequence[Resident]:
        popping = self._popping(self._graph.ops[op])
        if popping:
            return max((list(self._residents_around(op, each)) for each in popping),
                       key=self._total)
        branch = self._gradient_branch(self._graph.ops[op])
        if branch is None:
            return [*self._handed_out(self._graph.ops[op]), *self._residents_around(op)]
        taken = [*self._handed_out(self._graph.ops[op]), *self._residents_around(op, branch)]
        return max(list(self._residents_around(op)), taken, key=self._total)

    def _residents_around(self, op: int, through: Optional[Region] = None) -> Iterator[Resident]:
        """What exists while `op` runs, or while it hands out what the gradient `through` has made."""
        inside: Optional[Region] = None  # the region that was looked at before, run by `op`
        inner_at = -1  # and where in it
        coming: Set[int] = set()  # what branches have yet to make
        while op >= 0:
            region = self._graph.regions[self._graph.ops[op].region]
            at = self.lifetimes.position[op]
            absent, gone = self._missing_while(op, inside)
            if inside is not None:
                coming |= {s for s, a in self._arrivals(inside).items() if a.at > inner_at}
            gradient = inside or through
            chosen = self._place(gradient) if gradient else None
            pops = gradient if gradient and gradient.pops else None
            for each in fullest(self._there(region, at), lambda e: self.evaluate(e.size), chosen):
                if isinstance(each, _Left) and pops and each.region.id == pops.forward:
                    yield from self._not_popped(each, pops, inner_at if inside else len(pops.ops))
                elif isinstance(each, _Left) and through and each.region.id == through.forward:
                    yield from (
                        Resident(e.storages[0], e.size, ONE) for e in self._own_kept(each.region))
                elif isinstance(each, _Left):
                    yield from self._trips_left(each.region, gone.get(each.region.id, 0))
                elif each.storages[0] not in absent and each.storages[0] not in coming:
                    yield Resident(each.storages[0], each.size, ONE)
            if region.keeps_scopes and region.kind is RegionKind.LOOP:
                yield from self._left_by_earlier_trips(region)
            inside, inner_at, op = region, at, region.op

    def _not_popped(self, left: _Left, gradient: Region, at: int) -> Iterator[Resident]:
        """What is still there of `left` while the op at position `at` of its gradient runs."""
        popped = self._popped(gradient)
        for each in self._trips_left(left.region, 0):
            if each.storage not in popped or popped[each.storage][0] >= at:
                yield each

    def _there(self, region: Region,
               at: int) -> Iterator[Tuple[Optional[Place], Union[Lifetime, _Left]]]:
        """What may exist in `region` while the op at position `at` runs."""
        handed = [id(a.handed) for a in self._arrivals(region).values() if a.at == at]
        for lifetime, place in self._placed(region):
            if lifetime.first <= at <= lifetime.last and id(lifetime) not in handed:
                yield place, lifetime
        if at == len(region.ops) - 1:
            yield from self._copied(region)
        for left in self._scopes_left_in(region):
            if left.start < at <= left.until:
                yield self._place_left(region, left), left

    def _missing_while(self, op: int,
                       inside: Optional[Region]) -> Tuple[FrozenSet[int], Dict[int, int]]:
        """Storages that are not there, and scopes that are gone by loop, while `op` runs, or `inside`, a region of it."""
        regions = [self._graph.regions[r] for r in self._graph.ops[op].regions]
        found = [(r, self._missing_in_sums(r)) for r in regions if inside is None and self._grows(r)
                ]
        if inside is not None:
            found = [(inside, self._missing(inside))]
        absent = frozenset().union(*(missing[0] for _, missing in found))
        return absent, {region.forward: missing[1] for region, missing in found}

    def _trips_left(self, loop: Region, gone: int) -> Iterator[Resident]:
        """What the trips of `loop` left, but for `gone` of them."""
        if not gone:
            return _times(self._kept_residents(loop), loop.trips)
        if gone == self.evaluate(loop.trips) - 1:
            return self._kept_residents(loop)
        return self._left_by_earlier_trips(loop)

    def _left_by_earlier_trips(self, loop: Region) -> Iterator[Resident]:
        """What the trips before the last one left. Sizes have no negative terms: `trips - 1` is a dim."""
        earlier = self.evaluate(loop.trips) - 1
        if loop.trips.is_constant:
            return _times(self._kept_residents(loop), Size.of(earlier))
        name = f'({loop.trips!r}-1)'
        self._dims[name] = earlier
        return _times(self._kept_residents(loop), Size.dim(name))


def _nested(graph: Graph, region: int) -> Iterator[int]:
    """The ops of `region`, those that run in it behind the op that runs them."""
    for op in graph.region_ops(region):
        yield op.id
        for inner in op.regions:
            yield from _nested(graph, inner)


def _never_in_main(region: Region) -> int:
    return 0 if region.parent >= 0 else len(region.ops)


def _times(residents: Iterator[Resident], count: Size) -> Iterator[Resident]:
    return (Resident(r.storage, r.size, r.count * count) for r in residents)


def once_for(graph: Graph, timeline: Timeline, what: str, work_out: Callable[[], _T]) -> _T:
    """What `work_out` makes of `graph`, at any size, if that is the graph that `timeline` is of, which changes no more."""
    return timeline.once_for_all_sizes(what, work_out) if graph is timeline.graph else work_out()
