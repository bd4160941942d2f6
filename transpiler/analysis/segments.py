"""Stretches of the main region that run as regions of their own, and what of their values is known outside of them.

In a segment ops run one after the other, and what only the segment knows is freed right after its last use, by the thread that
runs it. What others know too stays until the segment ends, unless it is released. The executor keeps nothing for pairs of ops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from transpiler.analysis.timeline import Timeline
from transpiler.ir import FORGET, MEMORY_KINDS, RELEASE, Graph, Op, Region, ValueKind
from transpiler.runtime import Runtime

Segments = Tuple[Tuple[int, int], ...]  # first and last position in the main region
_LOCAL = (ValueKind.DENSE, ValueKind.SELECTED_ROWS)


@dataclass(frozen=True)
class UpkeepOf:
    """What an executor keeps of a program besides tensors, and how long it takes to build that."""

    bytes: int
    seconds: float


def segments_of(graph: Graph, most: Optional[int] = None) -> Segments:
    """All stretches of ops that may run in a segment, each of `most` ops at the most."""
    found: List[Tuple[int, int]] = []
    start: Optional[int] = None
    ops = list(graph.region_ops(0))
    for at in range(len(ops) + 1):
        if at < len(ops) and _may_move(graph, ops[at]):
            start = at if start is None else start
        elif start is not None:
            step = most or at - start
            found += [(i, min(i + step, at) - 1) for i in range(start, at, step)]
            start = None
    return tuple(found)


def _may_move(graph: Graph, op: Op) -> bool:
    """What acts on more than variables stays where it is, and so does what runs regions, and who looks for what these left in scopes."""
    kinds = {graph.values[v].kind for v in op.reads() + op.writes()}
    acts = op.facts.side_effect and op.kind not in MEMORY_KINDS or ValueKind.OTHER in kinds
    return not (op.regions or acts or op.facts.collective or op.facts.converts or
                op.kind == FORGET or not (op.facts.known or op.kind in MEMORY_KINDS))


def outside(graph: Graph, segments: Segments) -> FrozenSet[int]:
    """Storages of the main region that more than one segment knows, or somebody else."""
    segment_at = _segment_at(segments)
    home: Dict[int, int] = {}
    found: Set[int] = set()
    position = {op: at for at, op in enumerate(graph.regions[0].ops)}
    for op in graph.walk():
        segment = segment_at.get(position[op.id], -1) if op.region == 0 else -1
        reads = op.reads()
        for value in (*reads, *op.writes()):
            storage = graph.values[value].storage
            if storage not in home:
                home[storage] = -1 if value in reads else segment
            if home[storage] != segment or segment < 0:
                found.add(storage)
    for value in graph.values:
        if value.may_be_asked_for or value.buffer >= 0 or value.kind not in _LOCAL:
            found.add(value.storage)
    return frozenset(found)


def _segment_at(segments: Segments) -> Dict[int, int]:
    return {at: i for i, (first, last) in enumerate(segments) for at in range(first, last + 1)}


def in_segments(graph: Graph, segments: Segments, runtime: Runtime, dims: Mapping[str,
                                                                                  int]) -> Timeline:
    """The timeline of `graph` if it runs in these segments: what is known outside, and not released, lives to the end of the
    last segment that touches it."""
    known = outside(graph, segments)
    held = graph.fork()
    held.regions[0].frees_at_once = True
    ops = graph.regions[0].ops
    for first, last in segments:
        alive = _alive_at_end(graph, [graph.ops[i] for i in ops[first:last + 1]], known)
        end = graph.ops[ops[last]]
        held.ops[end.id] = replace(end, operands=(*end.operands, *alive))
    return Timeline(held, runtime.in_segments(), dims)


def _alive_at_end(graph: Graph, ops: Sequence[Op], known: FrozenSet[int]) -> Tuple[int, ...]:
    """A value of each storage of `known` that `ops` touch and do not release in the end."""
    alive: Dict[int, int] = {}
    for op in ops:
        for value in (*op.reads(), *op.writes()):
            facts = graph.values[value]
            if facts.storage in known and facts.region == 0 and not facts.persistable:
                alive[facts.storage] = value
        if op.kind == RELEASE:
            for value in op.writes():
                alive.pop(graph.values[value].storage, None)
    return tuple(alive.values())


def upkeep(graph: Graph, runtime: Runtime, segments: Segments = ()) -> UpkeepOf:
    """What `runtime` keeps of `graph` besides tensors if its main region runs in these segments."""
    facts = runtime.upkeep
    inside = sum(last - first + 1 for first, last in segments)
    ready = [_ops_of(graph, r, runtime) for r in graph.regions if r.id and not r.frees_at_once]
    in_order = inside + sum(len(r.ops) for r in graph.regions if r.frees_at_once)
    ready.append(_ops_of(graph, graph.regions[0], runtime) - inside + len(segments))
    pairs, names = sum(n * n for n in ready), _names(graph, segments)
    return UpkeepOf(
        sum(ready) * facts.op_bytes + pairs * facts.pair_bytes + in_order * facts.segment_op_bytes +
        names * facts.name_bytes,
        sum(ready) * facts.op_seconds + pairs * facts.pair_seconds +
        in_order * facts.segment_op_seconds + names * facts.name_seconds)


def _ops_of(graph: Graph, region: Region, runtime: Runtime) -> int:
    """How many ops the executor runs for those of `region`, which has those that it runs in segments."""
    if not runtime.ops_per_release:
        return len(region.ops)
    return sum(
        len(op.results) * runtime.ops_per_release if op.kind == RELEASE else 1
        for op in graph.region_ops(region.id))


def _names(graph: Graph, segments: Segments) -> int:
    """How many names the ops that run `segments` have."""
    known = outside(graph, segments) if segments else frozenset()
    return sum(len(known.intersection(_touched(graph, span))) for span in segments)


def _touched(graph: Graph, span: Tuple[int, int]) -> Iterator[int]:
    for op in graph.regions[0].ops[span[0]:span[1] + 1]:
        yield from (
            graph.values[v].storage for v in (*graph.ops[op].reads(), *graph.ops[op].writes()))
