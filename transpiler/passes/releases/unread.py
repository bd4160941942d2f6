"""Releases of what a later op names without reading it: a runtime keeps that for the op.

Needs: nothing. Keeps: the order of ops. Changes: adds SHARE and RELEASE ops to the main region.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, FrozenSet, List, Set

from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.timeline import Timeline
from transpiler.ir import RELEASE, Graph, Op
from transpiler.passes.releases.in_time import ends_with_release, mortal, write_chosen


def release_unread(graph: Graph, timeline: Timeline) -> None:
    """Releases, right behind its last use, what an op that makes one result of several names later on. What cannot be released
    is there for that op, as if it read it.

    `timeline` is of `graph`.
    """
    names, named = mortal(graph, timeline), named_unread(graph)
    # Their memory may be there still, under another name.
    let_go = {
        graph.values[v].storage for op in graph.region_ops(0) if op.kind == RELEASE
        for v in op.writes()
    }
    released: Dict[int, List[Lifetime]] = {}
    held: Set[int] = set()
    for lifetime in timeline.lifetimes.by_region[0].values():
        late = max(named.get(s, -1) for s in lifetime.storages)
        if late <= lifetime.last or ends_with_release(graph, lifetime):
            continue
        if names.keys() >= set(lifetime.storages):
            released.setdefault(lifetime.last + 1, []).append(lifetime)
        else:
            held.update(set(lifetime.storages) - let_go)
    _count_as_read(graph, held)
    write_chosen(graph, timeline, released, names)


def named_unread(graph: Graph) -> Dict[int, int]:
    """By storage, the position in the main region of the last op that names it so."""
    found: Dict[int, int] = {}
    for at, op in enumerate(graph.region_ops(0)):
        for value in _unread(op):
            found[graph.values[value].storage] = at
    return found


def _unread(op: Op) -> FrozenSet[int]:
    return frozenset(op.operands[p] for p in op.facts.unread_alone) - set(op.data_reads())


def _count_as_read(graph: Graph, held: Set[int]) -> None:
    for op in list(graph.region_ops(0)) if held else ():
        read = frozenset(
            p for p in op.facts.unread_alone if graph.values[op.operands[p]].storage in held)
        if read:
            facts = replace(op.facts, shape_only=op.facts.shape_only - read)
            graph.ops[op.id] = replace(op, facts=facts)
