"""The abstract execution: who may have written last what each cell of memory holds, op by op."""

from __future__ import annotations

from typing import Dict, FrozenSet, Mapping, Set, Tuple

from transpiler.analysis.counters import Counter
from transpiler.errors import VerificationError
from transpiler.ir import FORGET, MEMORY_KINDS, MOVE, RELEASE, SHARE, UNCOPIED, ArrayAccess, Graph, Meaning, Op, Region, RegionKind, ValueKind
from transpiler.ir.boundary import state_of_calls
from transpiler.ir.dtypes import TRUTH
from transpiler.verify import row_sums
from transpiler.verify.claims import Claims
from transpiler.verify.definitions import Cells, Definition, Observations, released, with_shape

_ZERO: FrozenSet[Definition] = frozenset({('filled', 0.0)})


class _Trip(Dict[int, FrozenSet[Definition]]):
    """Cells as a trip finds them, and which of them it has written since."""

    def __init__(self, cells: Cells) -> None:
        super().__init__(cells)
        self.written: Dict[int, None] = {}

    def __setitem__(self, storage: int, definitions: FrozenSet[Definition]) -> None:
        super().__setitem__(storage, definitions)
        self.written[storage] = None

    def update(self, cells: Cells) -> None:
        for storage, definitions in cells.items():
            self[storage] = definitions


