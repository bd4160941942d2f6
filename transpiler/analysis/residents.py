"""What exists while an op runs, storage by storage."""

from __future__ import annotations

from typing import Iterator, Optional, Sequence, Set, Tuple, Union

from transpiler.analysis.alternatives import Place, fullest
from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.region_memory import Left, RegionMemory, Resident
from transpiler.ir import ONE, Region, RegionKind, Size


def residents(memory: RegionMemory, op: int) -> Sequence[Resident]:
    """All that exists while `op` runs."""
    popping = memory.popping(memory.graph.ops[op])
    if popping:
        return max((list(_residents_around(memory, op, each)) for each in popping),
                   key=memory.total)
    branch = memory.gradient_branch(memory.graph.ops[op])
    if branch is None:
        return [*memory.handed_out(memory.graph.ops[op]), *_residents_around(memory, op)]
    taken = [*memory.handed_out(memory.graph.ops[op]), *_residents_around(memory, op, branch)]
    return max(list(_residents_around(memory, op)), taken, key=memory.total)


def _residents_around(memory: RegionMemory,
                      op: int,
                      through: Optional[Region] = None) -> Iterator[Resident]:
    """What exists while `op` runs, or while it hands out what the gradient `through` has made."""
    inside: Optional[Region] = None  # the region that was looked at before, run by `op`
    inner_at = -1  # and where in it
    coming: Set[int] = set()  # what branches have yet to make
    while op >= 0:
        region = memory.graph.regions[memory.graph.ops[op].region]
        at = memory.lifetimes.position[op]
        absent, gone = memory.missing_while(op, inside)
        if inside is not None:
            coming |= {s for s, a in memory.arrivals(inside).items() if a.at > inner_at}
        gradient = inside or through
        chosen = memory.place(gradient) if gradient else None
        pops = gradient if gradient and gradient.pops else None
        for each in fullest(_there(memory, region, at), lambda e: memory.evaluate(e.size), chosen):
            if isinstance(each, Left) and pops and each.region.id == pops.forward:
                yield from _not_popped(memory, each, pops, inner_at if inside else len(pops.ops))
            elif isinstance(each, Left) and through and each.region.id == through.forward:
                yield from (
                    Resident(e.storages[0], e.size, ONE) for e in memory.own_kept(each.region))
            elif isinstance(each, Left):
                yield from _trips_left(memory, each.region, gone.get(each.region.id, 0))
            elif each.storages[0] not in absent and each.storages[0] not in coming:
                yield Resident(each.storages[0], each.size, ONE)
        if region.keeps_scopes and region.kind is RegionKind.LOOP:
            yield from _left_by_earlier_trips(memory, region)
        inside, inner_at, op = region, at, region.op


def _not_popped(memory: RegionMemory, left: Left, gradient: Region, at: int) -> Iterator[Resident]:
    """What is still there of `left` while the op at position `at` of its gradient runs."""
    popped = memory.popped(gradient)
    for each in _trips_left(memory, left.region, 0):
        if each.storage not in popped or popped[each.storage][0] >= at:
            yield each


def _there(memory: RegionMemory, region: Region,
           at: int) -> Iterator[Tuple[Optional[Place], Union[Lifetime, Left]]]:
    """What may exist in `region` while the op at position `at` runs."""
    handed = [id(a.handed) for a in memory.arrivals(region).values() if a.at == at]
    for lifetime, place in memory.placed(region):
        if lifetime.first <= at <= lifetime.last and id(lifetime) not in handed:
            yield place, lifetime
    if at == len(region.ops) - 1:
        yield from memory.copied(region)
    for left in memory.scopes_left_in(region):
        if left.start < at <= left.until:
            yield memory.place_left(region, left), left


def _trips_left(memory: RegionMemory, loop: Region, gone: int) -> Iterator[Resident]:
    """What the trips of `loop` left, but for `gone` of them."""
    if not gone:
        return _times(memory.kept_residents(loop), loop.trips)
    if gone == memory.evaluate(loop.trips) - 1:
        return memory.kept_residents(loop)
    return _left_by_earlier_trips(memory, loop)


def _left_by_earlier_trips(memory: RegionMemory, loop: Region) -> Iterator[Resident]:
    """What the trips before the last one left. Sizes have no negative terms: `trips - 1` is a dim."""
    earlier = memory.evaluate(loop.trips) - 1
    if loop.trips.is_constant:
        return _times(memory.kept_residents(loop), Size.of(earlier))
    name = f'({loop.trips!r}-1)'
    memory.dims[name] = earlier
    return _times(memory.kept_residents(loop), Size.dim(name))


def _times(residents: Iterator[Resident], count: Size) -> Iterator[Resident]:
    return (Resident(r.storage, r.size, r.count * count) for r in residents)
