"""From a PIR program to a Graph: what lives in one variable becomes one value.

Results that Paddle writes over an operand (`sgd_`, `batch_norm_`) are the operand's value. `builtin.combine`, `builtin.split`
and `builtin.slice` are no ops of the graph: who reads a list of tensors reads its members. Declarations are values only.

Loops and branches are regions. What one hands on with its `cf.yield` it writes to what the op around it makes, which is what a
loop's next trip begins with. What a gradient pops is what its block has pushed: it reads the values of that block, and what
it pops for nobody is said by a KEEP op.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import AbstractSet, Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from paddle.base.libpaddle import pir

from transpiler.analysis.carried_sums import carried_sums
from transpiler.backends.base import OPTIMIZED, Declared
from transpiler.backends.call_stacks import frames
from transpiler.backends.einsum import KINDS as EINSUM
from transpiler.backends.paddle3.aliases import DIALECT, gives_second_name, in_place_results, shares
from transpiler.backends.paddle3.blocks import (CREATE, HAS_MORE, IF, POP, PUSH, WHILE, YIELD, Link,
                                                Ends, Unmodelled, blocks_of, check_ends,
                                                checked_link, ends_inside, has, kind_of,
                                                names_inside)
from transpiler.backends.paddle3.brief_stacks import brief_stacks
from transpiler.backends.paddle3.caches import link_caches, link_results
from transpiler.backends.paddle3.carried import carries_open
from transpiler.backends.paddle3.flattened import link_flattened
from transpiler.backends.paddle3.handed_out import handed_out, join
from transpiler.backends.paddle3.layouts import relaid, runs_onednn
from transpiler.backends.paddle3.marks import mark_of, scope_of
from transpiler.backends.paddle3.misled import misled
from transpiler.backends.paddle3.naming import COMBINE, DECLARATIONS, PARAMETER, SLICE, SPLIT, bare_kind, taken_out, value_names
from transpiler.backends.paddle3.operators import EACH_ELEMENT_ALONE, MADE_AS, MADE_AS_BY_ONEDNN
from transpiler.backends.paddle3.registry import OpRegistry, Slots
from transpiler.backends.paddle3.releases import is_release, unites
from transpiler.backends.paddle3.replaying import added_facts
from transpiler.backends.paddle3 import symbolic
from transpiler.backends.paddle3.shapes import Shapes, all_fixed, declared_shape, gradient_source, guessed_shape, kernel_shape, told_shape
from transpiler.backends.paddle3.tensors import Shape, bytes_of, dtype_of, item_bytes
from transpiler.backends.paddle3.tensors import kind_of as value_kind
from transpiler.backends.second_names import write_together
from transpiler.errors import InvalidProgramError
from transpiler.ir import (KEEP, RELEASE, Graph, Op, OpFacts, Region, RegionKind, Site, Size, Value,
                           ValueKind)
from transpiler.ir.boundary import BOUNDARY, divide
from transpiler.ir.extents import note_extents
from transpiler.ir.symbols import trip

# They name what a saved program gives out, or what a startup program leaves behind.
_KEEPS = frozenset({'builtin.shadow_output', 'builtin.set_parameter', 'pd_op.fetch'})
_GRADIENT = '_grad'
_BLOCKS = '{}: what such ops do is not known'
_CLOSED = 'it has {}'
_LOST_STACK = (
    'a loop that is trained, whose stack Paddle 3.3 does not find again in the backward part of a layer: '
    'untouched it fails, too')
_Slots = Tuple[Tuple[int, ...], ...]


@dataclass(frozen=True)
class Handle:
    """An op of the program: for each slot, the values of the graph; and what takes apart the lists that it makes."""

    op: Any
    operands: Tuple[Tuple[int, ...], ...]
    results: Tuple[Tuple[int, ...], ...]
    unpacked: Tuple[Any, ...] = ()


@dataclass(frozen=True)
class Cut:
    """Where a joint program is cut into forward and backward.

    Attributes:
        between: ids of the ops that stand there, which neither part has: they make what the caller gives the backward part.
        kept: names of what the caller holds when the backward part has run.
        others: names of what others may write before it runs.
    """

    between: Tuple[int, ...]
    kept: FrozenSet[str] = frozenset()
    others: FrozenSet[str] = frozenset()


@dataclass
class ImportedProgram:
    """A graph, and the ops and values of the program that it stands for. See `backends.base.Imported`.

    Attributes:
        handles: by op of the graph.
        values: by value of the graph: what the program calls it where it is first made.
        declarations: ops that declare; they come first.
        blocks: by region.
        links: blocks and their gradients.
        popped: by region of a gradient, and value of the block that it is the gradient of: what it is called there.
        copied: what a gradient pops of a parameter: its name there, and the parameter, which nobody has written by then.
        cut: of a joint program.
        inferred: what Paddle says of dims, if it was asked.
    """

    graph: Graph
    program: Any
    handles: Dict[int, Handle] = field(default_factory=dict)
    values: Dict[int, Any] = field(default_factory=dict)
    declarations: List[Any] = field(default_factory=list)
    blocks: Dict[int, Any] = field(default_factory=dict)
    links: List[Link] = field(default_factory=list)
    popped: Dict[Tuple[int, int], Any] = field(default_factory=dict)
    copied: List[Tuple[Any, int]] = field(default_factory=list)
    closed: str = ''
    under_way: int = 0
    cut: Optional[Cut] = None
    inferred: Optional[symbolic.Inference] = None

    @property
    def declared(self) -> Declared:
        names = [(v.region, v.name) for v in self.graph.values]
        return Declared(frozenset(n for r, n in names if r == 0), frozenset(n for _, n in names),
                        {})

    @property
    def inputs(self) -> FrozenSet[str]:
        return frozenset(v.name for v in self.graph.values if v.fed)

    @property
    def done(self) -> FrozenSet[str]:
        return frozenset({OPTIMIZED}) if mark_of(self.program) else frozenset()


@brief_stacks()
def import_program(program: Any,
                   fetched: FrozenSet[str] = frozenset(),
                   skipped: FrozenSet[str] = frozenset(),
                   spare: FrozenSet[int] = frozenset(),
                   cut: Optional[Cut] = None,
                   added: FrozenSet[int] = frozenset(),
                   inferred: Optional[symbolic.Inference] = None) -> ImportedProgram:
    """The graph of `program`; ops with an id in `spare` are taken for declarations of what nobody has written, those in
    `added` stand for none that was there. One that is `cut` has a boundary there, which nothing crosses in place, and whatever
    stands behind it is backward. `inferred`: of this program, if somebody has asked already."""
    if type(program).__name__ != 'Program' or not hasattr(program, 'global_block'):
        raise InvalidProgramError(
            f'memory_optimize takes a paddle.static.Program, not {type(program).__name__}')
    try:
        return _Importer(program, fetched, skipped, spare, cut, added, inferred).run()
    except Unmodelled as reason:
        read = _Importer(program, fetched, skipped, spare, cut, added, inferred, opaque=True).run()
        read.closed = _CLOSED.format(reason)
        return read


class _Importer:

    def __init__(self,
                 program: Any,
                 fetched: FrozenSet[str],
                 skipped: FrozenSet[str],
                 spare: FrozenSet[int],
                 cut: Optional[Cut],
                 added: FrozenSet[int],
                 inferred: Optional[symbolic.Inference],
                 opaque: bool = False) -> None:
        """`opaque`: what is inside of loops and branches is left out."""
        self._names = value_names(program)
        self._taken = set(self._names.values())
        self._opaque = opaque
        self._fetched, self._skipped, self._spare, self._added = fetched, skipped, spare, added
        self._graph = Graph()
        self._done = ImportedProgram(self._graph, program, cut=cut)
        self._between = frozenset(cut.between if cut else ())
        self._registry = OpRegistry()
        self._value: Dict[str, int] = {}  # by id of what the program calls a value
        self._members: Dict[str, Tuple[int, ...]] = {}  # by id of a list
        self._parameters: Dict[str, int] = {}  # by name: several ops may declare one
        self._backward: Dict[int, bool] = {}  # by value: made from gradients
        self._home = self._graph.new_region(RegionKind.BLOCK)  # the region that is being read
        self._pushed: Dict[int, Tuple[int, _Slots]] = {}  # by op that pushes: region, and what
        # By op that runs a block, and its number there.
        self._ends: Dict[Tuple[int, int], Ends] = {}
        self._linked: Set[int] = set()  # values that may have the memory of others
        # Of values with two names: all that may be in one memory.
        self._mates: Dict[int, Set[int]] = {}
        # What a loop that is not trained is given to write over, and nobody else.
        self._places: Set[int] = set()
        self._carried: Set[Tuple[int, int]] = set()  # what loops add up in its place
        self._misled = misled(program)
        if inferred is None and (self._misled or symbolic.has_open_inputs(program) or
                                 carries_open(program)):
            inferred = symbolic.infer(program)
        self._done.inferred = inferred

    def run(self) -> ImportedProgram:
        block = self._done.program.global_block()
        for value in (*block.args(), *block.kwargs().values()):
            self._new(value, fed=True, shape=declared_shape(value.shape))
        self._block(block, self._home)
        for value in link_caches(self._graph, self._done.handles):
            join(self._mates, [value])
        named = {
            **link_results(self._graph, self._done.handles),
            **link_flattened(self._graph, self._done.handles)
        }
        for op in handed_out(self._graph, self._mates):
            op.facts = replace(op.facts, shares_unsaid=True)
        for op in self._graph.ops:
            handle = self._done.handles.get(op.id)
            plain = not op.regions and handle is not None and handle.op.name() != YIELD
            if plain and op.kind not in EINSUM:
                _note_taken(self._graph, op, self._mates, named)
        if len(self._done.links) < len(self._pushed):
            raise Unmodelled('a block that keeps something for a gradient that it does not have')
        if not self._carried.issubset(carried_sums(self._graph)):
            raise Unmodelled('a loop that writes over what comes from outside of it')
        if _begins_with_what_is_read_behind_it(self._graph):
            raise Unmodelled(
                'a loop that begins with what is fetched, or read behind it: Paddle lets go of that as the loop begins, and may fail'
            )
        _drop_what_is_named_later(self._graph)
        note_extents(self._graph, runs_as_declared=False)
        if self._done.cut:
            divide(self._graph, self._done.cut.kept, self._done.cut.others)
        return self._done

    def _block(self, block: Any, region: Region) -> None:
        around, self._home = self._home, region
        self._done.blocks[region.id] = block
        special = {CREATE: self._create, PUSH: self._push, POP: self._pop, WHILE: self._loop,
                   IF: self._branch, YIELD: self._yield, HAS_MORE: self._has_more}  # yapf: disable
        for op in block.ops:
            if op.id() in self._between:
                self._cut_before(op)
            elif not self._opaque and op.name() in special:
                special[op.name()](op)
            elif op.name() in DECLARATIONS or op.id() in self._spare:
                self._declare(op)
            elif op.name() == COMBINE:
                self._members[op.result(0).id] = tuple(
                    i for v in op.operands_source() for i in self._ids(v))
            elif is_release(op):
                self._release(op)
            elif unites(op):
                self._unite(op)
            elif op.name() not in (SPLIT, SLICE) or not self._is_unpacked(op):
                self._import(op)
        self._home = around

    def _create(self, op: Any) -> None:
        if self._home.id:
            raise Unmodelled('a stack that is made anew in a loop or a branch')
        self._done.declarations.append(op)

    def _push(self, op: Any) -> None:
        slots = tuple(self._ids(v) for v in op.operands_source()[1:])
        pushed = [self._graph.values[i] for slot in slots for i in slot if i >= 0]
        if any(v.region != self._home.id and (self._done.cut or not v.parameter) for v in pushed):
            raise Unmodelled('a block that keeps for its gradient what comes from outside of it')
        self._pushed[op.id()] = (self._home.id, slots)

    def _pop(self, op: Any) -> None:
        """The values of the block are what its gradient reads; that all of them are kept is said apart."""
        link = next(link for link in self._done.links if link.gradient == self._home.id)
        home, slots = self._pushed[link.push.id()]
        kept: Tuple[int, ...] = ()
        for slot, value in zip(slots, op.results()):
            if value.initialized() and value.is_combine():
                self._members[value.id] = slot
            elif value.initialized() and self._graph.values[slot[0]].parameter:
                slot = self._pop_parameter(value, slot[0], home)
            elif value.initialized():
                self._value[value.id] = slot[0]
                self._done.popped.setdefault((self._home.id, slot[0]), value)
            kept += slot
        facts = OpFacts(shape_only=frozenset(range(len(kept))))
        self._graph.new_op(KEEP, self._home.id, operands=kept, facts=facts, backward=True)

    def _pop_parameter(self, value: Any, parameter: int, home: int) -> Tuple[int, ...]:
        """The gradient may as well read the parameter itself; what is kept of each trip in the region `home` is a copy of it."""
        if any(parameter in op.writes() for op in self._graph.ops):
            raise Unmodelled('a gradient that reads a parameter as it was before it changed')
        copy = self._new(value, shape=self._graph.values[parameter].shape, region=home)
        self._value[value.id] = parameter
        self._done.copied.append((value, parameter))
        return (copy,)

    def _release(self, op: Any) -> None:
        released = self._ids(op.operand_source(0))
        self._value[op.result(0).id] = released[0]
        facts = OpFacts(side_effect=True, loses_shape=frozenset({0}))
        self._graph.new_op(RELEASE, self._home.id, results=released, facts=facts)

    def _unite(self, op: Any) -> None:
        """Two values in one variable. What is left of one that is released is that one already."""
        (first,), (second,) = map(self._ids, op.operands_source())
        values = self._graph.values
        values[second].storage = values[first].storage
        if first != second and first in self._linked:
            self._carried.add((first, second))

    def _has_more(self, op: Any) -> None:
        made = self._graph.new_op(bare_kind(op), self._home.id, facts=OpFacts(side_effect=True))
        made.results = (self._result(op, 0, op.result(0), []),)
        self._note(made, op, ((),), (made.results,))

    def _loop(self, op: Any) -> None:
        """What it makes is what its trips begin with. Its condition it overwrites, and what the first trip begins with it may
        free, whoever reads that later, unless its body names it, too: so it counts as written."""
        made = self._around(op)
        body, = blocks_of(op)
        made.results += made.operands[:1] + tuple(
            i for i, value in zip(made.operands[1:],
                                  op.operands_source()[1:]) if not names_inside(op, value))
        alone = [at for at, value in enumerate(op.operands_source()) if at and _is_for(op, value)]
        made.facts = OpFacts(in_place=tuple((at, at - 1) for at in alone))
        region = self._region(op, made, body)
        region.links = True
        if region.kind is RegionKind.LOOP:
            region.trips = Size.dim(trip(region.id))
        else:
            region.trips = self._graph.regions[region.forward].trips
        for at, (arg, outer) in enumerate(zip(body.args(), made.results)):
            inner = self._of_trips(arg, self._graph.values[outer].shape, region.id)
            if at + 1 in alone and _is_place(body, arg, at + 1):
                self._places.add(inner)
            self._backward[inner] = region.kind is RegionKind.LOOP_GRADIENT
            region.arguments += ((outer, inner),)
        self._linked.update(v for pair in region.arguments for v in pair)
        self._linked.update(made.operands)
        self._block(body, region)

    def _branch(self, op: Any) -> None:
        made = self._around(op)
        for block, holds in zip(blocks_of(op), (True, False)):
            region = self._region(op, made, block, holds)
            region.when = frozenset({(made.operands[0], holds)})
            self._block(block, region)

    def _around(self, op: Any) -> Op:
        """The op that runs blocks, with what it makes."""
        made = self._graph.new_op(bare_kind(op), self._home.id)
        operands = tuple(self._ids(v) for v in op.operands_source())
        if any(not v.initialized() or not v.is_dense_tensor_type()
               for v in (*op.operands_source(), *op.results())):
            raise Unmodelled('a loop or a branch that hands on what is no tensor')
        made.operands = tuple(i for i, in operands)
        given = [self._graph.values[i].shape for i in made.operands[1:]]
        made.results = tuple(
            self._of_trips(value, given[at]) if op.name() == WHILE else self._result(op, at, value, [])
            for at, value in enumerate(op.results()))  # yapf: disable
        _place(made, op)
        self._note(made, op, operands, tuple((i,) for i in made.results))
        return made

    def _region(self, op: Any, made: Op, block: Any, side: bool = True) -> Region:
        if self._done.cut and op.name() == WHILE and (has(block, PUSH) or has(block, POP)):
            raise Unmodelled(_LOST_STACK)
        check_ends(block)
        if (op.id(), len(made.regions)) not in self._ends:
            self._ends.update(ends_inside(op))
        ends = self._ends[op.id(), len(made.regions)]
        region = self._graph.new_region(kind_of(op, ends), op=made.id, parent=self._home.id)
        region.label = f'block {region.id}'
        region.keeps_scopes = region.copies_kept = ends.keeps
        if ends.taken:
            link = checked_link(self._graph, op, ends.taken, region, self._pushed, side)
            self._done.links += [link] if link else []
            region.pops = region.kind is RegionKind.BRANCH_GRADIENT
            if link and link.doubt:
                self._done.closed = _CLOSED.format(link.doubt)
        made.backward = made.backward or region.kind.is_gradient
        made.regions += (region.id,)
        return region

    def _yield(self, op: Any) -> None:
        around = self._graph.ops[self._home.op]
        operands = tuple(self._ids(v) for v in op.operands_source())
        made = self._graph.new_op(bare_kind(op), self._home.id)
        made.operands = tuple(i for i, in operands)
        handed = made.operands[self._home.kind.is_loop:]  # first, if there is another trip
        made.results = around.results[:len(handed)]
        given = []
        for at, result in enumerate(made.results):
            value = self._graph.values[handed[at]]
            outer = self._graph.values[result]
            if outer.bound is None and value.shape is not None and not self._is_loose(
                    self._done.values[result]):
                outer.shape, outer.size = value.shape, value.size
            own = value.region == self._home.id and handed.count(value.id) == 1
            if own and not self._home.kind.is_loop:  # a branch gives away what it has made
                given.append((at, at))
        made.facts = OpFacts(side_effect=True, in_place=tuple(given))
        self._linked.update((*handed, *made.results))
        self._note(made, op, operands, ())

    def _note(self, made: Op, op: Any, operands: _Slots, results: _Slots) -> None:
        made.backward = made.backward or any(self._backward.get(i, False) for i in made.operands)
        self._backward.update((i, made.backward) for i in made.results)
        self._done.handles[made.id] = Handle(op, operands, results)

    def _cut_before(self, op: Any) -> None:
        """One op of the graph stands for all that is between the parts."""
        made = self._graph.ops[-1] if self._graph.ops else None
        if made is None or not made.facts.boundary:
            made = self._graph.new_op(BOUNDARY, 0, facts=OpFacts(boundary=True))
            self._done.handles[made.id] = Handle(op, (), ())
        handle = self._done.handles[made.id]
        shapes = self._shapes([self._ids(v) for v in op.operands_source()])
        results = [self._result(op, slot, v, shapes) for slot, v in enumerate(op.results())]
        made.results += tuple(results)
        rest = (op,) if handle.op is not op else ()
        self._done.handles[made.id] = replace(handle,
                                              results=handle.results + tuple((i,) for i in results),
                                              unpacked=handle.unpacked + rest)

    def _declare(self, op: Any) -> None:
        value, is_parameter = op.result(0), op.name() == PARAMETER
        if self._home.id and op.id() not in self._spare and not is_parameter:
            raise Unmodelled('an input that is declared in a loop or a branch')
        self._done.declarations.append(op)
        if is_parameter and self._names[value.id] in self._parameters:
            self._value[value.id] = self._parameters[self._names[value.id]]
            return
        kept = value.persistable or is_parameter or op.name() == 'builtin.constant'
        made = self._new(value,
                         persistable=kept,
                         parameter=is_parameter,
                         fed=not kept and op.id() not in self._spare,
                         shape=self._declared_shape(value),
                         region=0 if is_parameter else self._home.id)
        if is_parameter:
            self._parameters[self._names[value.id]] = made

    def _declared_shape(self, value: Any) -> Optional[Shape]:
        if not value.is_dense_tensor_type():
            return None
        said = self._said_of(value) if min(value.shape, default=0) < 0 else None
        return declared_shape(value.shape) if said is None else said.shape

    def _new(self, value: Any, shape: Any = None, region: int = -1, **facts: Any) -> int:
        """In the region that is being read, or in `region`."""
        if not value.initialized():
            return -1
        home = self._home.id if region < 0 else region
        kind, name = value_kind(value), self._name(value, home)
        dense = kind is ValueKind.DENSE
        made = self._graph.new_value(name, home, kind=kind, dtype=dtype_of(value) if dense else '',
                                     shape=shape if dense else None,
                                     size=bytes_of(value, shape) if dense else None,
                                     fetched=name in self._fetched, copied_out=name in self._fetched,
                                     skipped=name in self._skipped, **facts)  # yapf: disable
        self._value[value.id] = made.id
        self._done.values[made.id] = value
        return made.id

    def _name(self, value: Any, region: int) -> str:
        """That of a value of the main block; inside of loops and branches, one of its own."""
        if region == 0:
            return self._names[value.id]
        maker = value.get_defining_op()
        stem = f'{bare_kind(maker) if maker is not None else "input"}.{region}.{len(self._value)}'
        while stem in self._taken:
            stem += '_'
        self._taken.add(stem)
        return stem

    def _ids(self, value: Any) -> Tuple[int, ...]:
        if not value.initialized():
            return (-1,)
        if value.id in self._members:
            return self._members[value.id]
        return (self._value[value.id],)

    def _is_unpacked(self, op: Any) -> bool:
        return op.operand_source(0).id in self._members

    def _import(self, op: Any) -> None:
        if op.num_regions() and not self._opaque:
            raise Unmodelled(_BLOCKS.format(op.name()))
        made = self._graph.new_op(bare_kind(op), self._home.id)
        operands = tuple(self._ids(v) for v in op.operands_source())
        inner = tuple(self._ids(v)[0] for v in _used_inside(op)) if op.num_regions() else ()
        made.operands = tuple(i for slot in operands for i in slot) + inner
        shapes = self._shapes(operands)
        aliases, unpacked = in_place_results(op), []
        results: List[Tuple[int, ...]] = []
        for slot, value in enumerate(op.results()):
            if slot in aliases and op.operand_source(aliases[slot]).initialized():
                takers = _takers(value)
                results.append(self._alias(value, operands[aliases[slot]], takers))
                unpacked.extend(takers)
            elif value.initialized() and value.is_combine() and _is_taken_apart(value):
                takers = _takers(value)
                results.append(self._take_apart(op, slot, takers, shapes))
                unpacked.extend(takers)
            else:
                results.append((self._result(op, slot, value, shapes),))
        made.results = tuple(i for slot in results for i in slot)
        made.facts = self._registry.facts(op, _positions(operands), _positions(results))
        if not op.num_regions():
            made.facts = replace(made.facts, relaid=relaid(op))
        if gives_second_name(op):
            join(self._mates, made.operands[:1] + made.results)
            made.facts = replace(made.facts, shares_unsaid=shares(op), in_place=())
        if op.name().startswith(DIALECT):
            _place(made, op)
        if op.id() in self._added:
            made.facts = replace(made.facts, **added_facts(op))
        made.backward = bare_kind(op).endswith(_GRADIENT) or any(
            self._backward.get(i, False) for i in made.operands)
        self._backward.update(
            (i, made.backward) for i in made.results if not self._graph.values[i].persistable)
        if op.name() in _KEEPS:
            for i in made.operands:
                self._graph.values[i].fetched = True
        self._done.handles[made.id] = Handle(op, operands, tuple(results), tuple(unpacked))

    def _alias(self, value: Any, operand: Tuple[int, ...], takers: List[Any]) -> Tuple[int, ...]:
        self._check_alone(operand)
        if value.initialized() and value.is_combine():
            self._members[value.id] = operand
            for at, member in (pair for taker in takers for pair in taken_out(taker)):
                self._value[member.id] = operand[at]
        else:
            self._value[value.id] = operand[0]
        return operand

    def _check_alone(self, values: Sequence[int]) -> None:
        """What is written over, but for parameters and states, has a memory that nothing else is known to have."""
        for value in map(self._graph.values.__getitem__, (i for i in values if i >= 0)):
            linked = value.id in self._linked and value.id not in self._places
            if linked or not (value.persistable or value.region == self._home.id):
                raise Unmodelled(
                    'an op that writes over what comes from outside of its loop or branch, or goes there'
                )

    def _result(self, op: Any, slot: int, value: Any, shapes: Shapes) -> int:
        if not (value.initialized() and value.is_dense_tensor_type()):
            return self._new(value)
        inferred = self._shape(op, slot, value, shapes)
        made = self._new(value, shape=inferred.shape, guessed=inferred.guessed)
        self._graph.values[made].at_most = bytes_of(value, inferred.at_most)
        others = (MADE_AS_BY_ONEDNN if runs_onednn(op) else MADE_AS).get(bare_kind(op))
        # Not every op that is asked for names bears it.
        dtype = others.get(op.get_output_names()[slot]) if others else None
        if dtype is not None:
            _make_as(self._graph.values[made], dtype)
        return made

    def _of_trips(self, value: Any, first: Optional[Shape], region: int = -1) -> int:
        """Of this shape in the first trip, and unless trips change it in all of them."""
        inferred = self._is_loose(value) and self._said_of(value) or symbolic.Inferred(first)
        made = self._new(value, shape=inferred.shape, region=region)
        self._graph.values[made].at_most = bytes_of(value, inferred.at_most)
        return made

    def _is_loose(self, value: Any) -> bool:
        return self._done.inferred is not None and value.id in self._done.inferred.loose

    def _shape(self, op: Any, slot: int, value: Any, shapes: Shapes) -> symbolic.Inferred:
        """Of a result, by its kernel, the `shapes` of the operands, and Paddle's inference."""
        doubted = [each for each in self._operands_of(op) if each.guessed]
        by_kernel = kernel_shape(op, slot, shapes)
        if by_kernel is not None:
            return symbolic.Inferred(by_kernel, guessed=bool(doubted))
        if self._is_loose(value):
            return symbolic.NOTHING if self._opaque else self._said_of(value) or symbolic.NOTHING
        source = gradient_source(op, slot, value.shape)
        known = source is not None and source.id in self._value
        if known and (doubted or value.id in self._misled):
            return self._like(source)
        made = self._told_or_said(op, slot, value, shapes)
        if made is None:
            made = self._like(source) if known else symbolic.Inferred(
                guessed_shape(op, value.shape, shapes), guessed=True)
        if not doubted or made.shape == ():
            return made
        lost = min(value.shape, default=0) < 0 and any(each.shape is None for each in doubted)
        return symbolic.Inferred(guessed=True) if lost else made._replace(guessed=True)

    def _told_or_said(self, op: Any, slot: int, value: Any,
                      shapes: Shapes) -> Optional[symbolic.Inferred]:
        """By the program, or by Paddle's inference; None if neither knows it, or `value` may be a gradient."""
        told = told_shape(op, slot, value.shape, shapes)
        wrongly = value.id in self._misled
        trusted = self._done.inferred is None or all_fixed(shapes) and not wrongly
        said = None if told is not None and trusted else self._said_of(value)
        if told is not None and (said is None or min(value.shape, default=0) < 0):
            return symbolic.Inferred(told, guessed=wrongly)
        silent = said is not None and said.shape is None and bare_kind(op).endswith(_GRADIENT)
        return None if silent else said

    def _operands_of(self, op: Any) -> List[Value]:
        """But for stacks, and what else is no value of the graph."""
        found: List[Value] = []
        for source in filter(lambda each: each.initialized(), op.operands_source()):
            named = self._members.get(source.id) or (self._value.get(source.id, -1),)
            found += [self._graph.values[i] for i in named if i >= 0]
        return found

    def _shapes(self, slots: _Slots) -> Shapes:
        return [[self._graph.values[i].shape for i in slot if i >= 0] for slot in slots]

    def _like(self, source: Any) -> symbolic.Inferred:
        """What is known of `source`."""
        known = self._graph.values[self._value[source.id]]
        said = self._said_of(source) if known.shape is None else None
        return symbolic.Inferred(known.shape, said and said.at_most, known.guessed)

    def _said_of(self, value: Any) -> Optional[symbolic.Inferred]:
        """By Paddle's inference; None where it does not come to it, or contradicts the operator."""
        if self._done.inferred is None:
            self._done.inferred = symbolic.infer(self._done.program)
        return self._done.inferred.known.get(value.id)

    def _take_apart(self, op: Any, slot: int, takers: List[Any], shapes: Shapes) -> Tuple[int, ...]:
        """The members of a list, by the ops that name them; each member is one value, whoever names it."""
        value = op.result(slot)
        members: List[Optional[int]] = [None] * len(value.type().as_vec_type().as_list())
        for taker in takers:
            for at, member in taken_out(taker):
                known = members[at]
                if known is None:
                    members[at] = self._result(op, slot, member, shapes)
                else:
                    self._value[member.id] = known
        self._members[value.id] = tuple(-1 if m is None else m for m in members)
        return self._members[value.id]


