"""Translation validation: is the rewritten program equal to the original?

Every read of the new program must see the definitions that it saw in the old one. Both programs are run
abstractly, in program order: a cell of memory (a storage) holds the set of definitions that may have
written it last. A definition is (origin op, result position), so clones and renamed values compare equal to
what they stand for. Loops run to a fixed point, branches merge.

Program order is enough: the executor orders any two ops that touch one name when one of them writes it
(read-after-write, write-after-read, write-after-write), so each order that it may choose gives every read
the definition that program order gives it.

Nothing here is shared with the passes but `ir`, and what `analysis` knows of counters, of arrays, and of what no op has written
before it is read.
"""

from __future__ import annotations

from collections import Counter as Tally
from types import MappingProxyType
from typing import Dict, FrozenSet, Hashable, List, Mapping, Optional, Set, Tuple

from transpiler.analysis.counters import Counter, mirrored_counters
from transpiler.analysis.handed_on import handed_on_arrays
from transpiler.analysis.leftovers import left_by_earlier_runs
from transpiler.analysis.positions import Positions
from transpiler.analysis.reloads import reloaded, reloads
from transpiler.errors import VerificationError
from transpiler.ir import FORGET, MEMORY_KINDS, MOVE, RELEASE, SHARE, UNCOPIED, ArrayAccess, Graph, Meaning, Op, Region, RegionKind, Value, ValueKind
from transpiler.ir.dtypes import TRUTH

Definition = Tuple[Hashable, ...]
Cells = Dict[int, FrozenSet[Definition]]  # storage -> definitions that may be in it
Observations = Dict[Tuple, FrozenSet[Definition]]  # (origin op, operand position) -> what it sees

_LOOPS = (RegionKind.LOOP, RegionKind.LOOP_GRADIENT)


def verify(old: Graph, new: Graph, origins: Mapping[int, int]) -> None:
    """Raises VerificationError unless `new` is proved to compute what `old` does.

    Args:
        old: the program as the user built it.
        new: the rewritten one; its storages, not its names, say who shares memory.
        origins: op of `old` for each op of `new`.
    """
    _check_ops(old, new, origins)
    before = _Run(old, {op.id: op.id for op in old.ops})
    after = _Run(new, origins, frozenset(v.name for v in old.values), _parts(old, new, origins),
                 _replays(old, before.seen))
    _check_reads(old, before.seen, after.seen)
    _check_protected(old, new, before, after)


