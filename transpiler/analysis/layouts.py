"""Copies and names that a runtime makes for kernels whose tensors have a layout of their own."""

from __future__ import annotations

import itertools
from typing import Callable, Dict, Iterator, List, Set, Tuple

from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.timeline import Timeline, once_for
from transpiler.ir import MEMORY_KINDS, RELEASE, Graph, Op, Size, Value


def held_in_layouts(graph: Graph, timeline: Timeline, is_freed: Callable[[Lifetime],
                                                                         bool]) -> List[int]:
    """By position of the main region: bytes that are held to the end of the first run for kernels with layouts of their own. Empty if
    there are no such kernels.

    What they exchange with others the runtime gives another name, which holds the buffer on when nothing else does: that is one
    of the lifetimes that `is_freed` says are ended before. It exchanges also what it works in place on. Of results in an order that
    only these kernels read it makes a copy.
    """
    if not once_for(graph, timeline, 'converts',
                    lambda: any(op.facts.converts for op in graph.region_ops(0))):
        return []
    held = [0] * (len(graph.regions[0].ops) + 1)
    for at, value in once_for(graph, timeline, 'copied',
                              lambda: list(_exchanged_copies(graph, timeline))):
        held[at] += timeline.evaluate(value.bound) if value.bound is not None else 0
    for lifetime in once_for(graph, timeline, 'exchanged',
                             lambda: list(_exchanged_names(graph, timeline))):
        if is_freed(lifetime):
            held[lifetime.last + 1] += timeline.evaluate(lifetime.size)
    return list(itertools.accumulate(held))


def _exchanged_names(graph: Graph, timeline: Timeline) -> Iterator[Lifetime]:
    """What kernels with layouts of their own and others exchange, or work in place on, but for what is copied."""
    own: Set[int] = set()
    others: Set[int] = set()
    for op in graph.region_ops(0):
        if op.kind not in MEMORY_KINDS:
            storages = (graph.values[v].storage for v in op.reads() + op.writes())
            (own if op.facts.converts else others).update(storages)
    own -= {value.storage for _, value in _exchanged_copies(graph, timeline)}
    for lifetime in timeline.lifetimes.by_region[0].values():
        in_place = len(lifetime.storages) > 1
        exchanged = in_place or not others.isdisjoint(lifetime.storages)
        if exchanged and not own.isdisjoint(lifetime.storages):
            yield lifetime


def _exchanged_copies(graph: Graph, timeline: Timeline) -> Iterator[Tuple[int, Value]]:
    """What convolutions make in an order of their own, or kernels like them of such, and where another op is the first to read it."""
    made: Set[int] = set()
    handed_on = {(op, source) for op, source, _ in timeline.lifetimes.shared}
    for at, op in enumerate(graph.region_ops(0)):
        read = {v for v in op.reads() if (op.id, graph.values[v].storage) in handed_on}
        if not op.facts.converts and op.kind != RELEASE:  # what that names orders it, and is not looked at
            read.update(op.reads())
        yield from ((at, graph.values[v]) for v in sorted(made & read))
        if op.facts.converts and (op.facts.work.filters or not made.isdisjoint(op.reads())):
            made.update(op.writes())
        made -= read


def copied_bytes(graph: Graph, timeline: Timeline) -> int:
    """Bytes of all copies in other layouts that die behind the ops for which a run makes them."""
    return sum(_copied(graph, timeline).values())


def _copied(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """By op, in all of its runs."""
    return {
        op.id: timeline.evaluate(relaid_size(graph, op) * graph.runs_of(op.region))
        for op in _readers_of_copies(graph, timeline)
    }


def _readers_of_copies(graph: Graph, timeline: Timeline) -> List[Op]:
    return once_for(graph, timeline, 'readers of copies',
                    lambda: [op for op in graph.walk() if op.facts.relaid])


def relaid_size(graph: Graph, op: Op) -> Size:
    """Bytes of the copies that `op` reads in place of what kernels with a layout of their own made."""
    bounds = (graph.values[op.operands[at]].bound for at in sorted(op.facts.relaid))
    return Size.total(bound for bound in bounds if bound is not None)


def given_up(graph: Graph, timeline: Timeline) -> Dict[int, int]:
    """By op that reads such copies: bytes of what they are of and nothing reads later, or of what the op makes if that is less: when it
    makes that, those are gone."""
    found = {}
    for op in _readers_of_copies(graph, timeline):
        at, own = timeline.lifetimes.position[op.id], timeline.lifetimes.by_region[op.region]
        read = {graph.values[op.operands[i]].storage for i in op.facts.relaid}
        dying = sum(
            timeline.evaluate(l.size)
            for l in own.values()
            if l.last == at and not read.isdisjoint(l.storages))
        made = sum(timeline.evaluate(l.size) for l in own.values() if l.first == at)
        found[op.id] = min(dying, made)
    return found


def left_of_copies(graph: Graph, timeline: Timeline) -> List[int]:
    """By position of the main region: bytes of such copies made before, if nothing frees them; those of other regions with what runs
    them. Empty if there are none."""
    copied = _copied(graph, timeline)
    if not copied:
        return []
    left, there = [], 0
    for op in graph.region_ops(0):
        there += sum(copied.get(inner.id, 0) for inner in graph.inside(op))
        left.append(there)
        there += copied.get(op.id, 0)
    return left
