"""Writes the order and the clones of a graph into the program that it was imported from: wholly, or not at all.

Ops that were there stay the objects that they are, so that values which a caller holds remain what they were. Of a block that
keeps values for its gradient, what the gradient takes for nobody is replaced by one number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import paddle
from paddle import _C_ops, pir, static
from paddle.base.core import CPUPlace
from paddle.base.libpaddle import pir as bindings

from transpiler.backends.paddle3.aliases import in_place_results
from transpiler.backends.paddle3.blocks import YIELD, Link
from transpiler.backends.paddle3.brief_stacks import brief_stacks
from transpiler.backends.paddle3.importer import Handle, ImportedProgram
from transpiler.backends.paddle3.naming import COMBINE, taken_out
from transpiler.backends.paddle3.marks import mark, unmark
from transpiler.backends.paddle3.releases import number, released, united
from transpiler.backends.paddle3.replaying import KINDS, said
from transpiler.errors import VerificationError
from transpiler.ir import FILL, KEEP, RELEASE, SHARE, Graph, Op

# What Operation.clone takes along: no blocks, operands, and no successors.
_ALONE = (False, True, False)


@dataclass
class Emitted:
    """Of a program that was written, by ids of its ops.

    Attributes:
        origins: the op of the graph that each one stands for, of those that were added.
        spare: ops that make what stands in for state.
        added: ops that stand for none of the graph that was read.
    """

    origins: Dict[int, int] = field(default_factory=dict)
    spare: Set[int] = field(default_factory=set)
    added: Set[int] = field(default_factory=set)


def printed(program: Any) -> str:
    """As Paddle prints it, without the numbers of ops, which it adds if FLAGS_print_ir is set."""
    return re.sub(r' \[id:\d+\]', '', str(program))


@brief_stacks()
def emit(imported: ImportedProgram, graph: Graph, expected: str = '') -> Emitted:
    """Changes the program of `imported` to `graph`; `expected` is what it has to be then, as `printed`.

    Raises:
        VerificationError: it cannot be said in PIR, or is not what was expected. The program is as it was.
    """
    emitter = _Emitter(imported, graph)
    try:
        done = emitter.run()
        if expected and printed(imported.program) != expected:
            raise VerificationError(
                'the program became another one than its copy, which was proved equal')
        return done
    except BaseException:  # an interrupt, too
        emitter.undo()
        raise


class _Emitter:

    def __init__(self, imported: ImportedProgram, graph: Graph) -> None:
        self._old, self._graph, self._handles = imported.graph, graph, imported.handles
        self._program, self._blocks = imported.program, imported.blocks
        self._declarations, self._links = imported.declarations, imported.links
        self._popped, self._copied = imported.popped, imported.copied
        # What values are called where the program is being written: by those that wrote them last.
        self._value = dict(imported.values)
        self._values_at = {0: self._value}  # by region, where the op stands that runs it
        self._crossing = _read_behind(imported)
        self._block: Any = None  # the one that is being written, and the region that it is
        self._region = 0
        self._before = {region: list(block.ops) for region, block in imported.blocks.items()}
        self._is_cut = imported.cut is not None
        self._undo: List[Callable[[], Any]] = []
        self._placed: Set[int] = set()  # ids of ops that make lists
        self._variable: Dict[int, int] = {}  # of values that share one, the value that had it first
        # What else the program calls a value that ops have written over: the executor has a variable for each.
        self._others: Dict[int, List[Any]] = {}
        self._instead: Any = None  # the number that takes the place of what is released
        self._done = Emitted()

    def run(self) -> Emitted:
        orders: Dict[int, List[Any]] = {}
        with static.program_guard(self._program):
            self._declare_parameters_outside()
            for region in sorted(
                    self._blocks):  # outer ones first, and blocks before their gradients
                orders[region] = self._written(region)
            for link in self._links:
                self._link(link, orders[link.forward], orders[link.gradient])
        for region, order in orders.items():
            self._move(region, order)
        mark(self._program)
        return self._done

    def _declare_parameters_outside(self) -> None:
        """Those of loops and branches: so their gradients can read them, and need no copies."""
        first = self._program.global_block().ops[0]
        for region, ops in self._before.items():
            declared = {op.id() for op in self._declarations} if region else set()
            for op, behind in zip(ops, ops[1:]):
                if op.id() in declared:
                    self._undo.append(partial(op.move_before, behind))
                    op.move_before(first)
        for popped, parameter in self._copied:
            for reader in popped.all_used_ops():
                for slot, source in enumerate(reader.operands_source()):
                    if source.is_same(popped):
                        self._set(reader, slot, self._value[parameter])

    def undo(self) -> None:
        """The program as it was, in all but the numbers of ops that are made later."""
        unmark(self._program)
        for step in reversed(self._undo):
            step()
        for region, ops in self._before.items():
            self._move(region, ops)

    def _move(self, region: int, order: List[Any]) -> None:
        block = self._blocks[region]
        for op in order:
            block.move_op_to_block_end(op)

    def _written(self, region: int) -> List[Any]:
        """The ops of a block, but for those that keep values for a gradient, in their order; it ends as it did."""
        self._enter(region)
        order: List[Any] = [*self._declarations, *self._spare_number()] if region == 0 else []
        ends = []
        shared: List[Tuple[int, int]] = []
        for op in self._graph.region_ops(region):
            if op.kind == KEEP:
                continue
            if op.kind == SHARE:
                shared += zip(op.operands, op.results)
                continue
            if op.kind == RELEASE:
                order += self._released(op)
                continue
            known = op.id < len(self._old.ops)
            made = self._original(op) if known else self._clone(op)
            (ends if known and self._handles[op.id].op.name() == YIELD else order).extend(made)
            storages = [(self._graph.values[v].storage, v) for v in op.results if v >= 0]
            shared += [(first, v) for first, v in storages if first != v]
            order += [made for pair in shared for made in self._united(*pair)]
            shared = []
        links = {op.id() for link in self._links for op in (link.push, link.pop)}
        there = {op.id() for op in (*order, *ends)} | links
        if self._is_cut and len(there) < len(self._block.ops):
            raise VerificationError('an op that nobody needs would come to the other part')
        order += [op for op in self._block.ops if op.id() not in there]  # lists that nobody reads
        return order + ends

    def _spare_number(self) -> List[Any]:
        """What takes the place of all that is released, in any block."""
        if all(op.kind != RELEASE for op in self._graph.walk()):
            return []
        self._instead = number()
        made = self._added(self._instead.get_defining_op())
        self._done.spare.add(made.id())
        return [made]

    def _united(self, value: int, result: int) -> List[Any]:
        """Has the op before, which makes `result`, do that in the variable of `value`."""
        self._variable[result] = self._variable.get(value, value)
        return [self._added(united(self._here(value), self._here(result)))]

    def _released(self, op: Op) -> List[Any]:
        """A variable is emptied once, whichever of the values that share it name it."""
        if op.region != self._region or any(
                self._graph.values[v].region != op.region for v in op.results):
            raise VerificationError('a value of another block would be released')
        values = {self._variable.get(v, v) for v in op.results}
        return [
            self._added(made)
            for v in sorted(values)
            for named in (self._here(v), *self._others.get(v, ()))
            for made in released(named, self._instead)
        ]

    def _enter(self, region: int) -> None:
        self._region, self._block = region, self._blocks[region]
        self._value = self._values_at[region]
        bindings.set_insertion_point_to_block_end(self._block)

    def _link(self, link: Link, forward: List[Any], gradient: List[Any]) -> None:
        """Puts in place what keeps values, and what takes them; leaves out what is taken for nobody."""
        taken = [op.kind for op in self._graph.region_ops(link.gradient)]
        idle = [] if KEEP in taken else [
            at for at, value in enumerate(link.pop.results())
            if value.initialized() and value.use_empty()]  # yapf: disable
        made = []
        if idle:
            self._enter(link.forward)
            number = _C_ops.full([1], 0.0, paddle.float32, CPUPlace())
            made = [self._added(number.get_defining_op())]
            self._done.spare.add(made[0].id())
        for at in idle:
            self._set(link.push, at + 1, number)
            self._set_type(link.pop.result(at), number.type())
        made += self._lists_of_push(link)
        forward[-1:] = [*made, link.push, forward[-1]]
        gradient.insert(0, link.pop)

    def _lists_of_push(self, link: Link) -> List[Any]:
        """What makes the lists that are kept for a gradient, where others read them before: it has some of its own, too."""
        made = []
        self._enter(link.forward)
        for at, source in enumerate(link.push.operands_source()):
            maker = source.get_defining_op() if _is_list(source) else None
            if maker is None or maker.id() not in self._placed:
                continue
            made.append(self._list_like(maker, maker.operands_source()))
            self._set(link.push, at, made[-1].result(0))
        return made

    def _set_type(self, value: Any, kind: Any) -> None:
        was = value.type()
        self._undo.append(lambda: value.set_type(was))
        value.set_type(kind)

    def _named(self, value: int, region: int) -> Any:
        """What `value` is called in `region`; None if it is not there yet."""
        home = self._graph.values[value].region
        while region >= 0:
            if (region, value) in self._popped:
                return self._popped[region, value]
            if region == home:
                return self._value.get(value)
            region = self._graph.regions[region].parent
        raise VerificationError(
            f'{self._graph.values[value].name!r} is not kept for the gradient that would read it')

    def _here(self, value: int) -> Any:
        found = self._named(value, self._region)
        if found is None:
            raise VerificationError(f'{self._graph.values[value].name!r} is read before it is made')
        return found

    def _original(self, op: Op) -> List[Any]:
        handle, at = self._handles[op.id], 0
        made: List[Any] = []
        for slot, was in enumerate(handle.operands):
            new = op.operands[at:at + len(was)]
            at += len(was)
            source = handle.op.operand_source(slot)
            if _is_list(source):
                made += self._list(handle.op, slot, source, was, new)
            elif new != was:
                self._set(handle.op, slot, self._here(new[0]))
        if op.operands[at:] != self._old.ops[op.id].operands[at:]:
            raise VerificationError(
                f'what {op.kind} reads inside of its blocks cannot be another value')
        for value, name in _names_written(handle):
            self._call(value, name)
        self._values_at.update((region, dict(self._value)) for region in op.regions)
        if op.facts.boundary:
            for value, name in self._crossing.items():
                self._call(value, name)
        return [*made, handle.op, *handle.unpacked]

    def _call(self, value: int, name: Any) -> None:
        """Has what is made from here on read `value` by `name`, but what outlives a run by the name that declares it."""
        was = self._value.get(value)
        if was is None or not self._graph.values[value].persistable:
            self._value[value] = name
        if was is not None and not was.is_same(name):
            self._others.setdefault(value, []).append(was)

    def _list(self, reader: Any, slot: int, source: Any, was: Tuple[int, ...],
              new: Tuple[int, ...]) -> List[Any]:
        """What makes the list that `reader` reads. Each reader has one of its own, right before it: the executor takes the members for
        read where the list is made, and works in place on what nobody names behind that."""
        maker = source.get_defining_op()
        if maker.name() != COMBINE:
            if new != was:
                raise VerificationError(
                    'a list that one op makes for another cannot be another one')
            return []
        if new != was:
            if len(source.all_used_ops()) > 1:
                maker = self._combined(source, was, new)
                self._set(reader, slot, maker.result(0))
            else:
                for at, value in enumerate(new):
                    if value != was[at]:
                        self._set(maker, at, self._here(value))
        elif maker.id() in self._placed:
            maker = self._combined(source, was, new)
            self._set(reader, slot, maker.result(0))
        return self._place(maker)

    def _place(self, maker: Any) -> List[Any]:
        fresh = maker.id() not in self._placed
        self._placed.add(maker.id())
        return [maker] if fresh else []

    def _combined(self,
                  source: Any,
                  was: Tuple[int, ...],
                  new: Tuple[int, ...],
                  elsewhere: bool = False) -> Any:
        """A list like `source` with the values of `new` where they are not those that it had; in the block that is being
        written, which is not its own if it is made `elsewhere`."""
        maker, given = source.get_defining_op(), dict(zip(was, new))
        if any(given[old] != value for old, value in zip(was, new)):
            raise VerificationError('a list that names a value twice cannot name two in its place')
        return self._list_like(maker, [
            value if new[at] == was[at] and not elsewhere else self._here(new[at])
            for at, value in enumerate(maker.operands_source())
        ])

    def _list_like(self, maker: Any, values: List[Any]) -> Any:
        """A new op that makes a list of these, as `maker` makes one of its operands."""
        mapping = pir.IrMapping()
        for was, value in zip(maker.operands_source(), values):
            mapping.add(was, value)
        return self._added(maker.clone(mapping, bindings.CloneOptions(*_ALONE)))

    def _clone(self, op: Op) -> List[Any]:
        """`op`, which is added: a copy of the one that it stands for, and what stands in for its state."""
        if op.origin is None and op.kind in KINDS:
            return self._replayed(op)
        if op.origin is None or op.origin not in self._handles:
            raise VerificationError(f'{op.kind} has no words in PIR')
        handle, at = self._handles[op.origin], 0
        elsewhere = self._old.ops[op.origin].region != op.region
        made: List[Any] = []
        mapping, given = pir.IrMapping(), {}
        for slot, was in enumerate(handle.operands):
            new = op.operands[at:at + len(was)]
            at += len(was)
            source = handle.op.operand_source(slot)
            if not source.initialized():
                continue
            if given.setdefault(source.id, new) != new:
                raise VerificationError(f'{op.kind} would read one value as two')
            if _is_list(source):
                lists, value = self._list_of_clone(op, source, was, new, elsewhere)
                made += lists
                mapping.add(source, value)
            else:
                made += self._stand_in(source, new[0])
                mapping.add(source, self._here(new[0]))
        if handle.op.num_regions():
            raise VerificationError(f'{op.kind} has blocks: it cannot be made again')
        clone = self._added(handle.op.clone(mapping, bindings.CloneOptions(*_ALONE)))
        self._done.origins[clone.id()] = op.origin
        return made + [clone] + self._bind(op, handle, clone)

    def _list_of_clone(self, op: Op, source: Any, was: Tuple[int, ...], new: Tuple[int, ...],
                       elsewhere: bool) -> Tuple[List[Any], Any]:
        """What makes the list that a clone reads, and the list: one of its own, but for what one op makes for another."""
        maker = source.get_defining_op()
        if maker.name() != COMBINE:
            if new != was or elsewhere or self._is_cut:
                raise VerificationError(
                    f'{op.kind} reads a list that one op makes for another: it cannot be made again'
                )
            return self._place(maker), source
        maker = self._combined(source, was, new, elsewhere)
        return self._place(maker), maker.result(0)

    def _replayed(self, op: Op) -> List[Any]:
        result = op.results[0]
        read = [self._here(v) for v in op.operands]
        like = self._value[self._graph.values[result].copy_of] if op.kind == FILL else None
        values, was = said(op.kind, read, like, op.facts.fills), self._value.get(result)
        self._value[result] = values[-1]
        ops = [self._added(value.get_defining_op()) for value in values]
        self._done.added.update(made.id() for made in ops)
        if was is not None and not self._is_cut:  # a second variable would go on to hold what is released
            ops.append(self._added(united(was, values[-1])))
        return ops

    def _bind(self, op: Op, handle: Any, clone: Any) -> List[Any]:
        """Notes what the values of the clone's results are; gives what takes its lists apart."""
        unpacked, at = [], 0
        for slot, was in enumerate(handle.results):
            new = op.results[at:at + len(was)]
            at += len(was)
            source, result = handle.op.result(slot), clone.result(slot)
            if not source.initialized():
                continue
            if not source.is_combine():
                self._call(new[0], result)
                continue
            members = dict(zip(was, new))
            for taker in (t for t in handle.unpacked if t.operand_source(0).is_same(source)):
                inner = pir.IrMapping()
                inner.add(source, result)
                unpacked.append(self._added(taker.clone(inner, bindings.CloneOptions(*_ALONE))))
                for at, fresh in taken_out(unpacked[-1]):
                    self._call(members[was[at]], fresh)
        return unpacked

    def _stand_in(self, source: Any, value: int) -> List[Any]:
        """A tensor in place of state that a clone must not carry on."""
        if value < 0 or self._named(value, self._region) is not None:
            return []
        if any(d < 0 for d in source.shape):
            raise VerificationError('state of an open size has nothing that could stand in for it')
        filled = _C_ops.full(source.shape, 0.0, source.dtype, CPUPlace())
        self._value[value] = filled
        op = self._added(filled.get_defining_op())
        self._done.spare.add(op.id())
        return [op]

    def _added(self, op: Any) -> Any:
        block = self._block
        self._undo.append(lambda: block.remove_op(op))
        return op

    def _set(self, op: Any, slot: int, value: Any) -> None:
        was = op.operand_source(slot)
        self._undo.append(lambda: op.operand(slot).set_source(was))
        op.operand(slot).set_source(value)