class _Run:
    """One abstract execution: what each read sees, what each cell holds at the end, who wrote what."""

    def __init__(
        self,
        graph: Graph,
        origins: Mapping[int, int],
        known: Optional[FrozenSet[str]] = None,
        parts: Mapping[int, int] = MappingProxyType({}),
        replays: Mapping[Definition, Definition] = MappingProxyType({})
    ) -> None:
        self._graph = graph
        self._origins = origins
        self._parts = parts  # terms of the whole sum, by op that adds one of them
        self._replays = replays  # by what makes it again: what it is
        self._known = known  # names of the old program; None while that is the one that runs
        self.seen: Observations = {}
        self.writers: Dict[int, FrozenSet[Definition]] = {}  # by storage
        self.cells: Cells = {}
        self._left: Dict[int, Cells] = {}  # by region, what its trips so far have left
        self._partners: Dict[int, Set[int]] = {}  # storages that hold one buffer, by SHARE ops
        counters = [c for region in graph.regions for c in mirrored_counters(graph, region)]
        self._counters: Dict[int, List[Counter]] = {}  # by op that counts, either way
        for counter in counters:
            self._counters.setdefault(counter.counts, []).append(counter)
            self._counters.setdefault(counter.counts_back, []).append(counter)
        # RELEASE ops of elements that nobody reads again
        self._idle: Set[int] = {
            op for region in graph.regions for array in handed_on_arrays(graph, region)
            for op in array.emptied
        }
        self._written: Cells = {}  # by op that writes an element of an array: the element
        self._stands_for = {} if known is None else _ways_out(graph, known)
        self._reloads = _reloads(graph, origins)  # that op, by added op that reads the element
        self._left_over = {v for left in left_by_earlier_runs(graph).values() for v in left}
        self._steps: Dict[Counter, Cells] = {}  # what the loop sees before it counts
        self._region(graph.regions[0], self.cells)

    def held(self, cells: Cells, value: int) -> FrozenSet[Definition]:
        storage = self._graph.values[value].storage
        if storage not in cells:
            owner = self._graph.values[storage]
            return frozenset({('initial', self._stands_for.get(storage, owner.name))})
        return cells[storage]

    def _region(self, region: Region, cells: Cells) -> None:
        if region.kind is RegionKind.LOOP_GRADIENT:
            self._mark_final(region, cells)
        for outer, inner in region.arguments:
            cells[self._graph.values[inner].storage] = self.held(cells, outer)
        covered: Cells = {}
        for op in self._graph.region_ops(region.id):
            self._before_counting(op, cells)
            self._op(op, cells)
            self._after_counting_back(op, cells, covered)
        cells.update(covered)
        for position, (inner, outer) in enumerate(region.results):
            origin = self._origins[region.op]
            self._observe((origin, 'result', position), self.held(cells, inner))
            if region.kind is RegionKind.BRANCH_GRADIENT and self._hold_one_buffer(inner, outer):
                cells.pop(self._graph.values[outer].storage)  # copied onto itself
            self._may_write(cells, outer, (origin, 'result', position))
        if region.forward >= 0:
            self._leave_scope(region, cells)

    def _leave_scope(self, region: Region, cells: Cells) -> None:
        """With a trip of a gradient, the scope that it worked in is gone: what gradients leave branches by in the next one
        is another variable, with a memory of its own."""
        for storage in self._stands_for:
            if self._graph.values[storage].region == region.id:
                self._part(storage)
                cells.pop(storage, None)

    def _hold_one_buffer(self, a: int, b: int) -> bool:
        first, second = (self._graph.values[v].storage for v in (a, b))
        return first != second and second in self._partners.get(first, ())

    def _mark_final(self, region: Region, cells: Cells) -> None:
        """What a loop writes outside its own scope has, when its gradient runs, the value of the last trip: each
        trip's gradient may only read the copy that its trip made."""
        forward = region.forward
        if forward < 0:
            return
        label = self._origins[self._graph.regions[forward].op]
        for op in (op for op in self._graph.walk(forward) if op.kind != UNCOPIED):
            for value in op.writes():
                owner = self._graph.values[self._graph.values[value].storage]
                if owner.region < forward and owner.storage in cells:
                    cells[owner.storage] = frozenset(d if d[0] == 'final' else ('final', label, *d)
                                                     for d in cells[owner.storage])

    def _before_counting(self, op: Op, cells: Cells) -> None:
        for counter in self._counters.get(op.id, ()):
            if op.id == counter.counts:
                self._steps[counter] = {
                    s: self.held(cells, s) for s in (counter.storage, *counter.arrays)
                }

    def _after_counting_back(self, op: Op, cells: Cells, covered: Cells) -> None:
        """From here to the end of the trip, the gradient sees the counter, and the arrays' elements at it, as the loop did
        before it counted. `covered` takes what the cells hold for those who come after the trip."""
        for counter in self._counters.get(op.id, ()):
            if op.id == counter.counts_back:
                covered.update((s, self.held(cells, s)) for s in self._steps[counter])
                cells.update(self._steps[counter])

    def _op(self, op: Op, cells: Cells) -> None:
        if op.kind == RELEASE:
            if op.id not in self._idle:
                self._release(op, cells)
            return
        if op.kind == SHARE:
            self._share(op, cells, ('shared', op.id))
            return
        if op.kind == MOVE:
            self._move(op, cells)
            return
        if op.kind == FORGET:
            self._forget(op, cells)
            return
        if op.kind == UNCOPIED:
            return  # names a value and does nothing to it
        if op.id not in self._origins:  # prepares what RELEASE ops need; nothing else reads it
            self._added(op, cells)
            return
        if op.id in self._reloads.values():
            self._written[op.id] = self._element(op, cells)
        origin = self._origins[op.id]
        if op.id in self._parts:
            self._add_term(op, cells)
            return
        scratch = self._scratch_state(op, cells)
        for position, value in enumerate(op.operands):
            if value >= 0 and position not in scratch:
                self._observe((origin, position), self.held(cells, value))
        for region in map(self._graph.regions.__getitem__, op.regions):
            self._nested(region, cells)
        if op.facts.aliases:
            self._share(op, cells, (origin, 0))
            return
        for position, value in enumerate(op.results):
            if value < 0:
                continue
            definition = ('scratch', op.id) if position in scratch.values() else (origin, position)
            if op.regions:  # a region may not run at all, and writes most of the results itself
                self._may_write(cells, value, definition)
            else:
                storage = self._graph.values[value].storage
                self._clobber_partners(op, position, cells)
                rest = self.held(cells, value) if self._writes_a_part(op, value) else frozenset()
                cells[storage] = rest | {definition}
                self.writers[storage] = self.writers.get(storage, frozenset()) | {definition}

    def _writes_a_part(self, op: Op, value: int) -> bool:
        """Whether `value` is an array of which the op may leave elements as they are."""
        is_array = self._graph.values[value].kind is ValueKind.ARRAY
        return is_array and op.facts.array is not ArrayAccess.WRITES_ALL

    def _scratch_state(self, op: Op, cells: Cells) -> Dict[int, int]:
        """State slots (operand, result) of a clone that hold memory of no variable of the old program: the clone carries
        nothing on, and what else it computes does not depend on them."""
        found = {}
        for i, j in op.facts.updates if self._known is not None else ():
            storage = self._graph.values[op.operands[i]].storage
            if (storage == self._graph.values[op.results[j]].storage and
                    self._graph.values[storage].name not in self._known and
                    all(self._is_scratch(d) for d in self.held(cells, op.operands[i]))):
                found[i] = j
        return found

    def _is_scratch(self, definition: Definition) -> bool:
        return definition[0] == 'scratch' or (definition[0] == 'initial' and
                                              definition[1] not in self._known)

    def _add_term(self, op: Op, cells: Cells) -> None:
        """A sum of two that stands for a step of a longer one from left to right. ('partial', sum, n): its first n terms."""
        origin, count = self._origins[op.id], self._parts[op.id]
        total, term = (self.held(cells, v) for v in op.operands)
        done = next(iter(total)) if len(total) == 1 else ()
        number = done[2] if done[:2] == ('partial', origin) else 1
        if number == 1:
            self._observe((origin, 0), total)
        self._observe((origin, number), term)
        whole = number + 1 == count
        definition = (origin, 0) if whole else ('partial', origin, number + 1)
        storage = self._graph.values[op.results[0]].storage
        self._clobber_partners(op, 0, cells)
        cells[storage] = frozenset({definition})
        self.writers[storage] = self.writers.get(storage, frozenset()) | {definition}

    def _release(self, op: Op, cells: Cells) -> None:
        """The data is gone; what it was tells readers of the shape apart."""
        bare = {op.results[i] for i in op.facts.loses_shape if i < len(op.results)}
        for value in op.writes():
            storage = self._graph.values[value].storage
            self._part(storage)
            held = frozenset(_released(d) for d in self.held(cells, value))
            cells[storage] = frozenset(('bare', *d) for d in held) if value in bare else held
            self.writers[storage] = self.writers.get(storage, frozenset()) | {('released',)}

    def _forget(self, op: Op, cells: Cells) -> None:
        """Before anyone has written to them: a runtime that frees dead variables has nothing in them by now either."""
        for value in op.writes():
            storage = self._graph.values[value].storage
            if value not in self._left_over or storage in cells:
                raise VerificationError(
                    f'{self._graph.values[value].name!r} would be emptied, and is no gradient that nobody has written'
                )
            self._part(storage)

    def _share(self, op: Op, cells: Cells, definition: Definition) -> None:
        """The result holds the operand's buffer: a later write to either is one to both."""
        for source, target in zip(op.operands, op.results):
            giver, taker = (self._graph.values[v].storage for v in (source, target))
            self._part(taker)
            group = self._partners.setdefault(giver, {giver})
            group.add(taker)
            self._partners[taker] = group
            cells[taker] = frozenset({definition})
            self.writers[taker] = self.writers.get(taker, frozenset()) | {definition}

    def _move(self, op: Op, cells: Cells) -> None:
        """As SHARE, and the contents count as handed on."""
        held = [self.held(cells, value) for value in op.operands]
        self._share(op, cells, ('moved', op.id))
        for value, definitions in zip(op.results, held):
            cells[self._graph.values[value].storage] = definitions

    def _part(self, storage: int) -> None:
        self._partners.pop(storage, set()).discard(storage)

    def _clobber_partners(self, op: Op, position: int, cells: Cells) -> None:
        storage = self._graph.values[op.results[position]].storage
        operands = {self._graph.values[v].storage for v in op.data_reads()}
        in_place = {
            self._graph.values[op.operands[i]].storage
            for i, j in op.facts.in_place
            if j == position
        }
        for partner in self._partners.get(storage, set()) - {storage}:
            if partner in operands and partner not in in_place:
                raise VerificationError(
                    f'{op.kind} (op {op.id}) would overwrite an operand before it has read it')
            held = cells.get(partner, frozenset())
            cells[partner] = frozenset(_released(d) for d in held)

    def _element(self, write: Op, cells: Cells) -> FrozenSet[Definition]:
        """What a write_to_array op writes: the operand that belongs to the trip."""
        value = next(v for v in write.operands if self._graph.values[v].region == write.region)
        return self.held(cells, value)

    def _added(self, op: Op, cells: Cells) -> None:
        written = self._reloads.get(op.id)
        made = self._made(op, cells) if written is None else self._written[written]
        for position, value in enumerate(op.results):
            storage = self._graph.values[value].storage
            self._clobber_partners(op, position, cells)
            cells[storage] = made
            self.writers[storage] = self.writers.get(storage, frozenset()) | made

    def _made(self, op: Op, cells: Cells) -> FrozenSet[Definition]:
        """What an added op computes, as far as it is known. ('chosen', mask, operand): the operand where the mask is not zero,
        and 0 elsewhere."""
        unknown = frozenset({('added', op.id)})
        operands = [self.held(cells, v) for v in op.operands]
        if op.facts.fills is not None:
            return frozenset({('filled', op.facts.fills)})
        if op.facts.means is Meaning.CONVERTED and self._graph.values[op.results[0]].dtype == TRUTH:
            return frozenset({('nonzero', *operands)})
        if op.facts.means is Meaning.SELECT and operands[2] == frozenset({('filled', 0.0)}):
            kind, *masks = next(iter(operands[0])) if len(operands[0]) == 1 else ('several',)
            if kind != 'nonzero':
                return unknown
            chosen = ('chosen', masks[0], operands[1])
            return frozenset({self._replays.get(chosen, chosen)})
        if op.facts.means is Meaning.QUOTIENT:
            found = self._replays.get(('quotient', *operands))
            return unknown if found is None else frozenset({found})
        return unknown

    def _nested(self, region: Region, cells: Cells) -> None:
        """Merges into `cells` what `region` does in any number of trips that its kind allows.

        Where a loop around it makes it run again, it goes on from what its trips were found to leave before: with that it
        would end anyway, and to begin anew each time takes 2 to the power of the depth.
        """
        is_loop = region.kind in _LOOPS
        if is_loop and region.id in self._left:
            self._merge(region, self._left[region.id], cells)
        changed = True
        while changed:
            trip = dict(cells)
            self._region(region, trip)
            left = self._without_marks(region, trip)
            changed = self._merge(region, left, cells) and is_loop

    def _merge(self, region: Region, trip: Cells, cells: Cells) -> bool:
        """Adds to `cells` what one trip of `region` left; whether that was anything new."""
        changed = False
        left = self._left.setdefault(region.id, {})
        written = [(s, d) for s, d in trip.items() if cells.get(s) is not d]
        for storage, definitions in written:
            before = cells.get(storage)
            if before is None:
                owner = self._graph.values[storage]
                is_local = owner.region >= region.id
                before = frozenset() if is_local else self.held(cells, storage)
            changed = changed or not definitions <= before
            cells[storage] = before | definitions
            left[storage] = left.get(storage, frozenset()) | definitions
        return changed

    def _without_marks(self, region: Region, cells: Cells) -> Cells:
        """What is the value of the last trip is just the value to those who come after the gradient."""
        if region.kind is not RegionKind.LOOP_GRADIENT or region.forward < 0:
            return cells
        mark = ('final', self._origins[self._graph.regions[region.forward].op])
        marked = {s: d for s, d in cells.items() if any(each[:2] == mark for each in d)}
        return {
            **cells,
            **{
                storage: frozenset(d[2:] if d[:2] == mark else d for d in definitions) for storage, definitions in marked.items(
                )
            }
        }

    def _may_write(self, cells: Cells, value: int, definition: Definition) -> None:
        storage = self._graph.values[value].storage
        cells[storage] = self.held(cells, value) | {definition}
        self.writers[storage] = self.writers.get(storage, frozenset()) | {definition}

    def _observe(self, read: Tuple, definitions: FrozenSet[Definition]) -> None:
        self.seen[read] = self.seen.get(read, frozenset()) | definitions


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