def _is_for(op: Any, value: Any) -> bool:
    """Whether nobody but `op`, and nothing inside of it, names `value`: the runtime lets go of it once the first trip has it."""
    return all(
        user.id() == op.id() or is_release(user) or unites(user) for user in value.all_used_ops())


def _is_place(body: Any, arg: Any, slot: int) -> bool:
    """Whether the body of a loop that keeps nothing for a gradient only writes over `arg`, once, and hands that on in its place."""
    users = arg.all_used_ops()
    over = in_place_results(users[0]) if len(users) == 1 and not has(body, PUSH) else {}
    handed = body.ops[-1].operand_source(slot)
    return any(
        users[0].operand_source(operand).is_same(arg) and users[0].result(result).is_same(handed)
        for result, operand in over.items())


def _begins_with_what_is_read_behind_it(graph: Graph) -> bool:
    """Whether a loop does that, of what counts as written there; what comes from farther outside stays."""
    for region in graph.regions:
        behind: Set[int] = set()  # values that ops behind this one read
        for op in reversed([graph.ops[i] for i in region.ops]):
            if any(graph.regions[r].kind.is_loop for r in op.regions):
                lost = [v for v in op.operands[1:]
                        if v in op.results and graph.values[v].region == region.id]  # yapf: disable
                if any(v in behind or graph.values[v].fetched for v in lost):
                    return True
            inside = (inner for r in op.regions for inner in graph.walk(r))
            behind.update(v for each in (op, *inside) for v in each.data_reads())
    return False