def _read_behind(imported: ImportedProgram) -> Dict[int, Any]:
    """By value that the forward part of a program makes, if it is cut: what the backward part calls it. Each name that this reads is handed
    on, and Paddle finds but one of those that one variable has: a clone that read another one would be one too many."""
    values, handles = imported.graph.values, imported.handles
    read: Dict[int, Any] = {}
    late: Set[str] = set()
    behind = imported.cut is None
    for op in () if behind else imported.graph.walk():
        if behind and op.id in handles:
            for value, name in _names_read(handles[op.id]):
                handed_on = values[value].region == 0 and name.id not in late
                if handed_on and not values[value].persistable:
                    read.setdefault(value, name)
            late.update(_ids_made(handles[op.id]))
        behind = behind or op.facts.boundary
    return read


def _names_read(handle: Handle) -> Iterator[Tuple[int, Any]]:
    """Values, and what the op calls them."""
    for values, name in zip(handle.operands, handle.op.operands_source()):
        if not _is_list(name):
            yield from zip(values, [name] if name.initialized() else ())
        elif name.get_defining_op().name() == COMBINE:
            yield from zip(values, name.get_defining_op().operands_source())


def _ids_made(handle: Handle) -> Iterator[str]:
    return (v.id for op in (handle.op, *handle.unpacked) for v in op.results() if v.initialized())


def _names_written(handle: Handle) -> Iterator[Tuple[int, Any]]:
    """Values that the op writes over, and what they are called behind it."""
    for slot in in_place_results(handle.op):
        name = handle.op.result(slot)
        if _is_list(name):
            yield from ((handle.results[slot][at], member) for taker in handle.unpacked
                        if taker.operand_source(0).is_same(name) for at, member in taken_out(taker))
        elif name.initialized():
            yield handle.results[slot][0], name


def _is_list(value: Any) -> bool:
    return bool(value.initialized() and value.is_combine())
