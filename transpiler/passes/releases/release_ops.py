"""Where RELEASE, SHARE and FORGET ops come into a region, and what a region may release."""

from __future__ import annotations

from typing import Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from transpiler.analysis.in_place import hands_on
from transpiler.analysis.lifetimes import Lifetimes
from transpiler.analysis.positions import Span
from transpiler.ir import RELEASE, SHARE, Graph, Op, OpFacts, Region, ValueKind
from transpiler.ir.extents import has_one_extent
from transpiler.runtime import Can, Runtime

Pairs = List[Tuple[int, int]]
START = -1  # the position before the first op
# One for all: a report keeps them, and each would keep a piece of the heap.
_FACTS = OpFacts(side_effect=True)


def write_releases(graph: Graph,
                   region: Region,
                   released: Mapping[int, Iterable[Sequence[int]]],
                   shared: Mapping[int, Pairs],
                   guarded: bool = False) -> None:
    """Adds ops to `region`.

    Args:
        released: the values of each RELEASE op that comes after a position of `region`, or at its START; with a buffer go all
            slices of it.
        shared: (operand, result) pairs of the SHARE op that comes before an op, by its id.
        guarded: what the next op reads becomes operands of the RELEASE: they order the two, so that an executor that starts
            ops as soon as they are ready does not allocate before it has let go.
    """
    if not (released or any(shared.get(op) for op in region.ops)):
        return
    named = _by_type(graph, released)
    old_ops, region.ops = region.ops, []
    for at, op in enumerate([None, *old_ops], START):
        if op is not None:
            if shared.get(op):
                operands, results = zip(*shared[op])
                add_op(graph, region.id, SHARE, operands, results)
            region.ops.append(op)
        for values in named.get(at, ()):
            following = graph.ops[old_ops[at + 1]] if at + 1 < len(old_ops) else None
            guards = _guards(graph, following, values) if guarded else ()
            add_op(graph, region.id, RELEASE, guards, tuple(values))


def _by_type(graph: Graph,
             released: Mapping[int, Iterable[Sequence[int]]]) -> Dict[int, List[List[int]]]:
    """By position: the values of each RELEASE op, which leaves all with one type."""
    buffers = graph.buffers() if released else {}
    named = {
        at: [[each for v in mortal for each in buffers.get(v, (v,))] for mortal in groups]
        for at, groups in released.items()
    }
    types = (
        len({graph.values[v].dtype for v in values}) for each in named.values() for values in each)
    if max(types, default=0) < 2:
        return named
    shaped = graph.shapes_read()  # looks at all ops: only where there are two types
    return {
        at: [each for values in groups for each in _of_one_type(graph, shaped, values)]
        for at, groups in named.items()
    }


def _of_one_type(graph: Graph, shaped: FrozenSet[int], values: List[int]) -> Iterator[List[int]]:
    """`values` by what one RELEASE op may name: those whose shape somebody reads, and with it the type, have its type already."""
    found: Dict[str, List[int]] = {}
    for v in values:
        if graph.values[v].storage in shaped:
            found.setdefault(graph.values[v].dtype, []).append(v)
    if len(found) < 2:
        yield values
        return
    first, *rest = found.values()
    yield [*first, *(v for v in values if graph.values[v].storage not in shaped)]
    yield from rest


def add_op(graph: Graph, region: int, kind: str, operands: Tuple[int, ...],
           results: Tuple[int, ...]) -> None:
    """Appends a RELEASE, SHARE or FORGET op to `region`."""
    graph.new_op(kind, region, operands=operands, results=results, facts=_FACTS, origin=None)


def in_place_by_op(graph: Graph, lifetimes: Lifetimes, inner: bool = False) -> Dict[int, Pairs]:
    """(operand, result) pairs by op of the main region, or of the inner ones, wherever `lifetimes` say that an executor
    would share a buffer by itself, and both values are of the op's region."""
    pairs: Dict[int, Pairs] = {}
    for op, source, target in lifetimes.shared:
        facts = graph.ops[op]
        if hands_on(facts) or bool(facts.region) != inner:
            continue
        named = {graph.values[v].storage: v for v in facts.reads()}[source]
        written = {graph.values[v].storage: v for v in facts.writes()}[target]
        if all(graph.values[v].region == facts.region for v in (named, written)):
            pairs.setdefault(op, []).append((named, written))
    return pairs