def _check_ops(old: Graph, new: Graph, origins: Mapping[int, int]) -> None:
    """Each op is there, with its operator and its region; ordered ones once and in their order."""
    for op in (op for op in new.walk() if op.id in origins and op.kind not in MEMORY_KINDS):
        source = old.ops[origins[op.id]]
        if _is_part(source, op):
            _check_part(new, op)
            continue
        if (op.kind, len(op.operands), len(op.results)) != (source.kind, len(source.operands),
                                                            len(source.results)):
            raise VerificationError(
                f'{op.kind} (op {op.id}) is not the {source.kind} it stands for')
        _check_overlaps(old, source, new, op)
    _check_region_pairs(old, new)
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


def _parts(old: Graph, new: Graph, origins: Mapping[int, int]) -> Dict[int, int]:
    """Terms of the sum of `old`, by op of `new` that does one step of it."""
    ops = (op for op in new.ops if op.id in origins and _is_part(old.ops[origins[op.id]], op))
    return {op.id: len(old.ops[origins[op.id]].operands) for op in ops}


def _is_part(source: Op, op: Op) -> bool:
    return (source.facts.left_fold and op.facts.left_fold and op.kind == source.kind and
            2 == len(op.operands) < len(source.operands) and
            len(op.results) == len(source.results) == 1 and min(op.operands + op.results) >= 0)