def _make_as(value: Value, dtype: str) -> None:
    value.dtype = dtype
    if value.shape is not None:
        value.size = Size.product(value.shape) * item_bytes(dtype)


def _note_taken(graph: Graph, op: Op, mates: Mapping[int, AbstractSet[int]],
                named: Mapping[int, FrozenSet[int]]) -> None:
    """The executor works in place by the uses of one name: so an op that may writes over what has a second one, or what it reads in
    another slot, too, and one that does so by itself over all names of that. Whoever reads one stays in front of it, or behind it."""
    given = op.given_in_place()
    again = (v for v in given if op.operands.count(v) > 1 and op.kind not in EACH_ELEMENT_ALONE)
    taken = {v for v in given if v in mates or v in named}.union(again)
    written = mates.keys() & set(op.operands) & set(op.results)
    others = {v for each in taken | written for v in mates.get(each, ())} - {*op.results}
    taken.update(v for v in others if graph.values[v].region in _regions_around(graph, op.region))
    write_together(op, frozenset(taken), named)


def _regions_around(graph: Graph, region: int) -> Set[int]:
    """`region`, and those that it is in."""
    found = set()
    while region >= 0:
        found.add(region)
        region = graph.regions[region].parent
    return found


def _drop_what_is_named_later(graph: Graph) -> None:
    """The executor works in place on what no op names any more, for its shape either, unless the program says that the two are in
    one variable, or it hands on to the region around."""
    looked_at = {v for op in graph.ops for v in op.shape_reads()}
    storage = lambda value: graph.values[value].storage
    for op in graph.ops:
        pairs = tuple((i, j)
                      for i, j in op.facts.in_place
                      if op.operands[i] not in looked_at or storage(op.operands[i]) == storage(
                          op.results[j]) or graph.values[op.results[j]].region != op.region)
        if pairs != op.facts.in_place:
            op.facts = replace(op.facts, in_place=pairs)


def _takers(value: Any) -> List[Any]:
    """The ops that take a list apart."""
    if not (value.initialized() and value.is_combine()):
        return []
    return [user for user in value.all_used_ops() if user.name() in (SPLIT, SLICE)]


def _is_taken_apart(value: Any) -> bool:
    """Whether every member of the list has a name, or nobody reads the list as a whole."""
    users = value.all_used_ops()
    return any(u.name() == SPLIT for u in users) or (bool(users) and
                                                     all(u.name() == SLICE for u in users))


def _used_inside(op: Any) -> List[Any]:
    return list(pir.get_used_external_value(op))


def _positions(slots: Any) -> Slots:
    found, first = [], 0
    for slot in slots:
        found.append(tuple(range(first, first + len(slot))))
        first += len(slot)
    return found


def _place(made: Op, op: Any) -> None:
    """Says of `made` where the user made `op`: the names of layers are those of a scope, too."""
    made.site = Site(frames(op.callstack or ()), scope_of(op))
    made.label = next(iter(made.site.frames), '')
