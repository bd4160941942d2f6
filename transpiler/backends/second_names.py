"""Memory that has several names, of which no executor knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, FrozenSet, Iterable, Mapping, Set, Tuple

from transpiler.ir import Graph, Op, Value, ValueKind


def read_too(graph: Graph, cache: Value, operand: Value) -> None:
    """Who reads `cache` in the main region, which is another name of `operand`, reads that, too."""
    for reader in graph.region_ops(0):
        if cache.id in reader.reads() and operand.id not in reader.reads():
            reader.operands += (operand.id,)


def is_plain(value: Value) -> bool:
    """Whether nothing but its readers keeps it."""
    outlives = value.persistable or value.fed or value.fetched
    return value.kind is ValueKind.DENSE and value.buffer in (-1, value.id) and not outlives


def names_in_one_memory(pairs: Iterable[Tuple[Value, Value]]) -> Dict[int, FrozenSet[int]]:
    """By value: all that have its memory; `pairs` are such that have one. They are let go of, and written over, by nobody: alone each would
    still be there under its other names."""
    found: Dict[int, FrozenSet[int]] = {}
    for one, other in pairs:
        for value in (one, other):
            value.skipped = True
            value.buffer = value.id if is_plain(value) else value.buffer
        names = frozenset((one.id, other.id)).union(*(found.get(v.id, ()) for v in (one, other)))
        found.update((v, names) for v in names)
    return found


def write_together(op: Op, taken: FrozenSet[int], named: Mapping[int, FrozenSet[int]]) -> None:
    """Who writes one name of a memory writes them all, and so does `op` where it may work in place, on values `taken`, and the executor goes
    by the uses of one name: whoever reads any stays in front of it, or behind it, as it was. Not for an op that gives the second name."""
    over = set(taken).union(*(named.get(v, ()) for v in (*taken, *op.writes())))
    if over:  # what it computes is not a sum, or one element after the other, of these
        op.facts = replace(op.facts, left_fold=False, elementwise=False, rows=None, means=None)
        op.results += tuple(sorted(over.difference(op.writes())))
    if taken:
        op.facts = replace(op.facts, in_place=(), side_effect=True)