def _check_part(new: Graph, op: Op) -> None:
    """One step of a sum writes to memory that it does not read, or bears to."""
    total, term, result = (_storage(new, v) for v in op.operands + op.results)
    may = (0, 0) in op.facts.in_place and op.facts.same_name
    if result == term or total == term or (result == total and not may):
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
    for j, result in enumerate(op.results):
        others = [('operand', i, v) for i, v in enumerate(op.operands)]
        others += [('result', i, v) for i, v in enumerate(op.results[:j])]
        for role, i, other in others:
            if min(result, other) < 0 or _storage(new, result) != _storage(new, other):
                continue
            twin = (source.operands if role == 'operand' else source.results)[i]
            if _storage(old, twin) == _storage(old, source.results[j]):
                continue
            if role == 'operand' and i in op.facts.shape_only and _alike(
                    old, source.results[j], twin):
                continue
            may = role == 'operand' and (i, j) in op.facts.in_place and op.facts.same_name
            named = [_storage(new, v) for v in op.operands + op.results if v >= 0]
            if not may or named.count(_storage(new, result)) > 2:
                raise VerificationError(
                    f'{op.kind} (op {op.id}) would write {new.values[result].name!r} over its '
                    f'{role} {i}, which it is not known to bear')


def _alike(graph: Graph, a: int, b: int) -> bool:
    x, y = graph.values[a], graph.values[b]
    return x.shape is not None and (x.shape, x.dtype, x.lod_level) == (y.shape, y.dtype,
                                                                       y.lod_level)


