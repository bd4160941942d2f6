"""What the verifier believes of a program beyond what each op does by itself, each with the rule that makes it so."""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Mapping, Optional, Set

from transpiler.analysis.counters import Counter, mirrored_counters
from transpiler.analysis.handed_on import handed_on_arrays
from transpiler.analysis.leftovers import left_by_earlier_runs
from transpiler.analysis.positions import Positions
from transpiler.analysis.reloads import reloaded, reloads
from transpiler.ir import MOVE, RELEASE, Graph, Op, leaves_out
from transpiler.verify.definitions import Definition, Observations
from transpiler.verify.row_sums import is_row_sum, rows_of_sum


@dataclass(frozen=True)
class Claims:
    """Of one program.

    Attributes:
        known: names of the old program; None if this is the old one.
        counters: by op that counts, either way.
        idle: RELEASE ops of elements that nobody reads again.
        stands_for: by storage of an added value, the name of the old one that gets all that it ever holds.
        reloads: the op that wrote an element, by added op that reads it again.
        left_over: values that no op has written before they are read.
        parts: terms of the whole sum, by op that adds one of them.
        row_sums: rows of the whole sum, by op that adds to some of them.
        replays: by what makes it again, what it is.
        unread: by op that leaves out some results of the one it stands for, operands of which it needs the shape alone.
    """

    known: Optional[FrozenSet[str]]
    counters: Mapping[int, List[Counter]]
    idle: FrozenSet[int]
    stands_for: Mapping[int, str]
    reloads: Mapping[int, int]
    left_over: FrozenSet[int]
    parts: Mapping[int, int]
    row_sums: Mapping[int, int]
    replays: Mapping[Definition, Definition]
    unread: Mapping[int, FrozenSet[int]]


def claims_of_old(graph: Graph) -> Claims:
    """Nothing was added to it."""
    return _claims(graph, None, {op.id: op.id for op in graph.ops}, {}, {}, {}, {})


def claims_of_new(old: Graph, new: Graph, origins: Mapping[int, int], seen: Observations) -> Claims:
    """Of the rewritten program; `seen` is what reads of the old one see."""
    return _claims(new, frozenset(v.name for v in old.values), origins, _parts(old, new, origins),
                   _row_sums(old, new, origins), _replays(old, seen), _unread(old, new, origins))


def _claims(graph: Graph, known: Optional[FrozenSet[str]], origins: Mapping[int, int],
            parts: Mapping[int, int], row_sums: Mapping[int, int],
            replays: Mapping[Definition, Definition], unread: Mapping[int,
                                                                      FrozenSet[int]]) -> Claims:
    idle: Set[int] = {
        op for region in graph.regions for array in handed_on_arrays(graph, region)
        for op in array.emptied
    }
    return Claims(known, _counters(graph), frozenset(idle),
                  {} if known is None else _ways_out(graph, known), _reloads(graph, origins),
                  frozenset(v for left in left_by_earlier_runs(graph).values() for v in left),
                  parts, row_sums, replays, unread)


def _counters(graph: Graph) -> Dict[int, List[Counter]]:
    found: Dict[int, List[Counter]] = {}
    for counter in (c for region in graph.regions for c in mirrored_counters(graph, region)):
        found.setdefault(counter.counts, []).append(counter)
        found.setdefault(counter.counts_back, []).append(counter)
    return found


def _replays(old: Graph, seen: Observations) -> Dict[Definition, Definition]:
    """By how it can be made again, what an op made by random numbers."""
    found: Dict[Definition, Definition] = {}
    for op in old.walk():
        replay = op.facts.replay
        if replay is not None and (op.id, replay.operand) in seen:
            mask = frozenset({(op.id, replay.mask)})
            how: Definition = ('chosen', mask, seen[op.id, replay.operand])
            if replay.divisor is not None:
                how = ('quotient', frozenset({how}), frozenset({('filled', replay.divisor)}))
            found[how] = (op.id, replay.result)
    return found


def _ways_out(graph: Graph, known: FrozenSet[str]) -> Dict[int, str]:
    """By storage of a value that was added: the old one that gets all that it ever holds, and nothing else.

    Such a value can be taken for that one, also for what an earlier run has left in it.
    """
    writers = Tally(graph.values[v].storage for op in graph.walk() if op.kind != RELEASE
                    for v in op.writes())
    readers = Tally(graph.values[v].storage for op in graph.walk() for v in op.reads())
    found: Dict[int, str] = {}
    for op in (op for op in graph.walk() if op.kind == MOVE):
        for source, target in (
            (graph.values[a], graph.values[b]) for a, b in zip(op.operands, op.results)):
            if (source.name not in known and target.name in known and
                    source.region == target.region == op.region and readers[source.storage] == 1 and
                    writers[target.storage] == 1):
                found[source.storage] = target.name
    return found


def _reloads(graph: Graph, origins: Mapping[int, int]) -> Dict[int, int]:
    """By op that was added to read a trip's element of an array again: the op that wrote the element."""
    found: Dict[int, int] = {}
    for region in (r for r in graph.regions if r.forward >= 0):
        added = [op for op in graph.region_ops(region.id) if op.id not in origins]
        known = reloads(graph, region) if added else {}
        for op in added if known else ():
            value = reloaded(graph, op, known, Positions(graph))
            if value >= 0:
                found[op.id] = known[value].write
    return found


def _parts(old: Graph, new: Graph, origins: Mapping[int, int]) -> Dict[int, int]:
    """Terms of the sum of `old`, by op of `new` that does one step of it."""
    ops = (op for op in new.ops if op.id in origins and is_part(old.ops[origins[op.id]], op))
    return {op.id: len(old.ops[origins[op.id]].operands) for op in ops}


def _row_sums(old: Graph, new: Graph, origins: Mapping[int, int]) -> Dict[int, int]:
    """Rows of the sum of `old`, by op of `new` that does one step of it."""
    pairs = ((op, old.ops[origins[op.id]]) for op in new.ops if op.id in origins)
    return {op.id: rows_of_sum(old, source) for op, source in pairs if is_row_sum(source, op)}


def _unread(old: Graph, new: Graph, origins: Mapping[int, int]) -> Dict[int, FrozenSet[int]]:
    pairs = ((op, old.ops[origins[op.id]]) for op in new.ops if op.id in origins)
    return {op.id: unread(source, op) for op, source in pairs if leaves_out(source, op)}


def unread(source: Op, op: Op) -> FrozenSet[int]:
    """Operands of which `op`, which may make some results of `source` alone, needs no more than the shape for that."""
    if not leaves_out(source, op):
        return frozenset()
    separate = dict(source.facts.separate)
    return frozenset.intersection(*(separate[i] for i, v in enumerate(op.results) if v >= 0))


def is_part(source: Op, op: Op) -> bool:
    return (source.facts.left_fold and op.facts.left_fold and op.kind == source.kind and
            2 == len(op.operands) < len(source.operands) and
            len(op.results) == len(source.results) == 1 and min(op.operands + op.results) >= 0)
