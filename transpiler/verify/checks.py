"""What must be true of the rewritten program: its ops, what they write over, what they read, and what is left at the end."""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, Set, Tuple

from transpiler.errors import VerificationError
from transpiler.ir import MEMORY_KINDS, Graph, Op, leaves_out
from transpiler.verify.claims import is_part, unread
from transpiler.verify.definitions import Observations, describe, released, same_shapes
from transpiler.verify.execution import Run
from transpiler.verify.row_sums import is_row_sum


def check_ops(old: Graph, new: Graph, origins: Mapping[int, int]) -> None:
    """Each op is there, with its operator and its region; ordered ones once and in their order."""
    for op in (op for op in new.walk() if op.id in origins and op.kind not in MEMORY_KINDS):
        source = old.ops[origins[op.id]]
        if is_part(source, op) or is_row_sum(source, op):
            _check_step(new, op)
            continue
        if (op.kind, len(op.operands), len(op.results)) != (source.kind, len(source.operands),
                                                            len(source.results)):
            raise VerificationError(
                f'{op.kind} (op {op.id}) is not the {source.kind} it stands for')
        _check_left_out(source, op)
        _check_overlaps(old, source, new, op)
    _check_region_pairs(old, new)
    _check_parts(old, new, origins)
    runs = [origins[op.id] for op in new.walk() if op.id in origins and op.kind not in MEMORY_KINDS]
    if set(runs) != {op.id for op in old.walk() if op.kind not in MEMORY_KINDS}:
        raise VerificationError('an operator was lost or added')
    ordered_before = [
        op.id for op in old.walk() if op.facts.ordered and op.kind not in MEMORY_KINDS
    ]
    ordered_after = [o for o in runs if old.ops[o].facts.ordered]
    if ordered_before != ordered_after:
        raise VerificationError(
            'a random, communicating or otherwise ordered operator was moved or repeated')


def _check_left_out(source: Op, op: Op) -> None:
    """All that is made is made, but where the results can be made one by one."""
    same = all((had < 0) == (has < 0) for had, has in zip(source.results, op.results))
    if not (same or leaves_out(source, op)):
        raise VerificationError(f'{op.kind} (op {op.id}) would not make all results')


def _check_parts(old: Graph, new: Graph, origins: Mapping[int, int]) -> None:
    """In front of a boundary stand the same ops."""
    parts = [_in_front(old, {op.id: op.id for op in old.ops}), _in_front(new, origins)]
    if parts[0] != parts[1]:
        raise VerificationError('an operator crosses the boundary between two parts')


def _in_front(graph: Graph, origins: Mapping[int, int]) -> Set[int]:
    ops = list(graph.region_ops(0))
    ends = [at for at, op in enumerate(ops) if op.facts.boundary]
    return {origins[op.id] for op in ops[:ends[0] if ends else 0] if op.id in origins}


def check_copies(old: Graph, new: Graph, origins: Mapping[int, int]) -> None:
    """No op comes to work in place on what a kernel with a layout of its own reads before it: that kernel reads a copy, of which the
    runtime knows another name, in the same memory."""
    forbidden = set(_read_behind(old, {op.id: op.id for op in old.ops}))
    if not forbidden:
        return
    for taker, reader in _read_behind(new, origins, ahead=True):
        if (taker, reader) in forbidden:
            raise VerificationError(
                f'{old.ops[taker].kind} (op {taker}) might work in place on what '
                f'{old.ops[reader].kind} (op {reader}) has not read yet')


def _read_behind(graph: Graph,
                 origins: Mapping[int, int],
                 ahead: bool = False) -> Iterator[Tuple[int, int]]:
    """Pairs of an op that may work in place on a storage and one behind it, or `ahead` of it, that reads a copy of that."""
    takers: Dict[int, List[int]] = {}
    readers: Dict[int, List[int]] = {}
    for op in (op for op in graph.walk() if op.id in origins):
        reads = {graph.values[v].storage for v in op.reads()} if op.facts.converts else set()
        takes = {
            graph.values[op.operands[i]].storage
            for i, _ in op.facts.in_place
            if op.operands[i] >= 0
        }
        if ahead:
            yield from ((origins[op.id], r) for s in takes for r in readers.get(s, ()))
        else:
            yield from ((t, origins[op.id]) for s in reads for t in takers.get(s, ()))
        for found, storages in ((takers, takes), (readers, reads)):
            for storage in storages:
                found.setdefault(storage, []).append(origins[op.id])


def check_behind(old: Graph, new: Graph, origins: Mapping[int, int]) -> None:
    """Ops stay behind those that they have to, whatever values say."""
    staying = [op for op in old.walk() if op.behind]
    at: Dict[int, List[int]] = {}
    for position, op in enumerate(new.walk() if staying else ()):
        if op.id in origins:
            at.setdefault(origins[op.id], []).append(position)
    for op in staying:
        for other in op.behind:
            if max(at[other]) > min(at[op.id]):
                raise VerificationError(
                    f'{op.kind} (op {op.id}) would run ahead of {old.ops[other].kind} (op {other}), '
                    'which it has to stay behind')


def check_reads(old: Graph, before: Run, after: Run) -> None:
    if before.seen.keys() != after.seen.keys() | after.shapes_seen.keys():
        raise VerificationError('an operator reads more or fewer variables than before')
    _check_shapes_seen(old, before.seen, after.shapes_seen)
    _check_seen(old, before.seen, after.seen)