def _storage(graph: Graph, value: int) -> int:
    return graph.values[value].storage


def _check_reads(old: Graph, before: Observations, after: Observations) -> None:
    if before.keys() != after.keys():
        raise VerificationError('an operator reads more or fewer variables than before')
    for read, definitions in after.items():
        if definitions == before[read]:
            continue
        op = old.ops[read[0]]
        if read[1] in op.facts.unread and frozenset(
                d[1:] if d[0] == 'bare' else d for d in definitions) == frozenset(
                    map(_released, before[read])):
            continue  # the variable is the same, and nobody looks at what it holds
        if read[1] != 'result' and read[1] in op.facts.shape_only and _same_shapes(
                old, definitions | before[read]):
            continue
        raise VerificationError(f'operand {read[1]} of {op.kind} (op {op.id}) would read '
                                f'{_describe(old, definitions)} instead of '
                                f'{_describe(old, before[read])}')


def _same_shapes(old: Graph, definitions: FrozenSet[Definition]) -> bool:
    """Whether a reader of the shape alone can't tell these definitions apart."""
    looks = set()
    for definition in definitions:
        value = _defined_value(old, definition)
        if value is None or value.shape is None:
            return False
        looks.add((value.shape, value.dtype, value.lod_level))
    return len(looks) == 1