def unreleasable(graph: Graph, lifetimes: Lifetimes) -> FrozenSet[int]:
    """Storages that this runtime cannot be asked to release: of shapes that would be lost, those that share an allocation with
    such, or which an op hands on in a way that the program has no words for; and what a loop begins with and then lets go of by
    itself, which a release behind the loop would keep."""
    lost = {
        graph.values[v].storage for op in graph.walk() if op.regions for v in op.given_in_place()
    }
    # Of the main region, releases wait for those that read it.
    lost.update(
        v.storage for v in graph.values if v.region and v.storage in lifetimes.shape_read_until)
    may = handing_on(graph, lifetimes.runtime)
    for op, source, target in lifetimes.shared:
        if not may(graph.ops[op], source):
            lost.update((source, target))
    return frozenset(lost).union(s for each in lifetimes.by_region.values() for l in each.values()
                                 if not lost.isdisjoint(l.storages) for s in l.storages)


def handing_on(graph: Graph, runtime: Runtime) -> Callable[[Op, int], bool]:
    """Says whether a SHARE op may stand before one that works in place on a storage, or does: for two variables, or if one will do
    for one. That has no memory but its own: what goes into loops and branches, or comes out, may be there under other names."""
    if Can.SHARE in runtime.can:
        return lambda op, storage: True
    if Can.UNITE not in runtime.can:
        return lambda op, storage: op.kind == SHARE
    passed = {v for op in graph.walk() if op.regions for v in op.reads() + op.writes()}
    passed.update(inner for region in graph.regions for _, inner in region.arguments)
    passed.update(v for region in graph.regions[1:] for v in graph.ops[region.ops[-1]].reads())
    storages = {graph.values[v].storage for v in passed}
    shaped = _shapes_read_on(graph)

    def may(op: Op, storage: int) -> bool:
        one = op.facts.same_name and has_one_extent(graph, op)
        in_other_dims = op.facts.same_bytes and storage not in shaped
        return op.kind == SHARE or storage not in storages and (one or in_other_dims)

    return may


def _shapes_read_on(graph: Graph) -> FrozenSet[int]:
    """Storages of which somebody reads the shape, and those that may have their memory in turn: in one variable with what has other dims
    the shape would be lost."""
    found = set(graph.shapes_read())
    for op in graph.walk():
        for i, j in op.facts.in_place:
            source, target = op.operands[i], op.results[j]
            if min(source, target) >= 0 and graph.values[source].storage in found:
                found.add(graph.values[target].storage)
    return frozenset(found)


def last_uses(graph: Graph,
              region: int,
              found: Mapping[int, Span],
              alone: Mapping[int, str],
              shapes_stay: bool = True) -> Dict[int, List[int]]:
    """Values to release by position: the last tenant of each storage of `region`. `found`: spans of its values at least.
    `shapes_stay`: who reads the shape alone may do so behind a release."""
    end = len(graph.regions[region].ops)
    last: Dict[int, Tuple[int, int, int]] = {}
    for value in map(graph.values.__getitem__, sorted(found)):
        if value.region != region:
            continue
        span = found[value.id]
        end_of_use = span.last if shapes_stay else max(span.last, span.shape_last)
        use = (end if value.id in alone else end_of_use, span.first, value.id)
        last[value.storage] = max(last.get(value.storage, use), use)
    dying: Dict[int, List[int]] = {}
    for at, _, value in last.values():
        if at < end:
            dying.setdefault(at, []).append(value)
    return dying


def _guards(graph: Graph, following: Optional[Op], dying: Sequence[int]) -> Tuple[int, ...]:
    """What the next op reads: named by a RELEASE op, it orders the two."""
    if following is None:
        return ()
    storages = {graph.values[v].storage for v in dying}
    return tuple(v for v in following.data_reads() if graph.values[v].kind is ValueKind.DENSE and
                 not graph.values[v].persistable and graph.values[v].storage not in storages)