def check_found(old: Graph, before: Run, after: Run) -> None:
    """A kernel that goes on with what it finds under the name of its result finds what it did."""
    for op, position in before.found.keys() | after.found.keys():
        if before.found.get((op, position)) != after.found.get((op, position)):
            source = old.ops[op]
            raise VerificationError(
                f'{source.kind} (op {op}) would go on with what another left under the name '
                f'{old.values[source.results[position]].name!r}')


def _check_shapes_seen(old: Graph, before: Observations, after: Observations) -> None:
    """Ops that make one result of several: another value of the same shape does as well."""
    for read, definitions in after.items():
        if not (definitions <= before[read] or same_shapes(old, definitions | before[read])):
            op = old.ops[read[0]]
            raise VerificationError(
                f'operand {read[1]} of {op.kind} (op {op.id}) would have the shape of '
                f'{describe(old, definitions)} instead of {describe(old, before[read])}')


def _check_seen(old: Graph, before: Observations, after: Observations) -> None:
    for read, definitions in after.items():
        if definitions == before[read]:
            continue
        op = old.ops[read[0]]
        if read[1] in op.facts.unread and frozenset(
                d[1:] if d[0] == 'bare' else d for d in definitions) == frozenset(
                    map(released, before[read])):
            continue  # the variable is the same, and nobody looks at what it holds
        if read[1] != 'result' and read[1] in op.facts.shape_only and same_shapes(
                old, definitions | before[read]):
            continue
        raise VerificationError(f'operand {read[1]} of {op.kind} (op {op.id}) would read '
                                f'{describe(old, definitions)} instead of '
                                f'{describe(old, before[read])}')


def check_protected(old: Graph, new: Graph, before: Run, after: Run) -> None:
    """Fed, fetched and persistable variables keep their names, their writers and their last contents."""
    by_name = {(v.region, v.name): v for v in new.values}
    for value in old.values:
        if value.region != 0 or not value.known_outside:
            continue
        twin = by_name.get((0, value.name))
        if twin is None:
            raise VerificationError(f'variable {value.name!r} is gone')
        if before.writers.get(value.storage) != after.writers.get(twin.storage):
            raise VerificationError(f'variable {value.name!r} is written by other operators')
        if before.held(before.cells, value.id) != after.held(after.cells, twin.id):
            raise VerificationError(f'variable {value.name!r} ends with another value')


def _check_step(new: Graph, op: Op) -> None:
    """One step of a sum may write over what it adds to, if it bears that, and over nothing else that it reads."""
    total, *others = (_storage(new, v) for v in op.operands)
    result = _storage(new, op.results[0])
    may = (0, 0) in op.facts.in_place and op.facts.same_name
    if result in others or total in others or (result == total and not may):
        raise VerificationError(f'{op.kind} (op {op.id}) would write over what it adds')


def _check_region_pairs(old: Graph, new: Graph) -> None:
    """What a region is handed, and what it hands out, arrives in memory of its own."""
    for before, after in zip(old.regions, new.regions):
        for name in ('arguments', 'results'):
            targets = [_storage(new, pair[1]) for pair in getattr(after, name)]
            had = [_storage(old, pair[1]) for pair in getattr(before, name)]
            if len(targets) - len(set(targets)) > len(had) - len(set(had)):
                raise VerificationError(
                    f'two {name} of {after.label or after.kind.value} would be in one storage')


def _check_overlaps(old: Graph, source: Op, new: Graph, op: Op) -> None:
    """Within one op, two names share a storage only where they did before, or where the registry says so."""
    named = [_storage(new, v) for v in op.operands + op.results if v >= 0]
    if len(set(named)) == len(named):
        return
    for j, result in enumerate(op.results):
        others = [('operand', i, v) for i, v in enumerate(op.operands)]
        others += [('result', i, v) for i, v in enumerate(op.results[:j])]
        for role, i, other in others:
            if min(result, other) < 0 or _storage(new, result) != _storage(new, other):
                continue
            twin = (source.operands if role == 'operand' else source.results)[i]
            if _storage(old, twin) == _storage(old, source.results[j]):
                continue
            for_shape = i in op.facts.shape_only or i in unread(source, op)
            if role == 'operand' and for_shape and _alike(old, source.results[j], twin):
                continue
            one = (i, j) in op.facts.in_place and op.facts.same_name and _alike(
                old, source.results[j], twin)
            # Who reads the old shape behind it is looked at where it is read.
            in_other_dims = (i, j) in op.facts.in_place and op.facts.same_bytes and _of_one_type(
                old, source.results[j], twin)
            may = role == 'operand' and ((i, j) in op.facts.onto or one or in_other_dims)
            if not may or named.count(_storage(new, result)) > 2:
                raise VerificationError(
                    f'{op.kind} (op {op.id}) would write {new.values[result].name!r} over its '
                    f'{role} {i}, which it is not known to bear')


def _alike(graph: Graph, a: int, b: int) -> bool:
    extent = graph.values[a].extent
    return extent is not None and extent == graph.values[b].extent and _of_one_type(graph, a, b)


def _of_one_type(graph: Graph, a: int, b: int) -> bool:
    x, y = graph.values[a], graph.values[b]
    return (x.dtype, x.lod_level) == (y.dtype, y.lod_level)


def _storage(graph: Graph, value: int) -> int:
    return graph.values[value].storage