class Run:
    """One abstract execution: what each read sees, what each cell holds at the end, who wrote what."""

    def __init__(self, graph: Graph, origins: Mapping[int, int], claims: Claims) -> None:
        self._graph = graph
        self._origins = origins
        self._claims = claims
        self.seen: Observations = {}
        self.shapes_seen: Observations = {}  # by reads that need the shape alone, so it is claimed
        self.found: Observations = {}  # by (op, result): what a kernel goes on with
        self.writers: Dict[int, FrozenSet[Definition]] = {}  # by storage
        self.cells: Cells = {}
        self._left: Dict[int, Cells] = {}  # by region, what its trips so far have left
        self._partners: Dict[int, Set[int]] = {}  # storages that hold one buffer, by SHARE ops
        self._written: Cells = {}  # by op that writes an element of an array: the element
        self._buffers = graph.buffers()
        self._state = state_of_calls(graph)
        self._steps: Dict[Counter, Cells] = {}  # what the loop sees before it counts
        self._region(graph.regions[0], self.cells)

    def held(self, cells: Cells, value: int) -> FrozenSet[Definition]:
        storage = self._graph.values[value].storage
        if storage not in cells:
            owner = self._graph.values[storage]
            return frozenset({('initial', self._claims.stands_for.get(storage, owner.name))})
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
            _observe(self.seen, (origin, 'result', position), self.held(cells, inner))
            if region.kind is RegionKind.BRANCH_GRADIENT and self._hold_one_buffer(inner, outer):
                cells.pop(self._graph.values[outer].storage)  # copied onto itself
            self._may_write(cells, outer, (origin, 'result', position))
        if region.forward >= 0:
            self._leave_scope(region, cells)

    def _leave_scope(self, region: Region, cells: Cells) -> None:
        """With a trip of a gradient, the scope that it worked in is gone: what gradients leave branches by in the next one
        is another variable, with a memory of its own."""
        for storage in self._claims.stands_for:
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
        for counter in self._claims.counters.get(op.id, ()):
            if op.id == counter.counts:
                self._steps[counter] = {
                    s: self.held(cells, s) for s in (counter.storage, *counter.arrays)
                }

    def _after_counting_back(self, op: Op, cells: Cells, covered: Cells) -> None:
        """From here to the end of the trip, the gradient sees the counter, and the arrays' elements at it, as the loop did
        before it counted. `covered` takes what the cells hold for those who come after the trip."""
        for counter in self._claims.counters.get(op.id, ()):
            if op.id == counter.counts_back:
                covered.update((s, self.held(cells, s)) for s in self._steps[counter])
                cells.update(self._steps[counter])

    def _op(self, op: Op, cells: Cells) -> None:
        if op.kind in MEMORY_KINDS:
            self._memory_op(op, cells)
        elif op.id not in self._origins:  # prepares what RELEASE ops need; nothing else reads it
            self._added(op, cells)
        else:
            if op.id in self._claims.reloads.values():
                self._written[op.id] = self._element(op, cells)
            if op.id in self._claims.parts:
                self._add_term(op, cells)
            elif op.id in self._claims.row_sums:
                self._add_rows(op, cells)
            else:
                self._program_op(op, self._origins[op.id], cells)

    def _memory_op(self, op: Op, cells: Cells) -> None:
        """UNCOPIED and KEEP name values and do nothing to them."""
        if op.kind == RELEASE and op.id not in self._claims.idle:
            self._release(op, cells)
        elif op.kind == SHARE:
            self._share(op, cells, ('shared', op.id))
        elif op.kind == MOVE:
            self._move(op, cells)
        elif op.kind == FORGET:
            self._forget(op, cells)

    def _program_op(self, op: Op, origin: int, cells: Cells) -> None:
        """One that stands for the op `origin` of the program: it reads, runs what is nested in it, and writes."""
        if op.facts.boundary:
            self._other_calls(origin, cells)
        scratch, rows = self._scratch_state(op, cells), ()
        unread = self._claims.unread.get(op.id, ())
        for position, value in enumerate(op.operands):
            if value >= 0 and position not in scratch:
                held, rows = row_sums.whole(op, self.held(cells, value))
                if position in unread:
                    _observe(self.shapes_seen, (origin, position), frozenset(map(with_shape, held)))
                else:
                    _observe(self.seen, (origin, position), held)
        for region in map(self._graph.regions.__getitem__, op.regions):
            self._nested(region, cells)
        if op.facts.aliases:
            self._share(op, cells, (origin, 0))
            return
        unchanged = op.left_as_it_is()
        for position, value in enumerate(op.results):
            if value < 0 or position in unchanged:
                continue
            definition = ('scratch', op.id) if position in scratch.values() else (origin, position)
            definition = (*rows, frozenset({definition})) if rows else definition
            if op.regions:  # a region may not run at all, and writes most of the results itself
                self._may_write(cells, value, definition)
            else:
                rest = self.held(cells, value) if self._writes_a_part(op, value) else frozenset()
                self._write(op, position, frozenset({definition}), cells, rest)

    def _other_calls(self, origin: int, cells: Cells) -> None:
        """Between the parts of a program others may write what they have in common with it."""
        for storage in self._state:
            name = self._graph.values[storage].name
            _observe(self.seen, (origin, 'state', name), self.held(cells, storage))
            cells[storage] = frozenset({('call', name)})

    def _writes_a_part(self, op: Op, value: int) -> bool:
        """Whether `value` is an array of which the op may leave elements as they are."""
        is_array = self._graph.values[value].kind is ValueKind.ARRAY
        return is_array and op.facts.array is not ArrayAccess.WRITES_ALL

    def _scratch_state(self, op: Op, cells: Cells) -> Dict[int, int]:
        """State slots (operand, result) of a clone that hold memory of no variable of the old program: the clone carries
        nothing on, and what else it computes does not depend on them."""
        found = {}
        for i, j in op.facts.updates if self._claims.known is not None else ():
            storage = self._graph.values[op.operands[i]].storage
            if (storage == self._graph.values[op.results[j]].storage and
                    self._graph.values[storage].name not in self._claims.known and
                    all(self._is_scratch(d) for d in self.held(cells, op.operands[i]))):
                found[i] = j
        return found

    def _is_scratch(self, definition: Definition) -> bool:
        return definition[0] == 'scratch' or (definition[0] == 'initial' and
                                              definition[1] not in self._claims.known)

    def _add_term(self, op: Op, cells: Cells) -> None:
        """A sum of two that stands for a step of a longer one from left to right. ('partial', sum, n): its first n terms."""
        origin, count = self._origins[op.id], self._claims.parts[op.id]
        total, term = (self.held(cells, v) for v in op.operands)
        done = next(iter(total)) if len(total) == 1 else ()
        number = done[2] if done[:2] == ('partial', origin) else 1
        if number == 1:
            _observe(self.seen, (origin, 0), total)
        _observe(self.seen, (origin, number), term)
        whole = number + 1 == count
        made: Definition = (origin, 0) if whole else ('partial', origin, number + 1)
        self._write(op, 0, frozenset({made}), cells)

    def _add_rows(self, op: Op, cells: Cells) -> None:
        """The same by rows."""
        origin, rows = self._origins[op.id], self._claims.row_sums[op.id]
        total, term, numbers = (self.held(cells, v) for v in op.operands)
        first, part_of, made = row_sums.step(op, origin, rows, total, term, numbers)
        if first:
            _observe(self.seen, (origin, 0), total)
        _observe(self.seen, (origin, 1), part_of)
        self._write(op, 0, frozenset({made}), cells)

    def _write(self,
               op: Op,
               position: int,
               made: FrozenSet[Definition],
               cells: Cells,
               rest: FrozenSet[Definition] = frozenset()) -> None:
        """The result of `op` at `position` is `made` now, or the `rest` that it had before."""
        storage = self._graph.values[op.results[position]].storage
        self._look_at_fresh(op, position, made, cells)
        self._clobber_partners(op, position, cells)
        cells[storage] = made | rest
        self.writers[storage] = self.writers.get(storage, frozenset()) | made

    def _release(self, op: Op, cells: Cells) -> None:
        """The data is gone; what it was tells readers of the shape apart."""
        bare = {op.results[i] for i in op.facts.loses_shape if i < len(op.results)}
        self._check_whole(op)
        for value in op.writes():
            storage = self._graph.values[value].storage
            self._part(storage)
            held = frozenset(released(d) for d in self.held(cells, value))
            cells[storage] = frozenset(('bare', *d) for d in held) if value in bare else held
            self.writers[storage] = self.writers.get(storage, frozenset()) | {('released',)}

    def _check_whole(self, release: Op) -> None:
        """What is named of a buffer is all of it: as long as one slice is held, all of the memory is."""
        named = set(release.writes())
        for whole in {self._graph.values[v].buffer for v in named} - {-1}:
            left = set(self._buffers[whole]) - named
            if left:
                raise VerificationError(
                    f'{self._graph.values[whole].name!r} would be released without its slice '
                    f'{self._graph.values[min(left)].name!r}')

    def _forget(self, op: Op, cells: Cells) -> None:
        """Before anyone has written to them: a runtime that frees dead variables has nothing in them by now either."""
        for value in op.writes():
            storage = self._graph.values[value].storage
            if value not in self._claims.left_over or storage in cells:
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

    def _look_at_fresh(self, op: Op, position: int, made: FrozenSet[Definition],
                       cells: Cells) -> None:
        """Of a kernel that goes on with what it finds, what that is, if the kernel did not leave it there itself, and it is no operand
        that it may work on."""
        storage = self._graph.values[op.results[position]].storage
        names = {storage} | self._partners.get(storage, set())
        if position not in op.facts.fresh or names & self._in_place_storages(op, position):
            return
        found = cells.get(storage, frozenset()) - made - frozenset(map(released, made))
        if found:
            _observe(self.found, (self._origins[op.id], position), found)

    def _in_place_storages(self, op: Op, position: int) -> Set[int]:
        return {
            self._graph.values[op.operands[i]].storage
            for i, j in op.facts.in_place
            if j == position
        }

    def _clobber_partners(self, op: Op, position: int, cells: Cells) -> None:
        storage = self._graph.values[op.results[position]].storage
        operands = {self._graph.values[v].storage for v in op.data_reads()}
        in_place = self._in_place_storages(op, position)
        for partner in self._partners.get(storage, set()) - {storage}:
            if partner in operands and partner not in in_place:
                raise VerificationError(
                    f'{op.kind} (op {op.id}) would overwrite an operand before it has read it')
            held = cells.get(partner, frozenset())
            cells[partner] = frozenset(released(d) for d in held)

    def _element(self, write: Op, cells: Cells) -> FrozenSet[Definition]:
        """What a write_to_array op writes: the operand that belongs to the trip."""
        value = next(v for v in write.operands if self._graph.values[v].region == write.region)
        return self.held(cells, value)

    def _added(self, op: Op, cells: Cells) -> None:
        written = self._claims.reloads.get(op.id)
        made = self._made(op, cells) if written is None else self._written[written]
        for position in range(len(op.results)):
            self._write(op, position, made, cells)

    def _made(self, op: Op, cells: Cells) -> FrozenSet[Definition]:
        """What an added op computes, as far as it is known. ('chosen', mask, operand): the operand where the mask is not zero,
        and 0 elsewhere."""
        unknown = frozenset({('added', op.id)})
        operands = tuple(self.held(cells, v) for v in op.operands)
        if op.facts.fills is not None:
            return frozenset({('filled', op.facts.fills)})
        rows = row_sums.taken(op, operands)
        if rows is not None:
            return rows
        if op.facts.means is Meaning.CONVERTED and self._graph.values[op.results[0]].dtype == TRUTH:
            return frozenset({('nonzero', *operands)})
        if op.facts.means is Meaning.SELECT and operands[2] == _ZERO:
            kind, *masks = next(iter(operands[0])) if len(operands[0]) == 1 else ('several',)
            if kind != 'nonzero':
                return unknown
            return self._chosen(masks[0], operands[1])
        if op.facts.means is Meaning.EQUAL and operands[1] == _ZERO:
            return frozenset({('zero', operands[0])})
        if op.facts.means is Meaning.REPLACED and operands[2] == _ZERO:
            kind, *masks = next(iter(operands[1])) if len(operands[1]) == 1 else ('several',)
            return self._chosen(masks[0], operands[0]) if kind == 'zero' else unknown
        if op.facts.means is Meaning.QUOTIENT:
            found = self._claims.replays.get(('quotient', *operands))
            return unknown if found is None else frozenset({found})
        return unknown

    def _chosen(self, mask: FrozenSet[Definition],
                operand: FrozenSet[Definition]) -> FrozenSet[Definition]:
        chosen = ('chosen', mask, operand)
        return frozenset({self._claims.replays.get(chosen, chosen)})

    def _nested(self, region: Region, cells: Cells) -> None:
        """Merges into `cells` what `region` does in any number of trips that its kind allows.

        Where a loop around it makes it run again, it goes on from what its trips were found to leave before: with that it
        would end anyway, and to begin anew each time takes 2 to the power of the depth.
        """
        is_loop = region.kind.is_loop
        if is_loop and region.id in self._left:
            self._merge(region, self._left[region.id], cells)
        changed = True
        while changed:
            trip = _Trip(cells)
            self._region(region, trip)
            left = self._without_marks(region, trip)
            changed = self._merge(region, left, cells) and is_loop

    def _merge(self, region: Region, trip: Cells, cells: Cells) -> bool:
        """Adds to `cells` what one trip of `region` left; whether that was anything new."""
        changed = False
        left = self._left.setdefault(region.id, {})
        among = trip.written if isinstance(trip, _Trip) else trip
        written = [(s, trip[s]) for s in among if s in trip and cells.get(s) is not trip[s]]
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


def _observe(seen: Observations, read: Tuple, definitions: FrozenSet[Definition]) -> None:
    seen[read] = seen.get(read, frozenset()) | definitions