def _defined_value(old: Graph, definition: Definition) -> Optional[Value]:
    if definition[0] == 'released':
        return _defined_value(old, definition[1:])
    if definition[0] == 'final':
        return _defined_value(old, definition[2:])
    if definition[0] == 'initial':
        named = [v for v in old.values if v.name == definition[1]]
        return named[0] if len({v.shape for v in named}) == 1 else None
    if definition[0] == 'partial':  # as large as the whole sum
        return old.values[old.ops[definition[1]].results[0]]
    if not isinstance(definition[0], int):
        return None
    if definition[1] != 'result':
        return old.values[old.ops[definition[0]].results[definition[1]]]
    region = next(r for r in old.regions if r.op == definition[0] and r.results)
    return old.values[region.results[definition[2]][1]]


def _check_protected(old: Graph, new: Graph, before: _Run, after: _Run) -> None:
    """Fed, fetched and persistable variables keep their names, their writers and their last contents."""
    by_name = {(v.region, v.name): v for v in new.values}
    for value in old.values:
        if value.region != 0 or not (value.fed or value.fetched or value.persistable):
            continue
        twin = by_name.get((0, value.name))
        if twin is None:
            raise VerificationError(f'variable {value.name!r} is gone')
        if before.writers.get(value.storage) != after.writers.get(twin.storage):
            raise VerificationError(f'variable {value.name!r} is written by other operators')
        if before.held(before.cells, value.id) != after.held(after.cells, twin.id):
            raise VerificationError(f'variable {value.name!r} ends with another value')


def _released(definition: Definition) -> Definition:
    return definition if definition[0] in ('released', 'bare') else ('released', *definition)


def _describe(old: Graph, definitions: FrozenSet[Definition]) -> str:
    names: List[str] = []
    for definition in sorted(definitions, key=repr):
        if definition[0] == 'initial':
            names.append(f'the initial {definition[1]!r}')
        elif not isinstance(definition[0], int):
            names.append(f'memory that was {definition[0]}')
        elif definition[1] == 'result':
            names.append(f'what the region of op {definition[0]} hands out')
        else:
            op = old.ops[definition[0]]
            names.append(
                f'{old.values[op.results[definition[1]]].name!r} of {op.kind} (op {op.id})')
    return ', '.join(names) or 'nothing'
