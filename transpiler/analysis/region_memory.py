"""What the regions of a graph have, hand out and leave behind, for one runtime and concrete dims."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import (Any, Callable, Dict, FrozenSet, Hashable, Iterable, Iterator, List, Mapping,
                    NamedTuple, Optional, Sequence, Tuple, TypeVar, Union)

from transpiler.analysis.alternatives import Alternatives, Fullest, Place, fullest
from transpiler.analysis.lifetimes import Lifetime, Lifetimes
from transpiler.ir import MOVE, ONE, RELEASE, Graph, Op, Region, RegionKind, Size, ValueKind

_T = TypeVar('_T')


@dataclass(frozen=True)
class Resident:
    """Memory that exists at one op: a storage, its bytes, and how many of it there are (trips)."""

    storage: int
    size: Size
    count: Size


# Storages that are not there, and how many scopes of a loop's trips are gone.
Missing = Tuple[FrozenSet[int], int]


class Left(NamedTuple):
    """Scopes of a loop or branch that the op that runs it leaves behind: positions from which on and until when. -1: by the run
    before."""

    start: int
    region: Region
    until: int
    size: Size


class Arrival(NamedTuple):
    """A storage that a branch makes for the region around it, at this position of its own; `handed` is what of its own gives it the
    buffer, if that does."""

    at: int
    size: Size
    handed: Optional[Lifetime] = None


class _Evaluated(Dict[Size, int]):
    """Sizes for these dims, each worked out when it is first asked for."""

    def __init__(self, dims: Mapping[str, int]) -> None:
        super().__init__()
        self._dims = dims

    def __missing__(self, size: Size) -> int:
        found = self[size] = size.evaluate(self._dims)
        return found


class RegionMemory:
    """By region: where its storages are, what it hands out, lacks, keeps for its gradient and leaves behind.

    Args:
        graph: the program.
        lifetimes: of its storages.
        alternatives: what of it excludes each other; None where nothing does.
        dims: concrete value of every symbolic dim that the graph's sizes use.
    """

    def __init__(self, graph: Graph, lifetimes: Lifetimes, alternatives: Optional[Alternatives],
                 dims: Dict[str, int]) -> None:
        self.graph = graph
        self.lifetimes = lifetimes
        self.alternatives = alternatives
        self._gradient_op = {r.forward: r.op for r in graph.regions if r.forward >= 0}
        self._at_any_size: Dict[Hashable, Any] = {}
        self._measure(dims)

    def _measure(self, dims: Dict[str, int]) -> None:
        self.dims = dims
        # By region. Which branch is the fullest depends on the dims.
        self._kept_sizes: Dict[int, Size] = {}
        self._left: Dict[int, List[Left]] = {}
        self._kept: Dict[int, int] = {}
        self._collected: Dict[Tuple[int, bool], int] = {}
        self._evaluated = _Evaluated(dims)

    def at(self, dims: Dict[str, int]) -> RegionMemory:
        """The same for other values of the symbolic dims."""
        other = copy.copy(self)
        other._measure(dims)
        return other

    def reordered(self, graph: Graph, lifetimes: Lifetimes, region: int) -> RegionMemory:
        """The same of `graph`, in which the ops of `region` stand in another order: what is kept stays what it is, and what
        arrives in the region around."""
        other = copy.copy(self)
        other.graph, other.lifetimes = graph, lifetimes
        other._left, other._at_any_size = {}, {}
        if region:
            around = self.graph.regions[self.graph.regions[region].parent]
            other._at_any_size['arrivals', around.id] = self.arrivals(around)
        return other

    def once_for_all_sizes(self, what: Hashable, work_out: Callable[[], _T]) -> _T:
        """What `work_out` makes that does not depend on the dims: worked out when `what` is first asked for."""
        if what not in self._at_any_size:
            self._at_any_size[what] = work_out()
        return self._at_any_size[what]

    def evaluate(self, size: Size) -> int:
        """Bytes, or a count, for the concrete dims."""
        return self._evaluated[size]

    # Where memory is, of what excludes each other

    def place(self, region: Region) -> Optional[Place]:
        """Among what excludes each other, where the scopes of `region` are; None if they exclude nothing."""
        return self.alternatives.of_scopes(region) if self.alternatives else None

    def place_of(self, region: Region, lifetime: Lifetime) -> Optional[Place]:
        """The place of what is gone before its branch is next left out."""
        if self.alternatives is None:
            return None
        place = self.alternatives.of_storages(lifetime.storages)
        gone = not lifetime.kept and lifetime.last < len(region.ops) - 1
        return place if place is None or gone or self._begins_anew(region) else None

    def place_left(self, region: Region, left: Left) -> Optional[Place]:
        """The place of scopes that are left in `region`, if they are gone before their branch is next left out."""
        place = self.place(left.region)
        gone = left.until < len(region.ops)
        return place if place is None or gone or self._begins_anew(region) else None

    def _begins_anew(self, region: Region) -> bool:
        """Whether nothing is left in the scope of `region` when a trip begins: it is a new one, or a gradient has used up
        what was in it."""
        while region.keeps_scopes:
            if region.kind is RegionKind.LOOP or region.id in self._gradient_op:
                return True
            region = self.graph.regions[region.parent]
        return False

    def placed(self, region: Region) -> List[Tuple[Lifetime, Optional[Place]]]:
        """The lifetimes of `region`, each with its place."""
        return self.once_for_all_sizes(
            ('placed', region.id),
            lambda: [(lifetime, self.place_of(region, lifetime))
                     for lifetime in self.lifetimes.by_region[region.id].values()])

    def running_regions(self, region: Region) -> List[Tuple[int, Op]]:
        """The ops of `region` that run regions, each with its position."""
        return self.once_for_all_sizes(
            ('running', region.id),
            lambda: [(at, op)
                     for at, op in enumerate(self.graph.region_ops(region.id))
                     if op.regions])

    # What branches make for the regions around them

    def arrivals(self, region: Region) -> Dict[int, Arrival]:
        """By storage: what the op that runs `region`, a branch, makes, and is there only when an op inside has made it."""
        hands_on = region.kind is RegionKind.BRANCH_GRADIENT and not region.results
        if self.alternatives is None or not (hands_on or region.kind is RegionKind.BRANCH):
            return {}
        return self.once_for_all_sizes(('arrivals', region.id),
                                       lambda: dict(self._find_arrivals(region)))

    def _find_arrivals(self, region: Region) -> Iterator[Tuple[int, Arrival]]:
        op, around = self.lifetimes.position[region.op], self.graph.regions[region.parent]
        born = self._born(around).get(op, ())
        sizes = {s: a.size for s, a in self.arrivals(around).items() if a.at == op}
        sizes.update((each.storages[0], each.size) for each in born if len(each.storages) == 1)
        for storage, size in sizes.items():
            at = self._first_touch(region, storage)
            # What is fed is there, whoever is the first to touch it.
            if at is not None and not self.graph.values[storage].fed:
                yield storage, Arrival(at, size, self._handed_over(region, at, storage, size))

    def _born(self, region: Region) -> Dict[int, List[Lifetime]]:
        """By position in `region`: the lifetimes that begin there."""
        return self.once_for_all_sizes(('born', region.id), lambda: self._find_born(region))

    def _find_born(self, region: Region) -> Dict[int, List[Lifetime]]:
        found: Dict[int, List[Lifetime]] = {}
        for lifetime in self.lifetimes.by_region[region.id].values():
            found.setdefault(lifetime.first, []).append(lifetime)
        return found

    def _first_touch(self, region: Region, storage: int) -> Optional[int]:
        """The position in `region` of the first op that touches that storage of a region around, or has in it what does."""
        firsts = self.once_for_all_sizes(('touched', storage), lambda: self._find_touched(storage))
        return firsts.get(region.id)

    def _find_touched(self, storage: int) -> Dict[int, int]:
        """By region inside those that the values of `storage` belong to: where it is first touched."""
        regions, position = self.graph.regions, self.lifetimes.position
        found: Dict[int, int] = {}
        for op, home in self.lifetimes.from_elsewhere.get(storage, ()):
            inner, at = op.region, op.id
            while not self._is_within(home, inner):
                first = found.get(inner)
                found[inner] = position[at] if first is None else min(first, position[at])
                if first is not None:  # in the regions around, both stand where the same op does
                    break
                inner, at = regions[inner].parent, regions[inner].op
        return found

    def _handed_over(self, region: Region, at: int, storage: int, size: Size) -> Optional[Lifetime]:
        """What of `region` ends at this position of it, where an op gives its buffer to `storage` of a region around."""
        op, values = self.graph.ops[region.ops[at]], self.graph.values
        given = {values[op.results[j]].storage: op.operands[i] for i, j in op.facts.in_place}
        source = values[given[storage]].storage if given.get(storage, -1) >= 0 else -1
        own = self.lifetimes.by_region[region.id].values() if source >= 0 else ()
        return next((each for each in own
                     if source in each.storages and each.last == at and each.size == size and
                     (not each.kept or self._copies_kept(region))), None)

    def _is_within(self, inner: int, region: int) -> bool:
        """Whether region `inner` is `region`, or is in it; those inside come after those around them."""
        while inner > region:
            inner = self.graph.regions[inner].parent
        return inner == region

    # What a gradient hands out, and what is not there yet, or any more

    def moved_out_of(self, region: Region) -> FrozenSet[int]:
        """Values of `region` whose buffers its ops hand to the variables outside that get what they hold."""
        pairs = set(region.results)
        return self.once_for_all_sizes(
            ('moved', region.id), lambda: frozenset(a for op in self.graph.region_ops(region.id)
                                                    if op.kind == MOVE
                                                    for a, b in zip(op.operands, op.results)
                                                    if (a, b) in pairs))

    def _sums(self, gradient: Region) -> Dict[int, Lifetime]:
        """Where the gradients of all trips are added up: made at the end of the first trip."""
        return self.once_for_all_sizes(('sums', gradient.id), lambda: self._find_sums(gradient))

    def _find_sums(self, gradient: Region) -> Dict[int, Lifetime]:
        around = self.lifetimes.by_region[self.graph.ops[gradient.op].region]
        at = self.lifetimes.position[gradient.op]
        outer = (self.graph.values[v].storage for _, v in gradient.results)
        return {s: around[s] for s in outer if s in around and around[s].first == at}

    def _waits_for_sums(self, region: Region) -> bool:
        """Whether the trips of a loop and its gradient run in one region, which then has what the loop left."""
        if region.kind is not RegionKind.LOOP_GRADIENT or region.forward < 0:
            return False
        loop = self.graph.regions[region.forward]
        return (loop.keeps_scopes and
                self.graph.ops[loop.op].region == self.graph.ops[region.op].region)

    def missing_bytes(self, region: Region, missing: Missing) -> int:
        """The bytes of what is `missing` in `region`."""
        absent, gone = missing
        sums = self._sums(region) if absent else {}
        scopes = gone * self.kept_bytes(self.graph.regions[region.forward]) if gone else 0
        return scopes + sum(self.evaluate(sums[storage].size) for storage in absent)

    def missing(self, region: Region) -> Missing:
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
        return min(trips, key=lambda trip: self.missing_bytes(region, trip))

    def missing_in_sums(self, region: Region) -> Missing:
        """The same, while what a trip hands out is added up: its own scope is there still."""
        trips = (self._growing(region), 0), self._last_trip(region)
        return min(trips, key=lambda trip: self.missing_bytes(region, trip))

    def missing_while(self, op: int,
                      inside: Optional[Region]) -> Tuple[FrozenSet[int], Dict[int, int]]:
        """Storages that are not there, and scopes that are gone by loop, while `op` runs, or `inside`, a region of it."""
        regions = [self.graph.regions[r] for r in self.graph.ops[op].regions]
        found = [(r, self.missing_in_sums(r)) for r in regions if inside is None and self.grows(r)]
        if inside is not None:
            found = [(inside, self.missing(inside))]
        absent = frozenset().union(*(missing[0] for _, missing in found))
        return absent, {region.forward: missing[1] for region, missing in found}

    def _last_trip(self, region: Region) -> Missing:
        return frozenset(), self.evaluate(region.trips) - 1

    def _growing(self, region: Region) -> FrozenSet[int]:
        """Arrays that get elements from each trip: full when the scopes of all trips but the last are gone."""
        return frozenset(
            s for s in self._sums(region) if self.graph.values[s].kind is ValueKind.ARRAY)

    def grows(self, region: Region) -> bool:
        """Whether the trips of `region` add to arrays while the scopes that they read go."""
        return self._waits_for_sums(region) and bool(self._growing(region))

    def handed_out(self, op: Op) -> List[Resident]:
        """Gradients that regions hand out: the runtime copies a branch's when it is through, or adds a trip's to the sum of
        all, and then lets go of them. A buffer that the region has moved out itself is there once."""
        return self.once_for_all_sizes(('handed out', op.id),
                                       lambda: list(self._find_handed_out(op)))

    def _find_handed_out(self, op: Op) -> Iterator[Resident]:
        for region in map(self.graph.regions.__getitem__, op.regions):
            if region.kind.is_gradient:
                moved = self.moved_out_of(region)
                made = self.lifetimes.by_region[region.id]
                inner = (self.graph.values[v].storage for v, _ in region.results if v not in moved)
                for storage in dict.fromkeys(inner):
                    if storage in made:
                        yield Resident(storage, made[storage].size, ONE)

    def gradient_branch(self, op: Op) -> Optional[Region]:
        """The region of `op` if that is the gradient of a branch, taken or not."""
        if len(op.regions) != 1 or self.alternatives is None:
            return None
        region = self.graph.regions[op.regions[0]]
        return region if region.kind is RegionKind.BRANCH_GRADIENT else None

    def popping(self, op: Op) -> List[Region]:
        """The regions of `op`, if one is the gradient of a branch that is through with what that has kept when it ends."""
        if not self.alternatives:
            return []
        regions = [self.graph.regions[r] for r in op.regions]
        return regions if any(r.pops for r in regions) else []

    def total(self, residents: Iterable[Resident]) -> int:
        """Bytes of all of them."""
        return sum(self.evaluate(r.size) * self.evaluate(r.count) for r in residents)

    # What is kept for gradients

    def kept_per_trip(self, region: int) -> Size:
        """Bytes that one trip of `region` leaves behind for the gradient, the scopes that inner loops leave in it included."""
        if region not in self._kept_sizes:
            self._kept_sizes[region] = Size.total(each.size for each in self._fullest_kept(region))
        return self._kept_sizes[region]

    def kept_bytes(self, region: Region) -> int:
        """`kept_per_trip`, evaluated."""
        if region.id not in self._kept:
            self._kept[region.id] = self.evaluate(self.kept_per_trip(region.id))
        return self._kept[region.id]

    def kept_inside(self, region: Region) -> int:
        """Bytes that are gone from what `region` has left when its gradient is through: the runtime drops the scopes inside
        before it looks for gradients to hand out."""
        own = sum(self.evaluate(each.size) for each in self.own_kept(region))
        return self.kept_bytes(region) - own

    def kept_residents(self, region: Region) -> Iterator[Resident]:
        """What a trip of `region` leaves behind, the scopes that inner loops leave in it included."""
        pending = [(region, ONE)]
        while pending:
            around, count = pending.pop()
            for each in self._fullest_kept(around.id):
                if isinstance(each, Lifetime):
                    yield Resident(each.storages[0], each.size, count)
                else:
                    pending.append((each.region, count * each.region.trips))

    def _fullest_kept(self, region: int) -> List[Union[Lifetime, Left]]:
        """What the fullest trip of `region` leaves behind."""
        facts = self.graph.regions[region]
        scopes = (
            (self.place_left(facts, left), left) for left in self._scopes_left_for_good(region))
        found: List[Tuple[Optional[Place], Union[Lifetime, Left]]]
        found = [*self._kept_storages(facts), *scopes]
        return fullest(found, lambda each: self.evaluate(each.size))

    def own_kept(self, region: Region) -> List[Lifetime]:
        """What the fullest trip of `region` leaves behind, but for the scopes inside it."""
        return fullest(self._kept_storages(region), lambda each: self.evaluate(each.size))

    def _kept_storages(self, region: Region) -> Sequence[Tuple[Optional[Place], Lifetime]]:
        return self.once_for_all_sizes(
            ('kept', region.id),
            lambda: [(place, each) for each, place in self.placed(region) if each.kept])

    def copied(self, region: Region) -> Sequence[Tuple[Optional[Place], Lifetime]]:
        """What `region` has made and keeps, if it is there twice while its last op runs."""
        return self._kept_storages(region) if self._copies_kept(region) else ()

    def _copies_kept(self, region: Region) -> bool:
        return region.copies_kept and not self.lifetimes.runtime.by_data

    def popped(self, region: Region) -> Dict[int, Tuple[int, Size]]:
        """By storage that the forward part of `region` has kept: the position here of its last reader, who ends it, and its size."""
        if not region.pops:
            return {}
        return self.once_for_all_sizes(('popped', region.id),
                                       lambda: dict(self._find_popped(region)))

    def _find_popped(self, region: Region) -> Iterator[Tuple[int, Tuple[int, Size]]]:
        forward = self.graph.regions[region.forward]
        last: Dict[int, int] = {}
        for op, value in self.lifetimes.touches(forward.id):
            storage, (at, _) = self.graph.values[value].storage, self.lifetimes.seen_from(
                op, region.id)
            last[storage] = max(at, last.get(storage, -1))
        for place, kept in self._kept_storages(forward):
            at = max(last.get(storage, -1) for storage in kept.storages)
            if place is None and at >= 0:
                yield kept.storages[0], (at, kept.size)

    # Scopes that are left behind, and what is left to a collector

    def scopes_left_in(self, region: Region) -> List[Left]:
        """What ops of `region` leave behind."""
        found = self._left.get(region.id)
        if found is None:
            found = self._left[region.id] = [
                Left(start, inner, until,
                     self.kept_per_trip(inner.id) * inner.trips)
                for start, inner, until in self._where_left(region)
            ]
        return found

    def _where_left(self, region: Region) -> List[Tuple[int, Region, int]]:
        """The same at any size."""
        return self.once_for_all_sizes(('left', region.id),
                                       lambda: list(self._find_where_left(region)))

    def _find_where_left(self, region: Region) -> Iterator[Tuple[int, Region, int]]:
        for at, op in self.running_regions(region):
            for inner in map(self.graph.regions.__getitem__, op.regions):
                if inner.keeps_scopes:
                    gradient = self._gradient_op.get(inner.id, -1)
                    here = gradient >= 0 and self.graph.ops[gradient].region == region.id
                    until = self.lifetimes.position[gradient] if here else len(region.ops)
                    yield at, inner, until
                    if at and until == len(region.ops) and self._finds_scopes(inner):
                        yield -1, inner, at - 1

    def _finds_scopes(self, inner: Region) -> bool:
        """Whether the op of `inner`, in the main region, finds the scopes that it left in the run before: a loop whose gradient is not
        there takes them away itself, when it next begins. No collector does."""
        begins_empty = self.lifetimes.runtime.begins_empty
        return inner.parent == 0 and inner.kind is RegionKind.LOOP and not begins_empty

    def _scopes_left_for_good(self, region: int) -> Iterator[Left]:
        """Those that nobody in the region takes away."""
        facts = self.graph.regions[region]
        return (l for l in self.scopes_left_in(facts) if l.until >= len(facts.ops))

    def collected_in(self, region: Region, asleep: bool = False) -> int:
        """Bytes of a trip of `region`, of the regions in it too, that nobody but the runtime's collector frees. `asleep`: it may get
        to them after all else that has a name of what they hand out has let go of it; each other name keeps that until then."""
        if (region.id, asleep) not in self._collected:
            self._collected[region.id, asleep] = self._find_collected(region, asleep)
        return self._collected[region.id, asleep]

    def _find_collected(self, region: Region, asleep: bool) -> int:
        handed_out = {self.graph.values[v].storage for v, _ in region.results}
        stays_outside = handed_out.issuperset if asleep else handed_out.intersection
        own = 0 if region.frees_at_once else sum(
            self.evaluate(lifetime.size)
            for lifetime in self.lifetimes.by_region[region.id].values()
            if not (lifetime.kept or stays_outside(lifetime.storages)) and
            self.graph.ops[region.ops[lifetime.last]].kind != RELEASE)
        if region.kind is RegionKind.BRANCH_GRADIENT and not region.frees_at_once:
            kept = self.own_kept(self.graph.regions[region.forward])  # it is through with that
            own += sum(self.evaluate(each.size) for each in kept)
        inside = Fullest()
        for _, op in self.running_regions(region):
            for inner in map(self.graph.regions.__getitem__, op.regions):
                inside.add(self.place(inner), self.collected_in(inner, asleep))
        return own + inside.total
