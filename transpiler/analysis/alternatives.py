"""What is never there together: of branches that exclude each other one runs, and what the others would make is not made."""

from __future__ import annotations

from typing import Callable, Dict, Hashable, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar

from transpiler.analysis.positions import Positions
from transpiler.ir import RELEASE, Graph, Region, RegionKind, ValueKind, When, exclude

_T = TypeVar('_T')


class Place(NamedTuple):
    """One of several alternatives in a region: of those with the same `group`, the memory of one `member` exists."""

    group: int
    member: Hashable


class Alternatives:
    """Which storages and scopes of a graph are alternatives.

    A trip of a region runs at most one of the branches in it of which each two exclude each other (`Region.when`). What
    only ops of one of them write is there only if that one has run. Of the results of an op that chooses, one is made.
    """

    def __init__(self, graph: Graph, positions: Positions) -> None:
        self._graph = graph
        self._by_region: Dict[int, Place] = {}
        self._by_storage: Dict[int, Place] = {}
        groups: List[List[When]] = []
        for region in graph.regions:
            self._group(region, groups)
        choosing = any(op.facts.chooses for op in graph.ops)
        if self._by_region or choosing:
            self._find_storages(positions, len(groups))

    def __bool__(self) -> bool:
        return bool(self._by_region or self._by_storage)

    def of_scopes(self, region: Region) -> Optional[Place]:
        """The place of a branch, and of what it leaves behind, in the region around it."""
        return self._by_region.get(region.id)

    def of_storages(self, storages: Sequence[int]) -> Optional[Place]:
        """The place of a memory that these storages have in turn; None if it may be there whatever was chosen."""
        if not self._by_storage:
            return None
        first = self._by_storage.get(storages[0])
        alike = len(storages) == 1 or all(self._by_storage.get(s) == first for s in storages[1:])
        return first if alike else None

    def _group(self, around: Region, groups: List[List[When]]) -> None:
        """Puts each branch of `around` into the first group in which it excludes all others; like ones are one member."""
        by_condition: Dict[int, List[int]] = {}  # value -> groups in which it decides
        for op in self._graph.region_ops(around.id):
            for region in map(self._graph.regions.__getitem__, op.regions):
                if not region.when:
                    continue
                known = dict.fromkeys(g for v, _ in region.when for g in by_condition.get(v, ()))
                fits = (g for g in known
                        if all(w == region.when or exclude(w, region.when) for w in groups[g]))
                group = next(fits, len(groups))
                if group == len(groups):
                    groups.append([])
                if region.when not in groups[group]:
                    groups[group].append(region.when)
                    for value, _ in region.when:
                        by_condition.setdefault(value, []).append(group)
                self._by_region[region.id] = Place(group, region.when)

    def _find_storages(self, positions: Positions, new_group: int) -> None:
        makers = self._makers(positions)
        by_op: Dict[int, List[int]] = {}
        for storage, op in makers.items():
            by_op.setdefault(op, []).append(storage)
        for op, storages in by_op.items():
            maker = self._graph.ops[op]
            if maker.facts.chooses:
                self._by_storage.update((s, Place(new_group + op, s)) for s in storages)
            elif len(maker.regions) == 1:
                region = self._graph.regions[maker.regions[0]]
                # The gradient of a branch that was not taken makes zeros.
                if region.id in self._by_region and region.kind is RegionKind.BRANCH:
                    place = self._by_region[region.id]
                    self._by_storage.update((s, place) for s in storages)

    def _makers(self, positions: Positions) -> Dict[int, int]:
        """By storage: the op of its own region that alone writes it, or runs all that do."""
        found: Dict[int, int] = {}
        never: Set[int] = set()
        values, regions = self._graph.values, self._graph.regions
        for value in values:
            if value.may_be_asked_for or value.kind is not ValueKind.DENSE:
                never.add(value.storage)
        for op in self._graph.walk():
            if op.kind == RELEASE:
                continue
            for value in op.writes():
                storage = values[value].storage
                if storage in never:
                    continue
                home = values[storage].region
                at, later = positions.seen_from(op, home)
                maker = regions[home].ops[at] if at >= 0 and not later else -1
                if found.setdefault(storage, maker) != maker:
                    never.add(storage)
        return {s: op for s, op in found.items() if op >= 0 and s not in never}


class Fullest:
    """A sum in which of each group of alternatives the largest counts."""

    def __init__(self, start: int = 0) -> None:
        self.total = start
        self._members: Dict[int, Dict[Hashable, int]] = {}
        self._largest: Dict[int, int] = {}

    def add(self, place: Optional[Place], amount: int) -> None:
        """Adds `amount`, which may be negative, to what is always there or to an alternative."""
        if place is None:
            self.total += amount
            return
        group, member = place
        members = self._members.setdefault(group, {})
        members[member] = members.get(member, 0) + amount
        largest = max(members.values())
        self.total += largest - self._largest.get(group, 0)
        self._largest[group] = largest

    def given(self, place: Optional[Place]) -> int:
        """The sum if this alternative is the one that was chosen."""
        if place is None or place.group not in self._members:
            return self.total
        own = self._members[place.group].get(place.member, 0)
        return self.total - self._largest[place.group] + own


def fullest(found: Iterable[Tuple[Optional[Place], _T]],
            bytes_of: Callable[[_T], int],
            chosen: Optional[Place] = None) -> List[_T]:
    """Those of `found` that make up the largest sum; of the group of `chosen`, its own."""
    items = list(found)
    sums: Dict[Place, int] = {}
    for place, item in items:
        if place is not None:
            sums[place] = sums.get(place, 0) + bytes_of(item)
    best: Dict[int, Place] = {}
    for place, total in sums.items():
        if place.group not in best or total > sums[best[place.group]]:
            best[place.group] = place
    if chosen is not None:
        best[chosen.group] = chosen
    return [item for place, item in items if place is None or best[place.group] == place]
