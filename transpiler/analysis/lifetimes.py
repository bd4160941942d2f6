"""From the first write of a storage to the moment that the runtime lets go of it, region by region."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from transpiler.analysis.arrays import array_parts
from transpiler.analysis.in_place import InPlace, act_by_name, hands_on
from transpiler.analysis.memory_profile import Pair, taken_over
from transpiler.analysis.positions import OUTSIDE, Positions, spans
from transpiler.ir import FORGET, RELEASE, Graph, Op, Region, RegionKind, Size, ValueKind
from transpiler.ir.slotted import slotted
from transpiler.runtime import Can, Runtime


@slotted
@dataclass
class Lifetime:
    """When one allocation exists, in positions of the op list of its region, both ends included.

    `kept` says that it outlives the trip: a gradient region, or nobody, ends it.
    `storages` are the storages that hold it in turn: more than one where the runtime works in place.
    """

    first: int
    last: int
    size: Size
    kept: bool = False
    storages: Tuple[int, ...] = ()


RegionLifetimes = Dict[int, Lifetime]  # by storage (the first of them)


class Lifetimes:
    """Lifetimes of all storages of a graph under one runtime.

    Persistable values are not in it (they are resting memory), nor are values of which not even a most is known, which
    stand in `unsized`.
    """

    def __init__(self,
                 graph: Graph,
                 runtime: Runtime,
                 sharing: Optional[FrozenSet[int]] = None) -> None:
        """`sharing` are regions in which it works in place, if not where it does by itself."""
        self._graph = graph
        self.runtime = runtime
        self.positions = Positions(graph)
        self.position = self.positions.of
        self._sizes = _storage_sizes(graph, runtime)
        self.unsized = tuple(v.id for v in graph.values if v.unsized)
        self.by_region: Dict[int, RegionLifetimes] = {r.id: {} for r in graph.regions}
        self._by_name = act_by_name(graph)
        self.in_place = InPlace(graph, self._by_name,
                                runtime.in_place if sharing is None else sharing, runtime.collects,
                                self._sizes.get)
        self._emptied = _emptied_arrays(graph, self._by_name)
        # (op, storage given up, storage taking over) wherever the runtime works in place
        self.shared: List[Tuple[int, int, int]] = []
        # By storage: the ops of other regions that touch it, and the region that what they touch belongs to
        self.from_elsewhere: Dict[int, List[Tuple[Op, int]]] = {}
        self._each_touch: Dict[int, List[Tuple[Op, int]]] = {}  # by home; for all orders
        self._collect()
        self._share_in_place(graph.regions)
        self._hold_to_the_end(graph.regions)

    def _collect(self) -> None:
        values, emptied = self._graph.values, self._emptied
        for op in self._graph.walk():
            own, at = self.by_region[op.region], self.position[op.id]
            for value in self._touched(op):
                facts = values[value]
                if facts.region != op.region:
                    self.from_elsewhere.setdefault(facts.storage, []).append((op, facts.region))
                if facts.region != op.region or facts.storage in emptied:
                    self._touch(op, value)
                    continue
                lifetime = own.get(facts.storage)
                if lifetime is None:
                    self._at(op.region, facts.storage, at)
                elif lifetime.last < at:
                    lifetime.last = at
        for region in self._graph.regions:
            for outer, inner in region.arguments:
                if region.kind is RegionKind.LOOP:
                    self._copy_in(region.id, inner)
        for value, from_start in self._ends():
            self._extend_over_region(value, from_start)

    def _ends(self) -> Iterator[Tuple[int, bool]]:
        """Values that are there at the end of their region, and whether they are at its start. What a region hands out by writing
        it where it belongs, in a region around, is no such value."""
        values = self._graph.values
        yield from ((inner, False)
                    for region in self._graph.regions
                    for inner, _ in region.results
                    if values[inner].region == region.id)
        yield from ((v.id, v.fed) for v in self._graph.values if v.fed or v.fetched)
        yield from ((v.id, False) for v in self._graph.values if v.storage in self.lasting)

    @cached_property
    def lasting(self) -> FrozenSet[int]:
        """Storages that an op has as long as its scope exists: no other op and no collector frees them."""
        if self.runtime.by_data:
            return frozenset()
        return frozenset(v.storage for v in self._graph.values if v.lasting)

    @cached_property
    def _ends_by_home(self) -> Dict[int, List[Tuple[int, bool]]]:
        found: Dict[int, List[Tuple[int, bool]]] = {}
        for value, from_start in self._ends():
            found.setdefault(self._graph.values[value].region, []).append((value, from_start))
        return found

    def reordered(self, graph: Graph, region: int) -> Lifetimes:
        """The same for `graph`, in which the ops of `region` stand in another order: what other regions own lives from
        where to where it did."""
        self._touches_by_home, self._ends_by_home  # found once, for all orders
        found = copy.copy(self)
        found._graph = graph
        found.positions = self.positions.reordered(graph, region)
        found.position = found.positions.of
        found.__dict__.pop('shape_read_until', None)
        found.by_region = {**self.by_region, region: {}}
        found.shared = []
        facts = graph.regions[region]
        found._collect_again(region)
        for _, inner in facts.arguments if facts.kind is RegionKind.LOOP else ():
            found._copy_in(region, inner)
        for value, from_start in self._ends_by_home.get(region, ()):
            found._extend_over_region(value, from_start)
        found._share_in_place((facts,))
        found._hold_to_the_end((facts,))
        return found

    def _collect_again(self, home: int) -> None:
        """What region `home` owns, of which nothing has been collected yet."""
        own, values, position = self.by_region[home], self._graph.values, self.position
        if home not in self._each_touch:
            self._each_touch[home] = self._find_each_touch(home)
        for op, value in self._each_touch[home]:
            lifetime = own.get(values[value].storage)
            # Most are touched again, by ops of their own region.
            if lifetime is None or op.region != home or values[value].storage in self._emptied:
                self._touch(op, value)
                continue
            at = position[op.id]
            if at < lifetime.first:
                lifetime.first = at
            elif at > lifetime.last:
                lifetime.last = at

    def _find_each_touch(self, home: int) -> List[Tuple[Op, int]]:
        """The first of the `touches` by ops that stand at one place in region `home`, of each storage."""
        found: Dict[Tuple[int, int], Tuple[Op, int]] = {}
        for op, value in self.touches(home):
            at = op.id if op.region == home else self.positions.within(op.region, home)
            if at != OUTSIDE:
                found.setdefault((at, self._graph.values[value].storage), (op, value))
        return list(found.values())

    def touches(self, home: int) -> Sequence[Tuple[Op, int]]:
        """(op, value) wherever an op, of any region, keeps the storage of a value of region `home` alive."""
        return self._touches_by_home.get(home, ())

    @cached_property
    def _touches_by_home(self) -> Dict[int, List[Tuple[Op, int]]]:
        found: Dict[int, List[Tuple[Op, int]]] = {}
        for op in self._graph.walk():
            for value in self._touched(op):
                found.setdefault(self._graph.values[value].region, []).append((op, value))
        return found

    def seen_from(self, op: Op, home: int) -> Tuple[int, bool]:
        """See `Positions`."""
        return self.positions.seen_from(op, home)

    def _touched(self, op: Op) -> Tuple[int, ...]:
        """Values that keep their storage alive at `op`."""
        if self.runtime.by_data and op.regions:
            arguments = (pair for r in op.regions for pair in self._graph.regions[r].arguments)
            return (*(outer for outer, inner in arguments), *op.writes())
        data = op.touches()
        if self.runtime.by_data or not op.facts.shape_only:
            return data
        # What a gradient block names is kept for it, even where it needs the shape alone.
        values = self._graph.values
        return data + tuple(v for v in op.shape_reads() if values[v].region != op.region)

    def _touch(self, op: Op, value: int) -> None:
        """For any op that may see `value`: of its own region, within it, or one that continues its scope."""
        facts = self._graph.values[value]
        at, kept = self.positions.seen_from(op, facts.region)
        if at < 0 or (self._emptied and at > self.emptied_at(value)):
            return
        lifetime = self._at(facts.region, facts.storage, at)
        if lifetime is None:
            return
        lifetime.kept = lifetime.kept or kept
        if at < lifetime.first:
            lifetime.first = at
        if at > lifetime.last:
            lifetime.last = at

    def emptied_at(self, value: int) -> float:
        """Where an array is emptied for good: those who name it later find nothing in it."""
        release = self._emptied.get(self._graph.values[value].storage)
        return float('inf') if release is None else self.position[release]

    def _at(self, region: int, storage: int, position: int) -> Optional[Lifetime]:
        lifetimes = self.by_region[region]
        if storage not in lifetimes:
            size = self._sizes.get(storage)
            # Without ops there is no moment to live at.
            if size is None or not self._graph.regions[region].ops:
                return None
            lifetimes[storage] = Lifetime(position, position, size, storages=(storage,))
        return lifetimes[storage]

    def _copy_in(self, region: int, inner: int) -> None:
        """A copy made at the start of each trip; only one that is read counts for the bound. Of what is linked in, there is a
        copy only for the gradient."""
        storage = self._graph.values[inner].storage
        is_read = storage in self.by_region[region]
        if self._graph.regions[region].links:
            if is_read and not self.by_region[region][storage].kept:
                del self.by_region[region][storage]
            return
        if self.runtime.by_data and not is_read:
            return
        lifetime = self._at(region, storage, 0)
        if lifetime is not None:
            lifetime.first, lifetime.last = 0, max(0, len(self._graph.regions[region].ops) - 1)
            lifetime.kept = self._graph.regions[region].keeps_scopes

    def _extend_over_region(self, value: int, from_start: bool) -> None:
        region = self._graph.values[value].region
        storage = self._graph.values[value].storage
        end = len(self._graph.regions[region].ops) - 1
        if from_start and self._graph.values[value].kind is ValueKind.DENSE:
            self._at(region, storage, 0)
        lifetime = self.by_region[region].get(storage)
        if lifetime is not None:
            lifetime.first = 0 if from_start else lifetime.first
            lifetime.last = max(lifetime.last, end)

    def _share_in_place(self, regions: Sequence[Region]) -> None:
        """Merges the lifetimes that one allocation serves, because an op works in place."""
        for region in regions:
            root: Dict[int, int] = {}
            for op in map(self._graph.ops.__getitem__, region.ops):
                if not op.facts.in_place and not hands_on(op):
                    continue
                pairs = tuple(self.in_place.pairs(op))
                if pairs:
                    self._share_at(op, pairs, self.by_region[region.id], root)

    def _share_at(self, op: Op, pairs: Sequence[Pair], lifetimes: RegionLifetimes,
                  root: Dict[int, int]) -> None:
        at, anyway = self.position[op.id], hands_on(op)
        owners = {source: lifetimes.get(_root(root, source)) for source, _ in pairs}
        dying = {s for s, owner in owners.items() if owner and (anyway or _ends(owner, s, at))}
        born = {
            target for source, target in pairs
            if target in lifetimes and lifetimes[target] is not owners[source] and
            (anyway or lifetimes[target].first == at)
        }
        for source, target in taken_over(pairs, dying, born):
            first, second = owners[source], lifetimes.pop(target)
            first.last = max(first.last, second.last)
            first.kept = first.kept or second.kept
            first.storages += (target,)
            root[target] = _root(root, source)
            self.shared.append((op.id, first.storages[-2], target))

    def _hold_to_the_end(self, regions: Sequence[Region]) -> None:
        """Where the runtime does. And in the main region from the start, if there was a run before: what it left there is what the next
        begins with."""
        held = [each for each in regions if self.holds(each)]
        if self.runtime.holds_trips and any(not each.id for each in regions):
            self._hold_of_bodies()
        lasting = self.lasting
        if not (held or lasting):
            return
        released, forgotten = self._emptied_by(RELEASE), self._emptied_by(FORGET)
        for region in held:
            for lifetime in list(self.by_region[region.id].values()):
                if not released.issuperset(lifetime.storages):
                    self._hold(region, lifetime, released, lifetime.storages[0]
                               in released | forgotten)
        for region in (each for each in regions if lasting and each not in held):
            for lifetime in list(self.by_region[region.id].values()):
                if not lasting.isdisjoint(lifetime.storages):  # all else the collector has emptied
                    self._hold(region, lifetime, released, lifetime.storages[0] not in lasting)

    def _hold_of_bodies(self) -> None:
        """To the end of the main region, what belongs to it and only ops inside loops and branches name: the loops do not free it,
        and the collector of the main region does not know of it. `tests.wild` 2002282."""
        values = self._graph.values
        named = {values[v].storage for op, v in self.touches(0) if not op.region}
        for lifetime in self.by_region[0].values():
            if named.isdisjoint(lifetime.storages):
                lifetime.last = len(self._graph.regions[0].ops) - 1

    def _hold(self, region: Region, lifetime: Lifetime, released: FrozenSet[int],
              emptied: bool) -> None:
        if not (region.id or self.runtime.begins_empty):
            self._hold_older(lifetime, released, emptied)
            lifetime.first = 0
        lifetime.last = max(lifetime.last, len(region.ops) - 1)
        lifetime.kept = lifetime.kept or region.keeps_scopes

    def holds(self, region: Region) -> bool:
        """Whether what `region` makes stays to the end of a trip, or a run."""
        return not self.runtime.collects or self.runtime.holds_trips and region.id in self._in_loops

    @cached_property
    def _in_loops(self) -> FrozenSet[int]:
        """Bodies of loops, and what is inside them. Not their gradients: a trip's scope is gone with its gradient, and the first trip,
        which frees, finds most of them."""
        return frozenset(self._graph.in_loops(gradients=False))

    @property
    def left_alone(self) -> Dict[int, Size]:
        """Of what a run leaves to the next in the main region, by storage, what no other name holds."""
        if self.runtime.collects or self.runtime.begins_empty:
            return {}
        emptied = self._emptied_by(RELEASE) | self._emptied_by(FORGET)
        return {
            each.storages[0]: each.size
            for each in self.by_region[0].values()
            if len(each.storages) == 1 and not each.first and each.storages[0] not in emptied
        }

    @property
    def left_elsewhere(self) -> Dict[int, Size]:
        """Of that what kernels then make in other memory."""
        made = self._made_elsewhere
        return {s: size for s, size in self.left_alone.items() if s in made} if made else {}

    @cached_property
    def _made_elsewhere(self) -> Dict[int, FrozenSet[int]]:
        """By storage: ops that do not make it in the memory that it has."""
        found: Dict[int, FrozenSet[int]] = {}
        for op in self._graph.walk():
            for value in op.late_results(op.workspace is None or bool(op.workspace)):
                storage = self._graph.values[value].storage
                found[storage] = found.get(storage, frozenset()) | {op.id}
        return found

    def release_position(self, lifetime: Lifetime) -> int:
        """Where the program may let go of an allocation, at the earliest: not before somebody reads a shape that would go with it."""
        found = (self.shape_read_until.get(storage, -1) for storage in lifetime.storages)
        return max(lifetime.last, *found)

    @cached_property
    def shape_read_until(self) -> Dict[int, int]:
        """By storage whose shape is read when its data is dead, and of which the runtime does not keep it: the last position, in the
        region that it belongs to, at which it is read."""
        if Can.SHAPES in self.runtime.can:
            return {}
        found: Dict[int, int] = {}
        for value, span in spans(self._graph).items():
            storage = self._graph.values[value].storage
            if span.shape_last > span.last:
                found[storage] = max(found.get(storage, -1), span.shape_last)
        return found

    def _emptied_by(self, kind: str) -> FrozenSet[int]:
        """Storages that ops of that kind empty."""
        values = self._graph.values
        return frozenset(values[v].storage for op in self._by_name if op.kind == kind
                         for v in op.writes())

    def _hold_older(self, lifetime: Lifetime, released: FrozenSet[int], emptied: bool) -> None:
        """For an allocation of the main region that later tenants keep to the next run, when the first one has to make another, as it is
        `emptied`, or as its kernel does: there are two until that is handed on to the last that has kept the older one."""
        keeping = next((s for s in reversed(lifetime.storages[1:]) if s not in released), None)
        first = lifetime.storages[0]
        makers = self._made_elsewhere.get(first, frozenset())
        if keeping is None or not (emptied or makers):
            return
        touches = ((op, self.seen_from(op, 0)[0])
                   for op, value in self.touches(0)
                   if self._graph.values[value].storage == first)
        handed_on = next(self.position[op] for op, _, taker in self.shared if taker == keeping)
        made = min(
            (at for op, at in touches
             if at >= 0 and op.kind not in (RELEASE, FORGET) and (emptied or op.id in makers)),
            default=handed_on)
        if made < handed_on:
            self.by_region[0][keeping] = Lifetime(made,
                                                  handed_on - 1,
                                                  lifetime.size,
                                                  storages=(keeping,))


def _ends(lifetime: Lifetime, storage: int, at: int) -> bool:
    """Whether `storage` is the last to hold its memory, and gives it up at this position."""
    return lifetime.storages[-1] == storage and lifetime.last == at and not lifetime.kept


def _emptied_arrays(graph: Graph, by_name: Sequence[Op]) -> Dict[int, int]:
    """By storage: the RELEASE op of each array that is emptied in its own region."""
    return {
        graph.values[v].storage: op.id for op in by_name if op.kind == RELEASE for v in op.writes()
        if graph.values[v].kind is ValueKind.ARRAY and graph.values[v].region == op.region and
        graph.values[v].region == 0
    }


def _root(root: Dict[int, int], storage: int) -> int:
    while storage in root:
        storage = root[storage]
    return storage


def _storage_sizes(graph: Graph, runtime: Runtime) -> Dict[int, Size]:
    """Size of each storage: that of its largest tenant, or what it is at the most where that is not known, which is nothing for
    a lower bound; none for persistables and unknown sizes."""
    linked = {
        inner for r in graph.regions if r.kind is RegionKind.LOOP_GRADIENT
        for _, inner in r.arguments
    }
    sizes: Dict[int, List[Size]] = {}
    unknown = set()
    arrays = array_parts(graph)
    for value in graph.values:
        storage = value.storage
        if value.persistable or value.id in linked:
            unknown.add(storage)
        elif storage in arrays:
            sizes[storage] = arrays[storage]
        else:
            size = value.size if runtime.by_data else value.bound
            if size is None:
                unknown.add(storage)
            elif storage in sizes:
                sizes[storage].append(size)
            else:
                sizes[storage] = [size]
    return {s: largest(members) for s, members in sizes.items() if s not in unknown}


def largest(sizes: List[Size]) -> Size:
    """The largest of `sizes` if one is proved to be; else a polynomial that is at least each of them."""
    if len(sizes) == 1:
        return sizes[0]
    for candidate in sizes:
        if all(candidate >= other for other in sizes):
            return candidate
    terms: Dict = {}
    for size in sizes:
        for monomial, coefficient in size.terms.items():
            terms[monomial] = max(terms.get(monomial, 0), coefficient)
    return Size(terms)
