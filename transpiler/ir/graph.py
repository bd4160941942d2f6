"""Graph, Region, Op and Value."""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass, field, fields, replace
from typing import (AbstractSet, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple,
                    Optional, Set, Tuple)

from transpiler.ir.facts import OpFacts
from transpiler.ir.intrinsics import UNCOPIED
from transpiler.ir.size import NOTHING, ONE, Size
from transpiler.ir.slotted import slotted


class ValueKind(enum.Enum):
    DENSE = 'dense'
    SELECTED_ROWS = 'selected rows'
    ARRAY = 'tensor array'
    OTHER = 'other'  # step scopes, rank tables, readers, feed and fetch holders


class RegionKind(enum.Enum):
    BLOCK = 'block'
    LOOP = 'loop'
    LOOP_GRADIENT = 'loop gradient'
    BRANCH = 'branch'
    BRANCH_GRADIENT = 'branch gradient'
    OPAQUE = 'opaque'  # run by an op whose rules the graph does not model

    @property
    def is_loop(self) -> bool:
        """Whether its ops run trip after trip."""
        return self in (RegionKind.LOOP, RegionKind.LOOP_GRADIENT)

    @property
    def is_gradient(self) -> bool:
        """Whether it is the gradient of another region."""
        return self in (RegionKind.LOOP_GRADIENT, RegionKind.BRANCH_GRADIENT)


@slotted
@dataclass(eq=False)
class Value:
    """A named cell of memory in the scope of one region: what one name of the program stands for.

    `storage` is the id of the value whose memory it uses: its own, or that of the value it was merged
    with. Passes that reuse memory change nothing else. `buffer` is the value whose memory it is a slice of, or which slices are
    of if that is itself: the runtime lets go of that memory when nobody holds any of them. `lasting`: an op has it in its scope as long as
    that exists, in the next runs too, and no other op and no collector can let go of it.
    """

    id: int
    name: str
    region: int
    kind: ValueKind = ValueKind.DENSE
    dtype: str = ''
    shape: Optional[Tuple[Size, ...]] = None  # None if a dim is unknown
    size: Optional[Size] = None  # bytes; None if a dim is unknown
    guessed: bool = False  # nobody has said that these are its dims: for figures alone
    at_most: Optional[Size] = None  # bytes that it never goes beyond, where its size is unknown
    at_least: Optional[Size] = None  # bytes that it has in any case, where no most is known either
    lod_level: int = 0
    persistable: bool = False
    parameter: bool = False
    fed: bool = False
    fetched: bool = False
    copied_out: bool = False  # fetched by the caller, for whom the runtime makes a copy
    skipped: bool = False
    parameter_gradient: bool = False
    written_between: bool = False  # by others, before the backward part of a program runs: see `boundary`
    copy_of: int = -1  # the imported value that it is declared like, for a value that a pass added
    buffer: int = -1
    lasting: bool = False
    follows: FrozenSet[str] = frozenset()  # inputs that decide its dims: see `extents`
    storage: int = -1

    def __post_init__(self) -> None:
        if self.storage < 0:
            self.storage = self.id

    def __eq__(self, other: object) -> bool:
        return self is other or type(other) is Value and _facts_of(self) == _facts_of(other)

    @property
    def bound(self) -> Optional[Size]:
        """What figures have of it: its size, or else what it is at the most, or at the least; None if nobody knows."""
        if self.size is not None:
            return self.size
        return self.at_least if self.at_most is None else self.at_most

    @property
    def extent(self) -> Optional[Tuple[Tuple[Size, ...], FrozenSet[str]]]:
        """The same for two values that have the same dims in every run; None if nobody knows."""
        return None if self.shape is None else (self.shape, self.follows)

    @property
    def unsized(self) -> bool:
        """Whether it is a tensor of a run of which nobody knows before how large it can become: figures have `at_least` of it, or nothing."""
        known = self.size is not None or self.at_most is not None
        return self.kind is ValueKind.DENSE and not known and not self.persistable

    @property
    def known_outside(self) -> bool:
        """Whether who runs the program gives it or takes it: fed, fetched, or kept from run to run."""
        return self.fed or self.fetched or self.persistable

    @property
    def may_be_asked_for(self) -> bool:
        """Whether somebody outside may look at it: it is `known_outside`, or the caller wants it left alone."""
        return self.known_outside or self.skipped

    def copy(self) -> Value:
        """The same facts in an object of its own."""
        return Value(*_facts_of(self))


_facts_of = operator.attrgetter(*(f.name for f in fields(Value)))


class Site(NamedTuple):
    """Where the user made an op: the frames of the call, the user's own first, and the scope of names, as 'encoder/layer_1'."""

    frames: Tuple[str, ...] = ()
    scope: str = ''


NOWHERE = Site()


@slotted
@dataclass
class Op:
    """One operator. `operands` and `results` are value ids by position; -1 stands for an empty slot.

    `origin` is the id of the op of the imported program that it is, or is a clone of; None for an op
    that a pass added. `backward`: it belongs to the backward part of a training program, or to the optimizer.
    `again`: it computes what its origin computes, too, for that not to be kept.
    `workspace`: bytes that its kernel allocates for itself while it runs, None if nobody knows; `bounded`: it may be less.
    `behind`: ids of ops that it stays behind, although no value says so.
    """

    id: int
    kind: str
    region: int
    operands: Tuple[int, ...] = ()
    results: Tuple[int, ...] = ()
    regions: Tuple[int, ...] = ()
    facts: OpFacts = field(default_factory=OpFacts)
    origin: Optional[int] = -1
    label: str = ''  # where the user made it: a source line, if the program carries one
    site: Site = NOWHERE
    backward: bool = False
    again: bool = False
    workspace: Optional[Size] = NOTHING
    bounded: bool = False
    behind: Tuple[int, ...] = ()
    _accesses: Optional[_Accesses] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._accesses = None
        if self.origin == -1:
            self.origin = self.id

    @property
    def makes_memory(self) -> bool:
        """Whether what it makes has no memory that was there before, or that something else has."""
        facts = self.facts
        return facts.known and not (self.regions or facts.aliases or facts.in_place or
                                    facts.one_memory or facts.side_effect or facts.shares_unsaid)

    def late_results(self, takes_own: bool) -> FrozenSet[int]:
        """Values that its kernel does not make in the memory that their names have; `takes_own`: if it needs some for itself."""
        at = self.facts.elsewhere | (self.facts.late if takes_own else frozenset())
        return frozenset(self.results[position] for position in at) - {-1}

    def given_in_place(self) -> Set[int]:
        """Ids of the operands that it may work in place on."""
        return {self.operands[i] for i, _ in self.facts.in_place} - {-1}

    def in_one_memory(self) -> Iterator[Tuple[int, int]]:
        """(operand, result) ids of the values that it gives one memory."""
        return ((self.operands[i], self.results[j]) for i, j in self.facts.one_memory)

    def reads(self) -> Tuple[int, ...]:
        """Ids of the values it names as inputs, each once."""
        found = self._accesses
        if found is None or found.operands is not self.operands or found.results is not self.results:
            found = self._work_out()
        return found.reads

    def writes(self) -> Tuple[int, ...]:
        """Ids of the values it changes, each once."""
        found = self._accesses
        if found is None or found.operands is not self.operands or found.results is not self.results:
            found = self._work_out()
        return found.writes

    def shape_reads(self) -> Tuple[int, ...]:
        """Ids of the values of which it reads the shape and never the data."""
        found = self._accesses
        if found is None or found.operands is not self.operands or found.results is not self.results:
            found = self._work_out()
        return found.shape_reads

    def data_reads(self) -> Tuple[int, ...]:
        """Ids of the values whose data it reads, each once."""
        found = self._accesses
        if found is None or found.operands is not self.operands or found.results is not self.results:
            found = self._work_out()
        return found.data_reads

    def touches(self) -> Tuple[int, ...]:
        """Ids of the values that it changes, and of those whose data it reads."""
        found = self._accesses
        if found is None or found.operands is not self.operands or found.results is not self.results:
            found = self._work_out()
        return found.touches

    def left_as_it_is(self) -> FrozenSet[int]:
        """Positions of results that are operands, too, and that it does not change."""
        pairs = self.facts.unchanged
        return frozenset(j for i, j in pairs if self.operands[i] == self.results[j])

    def _work_out(self) -> _Accesses:
        """What it touches. That is asked for so often that it is kept, and looked up without another call."""
        self._accesses = found = _accesses(self)
        return found


class _Accesses(NamedTuple):
    """`reads`, `writes`, `data_reads`, `shape_reads` and `touches` of an op with these operands and results."""

    operands: Tuple[int, ...]
    results: Tuple[int, ...]
    reads: Tuple[int, ...]
    writes: Tuple[int, ...]
    data_reads: Tuple[int, ...]
    shape_reads: Tuple[int, ...]
    touches: Tuple[int, ...]


def _accesses(op: Op) -> _Accesses:
    operands, results, shape_only = op.operands, op.results, op.facts.shape_only
    reads = _each_once(operands)
    writes = () if op.kind == UNCOPIED else _each_once(_changed(op))
    if not shape_only:
        return _Accesses(operands, results, reads, writes, reads, (), writes + reads)
    data = _each_once(v for i, v in enumerate(operands) if i not in shape_only)
    return _Accesses(operands, results, reads, writes, data,
                     tuple([v for v in reads if v not in data]), writes + data)


def _changed(op: Op) -> Tuple[int, ...]:
    left = op.left_as_it_is()
    return tuple([v for j, v in enumerate(op.results) if j not in left]) if left else op.results


def _each_once(values: Iterable[int]) -> Tuple[int, ...]:
    return tuple(dict.fromkeys([v for v in values if v >= 0]))


def leaves_out(source: Op, op: Op) -> bool:
    """Whether `op` makes some of the results of `source`, and all of those can be made one by one."""
    separate = dict(source.facts.separate)
    wanted = {i for i, v in enumerate(source.results) if v >= 0}
    made = {i for i, v in enumerate(op.results) if v >= 0}
    return op.kind == source.kind and bool(made) and made < wanted <= separate.keys()


# What is known to be so: for each of some values, whether it is true.
When = FrozenSet[Tuple[int, bool]]


def exclude(a: When, b: When) -> bool:
    """Whether the two can't both be so."""
    return any((value, not truth) in b for value, truth in a)


@dataclass
class Region:
    """Ops in order under one scope.

    `arguments` are (outer, inner) pairs that the runtime links (`links`) or copies in at each entry, `results` are
    (inner, outer) pairs handed out at each exit. A gradient region names in `forward` the region whose
    scope it continues: the values of that region that it reads are kept, per trip, until it has run.
    """

    id: int
    kind: RegionKind
    op: int = -1  # the op that runs it; -1 for the main region
    parent: int = -1
    forward: int = -1
    ops: List[int] = field(default_factory=list)
    arguments: Tuple[Tuple[int, int], ...] = ()
    results: Tuple[Tuple[int, int], ...] = ()
    trips: Size = ONE
    label: str = ''  # what the user knows it by
    keeps_scopes: bool = False  # one scope a trip, alive until the gradient has used it
    links: bool = False  # its arguments have the memory of what they stand for; for a gradient a trip's are copied all the same
    copies_kept: bool = False  # what it keeps for its gradient it copies at the end of a trip
    pops: bool = False  # the gradient of a branch: what that has kept is gone behind its last reader here, and not at the end
    frees_at_once: bool = False  # what dies in it is freed before the next op starts, by no thread of its own
    when: When = frozenset()  # of values written once: it runs only then

    def with_ops(self, ops: Iterable[int]) -> Region:
        """The same region with these ops, in a list of its own."""
        found = Region(*_facts_of_region(self))
        found.ops = list(ops)
        return found


_facts_of_region = operator.attrgetter(*(f.name for f in fields(Region)))


@dataclass
class Graph:
    """A program: values, ops and regions by id. Region 0 is the main one."""

    values: List[Value] = field(default_factory=list)
    ops: List[Op] = field(default_factory=list)
    regions: List[Region] = field(default_factory=list)

    def new_value(self, name: str, region: int, **facts: object) -> Value:
        value = Value(len(self.values), name, region, **facts)
        self.values.append(value)
        return value

    def new_op(self, kind: str, region: int, **facts: object) -> Op:
        """A new op at the end of `region`."""
        op = Op(len(self.ops), kind, region, **facts)
        self.ops.append(op)
        self.regions[region].ops.append(op.id)
        return op

    def new_region(self, kind: RegionKind, **facts: object) -> Region:
        region = Region(len(self.regions), kind, **facts)
        self.regions.append(region)
        return region

    def clone_value(self, value: int, name: str, region: int) -> Value:
        """A new value of `region` that looks like `value`."""
        original = self.values[value]
        return self.new_value(name,
                              region,
                              kind=original.kind,
                              dtype=original.dtype,
                              shape=original.shape,
                              follows=original.follows,
                              size=original.size,
                              guessed=original.guessed,
                              at_most=original.at_most,
                              at_least=original.at_least,
                              lod_level=original.lod_level,
                              skipped=original.skipped,
                              copy_of=value)

    def symbols(self) -> FrozenSet[str]:
        """Names of all symbolic dims in sizes and trips."""
        sizes = [v.size for v in self.values if v.size is not None]
        return frozenset().union(*(s.dims for s in sizes + [r.trips for r in self.regions]))

    @property
    def trains(self) -> bool:
        """Whether any of it is the backward part of a training program."""
        return any(op.backward for op in self.ops)

    def region_ops(self, region: int) -> Iterator[Op]:
        return map(self.ops.__getitem__, self.regions[region].ops)

    def walk(self, region: int = 0) -> Iterator[Op]:
        """All ops in program order, each before the ops of its regions."""
        return self.region_ops(region) if len(self.regions) == 1 else self._walk(region)

    def _walk(self, region: int) -> Iterator[Op]:
        ops, regions = self.ops, self.regions
        pending = [iter(regions[region].ops)
                  ]  # as deep as regions are nested, which is deeper than calls may be
        while pending:
            for index in pending[-1]:
                op = ops[index]
                yield op
                if op.regions:
                    pending += [iter(regions[inner].ops) for inner in reversed(op.regions)]
                    break
            else:
                pending.pop()

    def inside(self, op: Op) -> Iterator[Op]:
        """The ops nested in `op`, at any depth."""
        for region in op.regions:
            yield from self.walk(region)

    def in_loops(self, gradients: bool = True) -> Set[int]:
        """Bodies of loops, and of their `gradients`, and the regions inside them."""
        found: Set[int] = set()
        for region in self.regions:  # inner ones come after those around them
            is_body = region.kind.is_loop if gradients else region.kind is RegionKind.LOOP
            if is_body or region.parent in found:
                found.add(region.id)
        return found

    def runs_of(self, region: int, home: int = 0) -> Size:
        """How often `region` runs while `home`, itself or a region around it, runs once; a branch as if it were taken."""
        runs = ONE
        while region != home and region >= 0:
            runs = runs * self.regions[region].trips
            region = self.regions[region].parent
        return runs

    def copy(self) -> Graph:
        """A graph whose values and regions may be changed without changing this one's; ops are shared."""
        return Graph([v.copy() for v in self.values], list(self.ops),
                     [r.with_ops(r.ops) for r in self.regions])

    def fork(self) -> Graph:
        """The same, but its values are those of this graph: `change` alone gives it others."""
        return Graph(list(self.values), list(self.ops), [r.with_ops(r.ops) for r in self.regions])

    def change(self, value: int, **facts: object) -> None:
        """Puts a value with other facts in the place of that one, which other graphs may have."""
        self.values[value] = replace(self.values[value], **facts)

    def unshared(self) -> Graph:
        """The same ops in the same order, every value in a memory of its own, but for those that an op makes in that of its operand,
        as no runtime does by itself (`OpFacts.onto`)."""
        alone = Graph(list(self.values), list(self.ops), list(self.regions))
        first: Dict[int, int] = {}
        for op in self.walk():
            for i, j in op.facts.onto:
                source, target = op.operands[i], op.results[j]
                if self.values[source].storage == self.values[target].storage:
                    first[target] = first.get(source, source)
        for value in self.values:
            storage = first.get(value.id, value.id)
            if value.storage != storage:
                alone.change(value.id, storage=storage)
        return alone

    def without_bounds(self) -> Graph:
        """The same, as if all whose size is not known took nothing."""
        values = [
            replace(v, at_most=None, at_least=None) if v.bound is not v.size else v
            for v in self.values
        ]
        return Graph(values, list(self.ops), list(self.regions))

    def with_sizes(self, sizes: Mapping[int, Size]) -> Graph:
        """The same, as if values of which nobody knows the size, and what is declared like them, had these."""
        unknown = (v for v in self.values if v.size is None and v.at_most is None)
        found = {v.id: sizes.get(v.id, sizes.get(v.copy_of)) for v in unknown}
        values = [
            v if found.get(v.id) is None else replace(v, size=found[v.id]) for v in self.values
        ]
        return Graph(values, list(self.ops), list(self.regions))

    def without_conversions(self) -> Graph:
        """The same, as if no kernel wanted another layout or type than the one that is there."""
        ops = [
            replace(op, facts=replace(op.facts, converts=False)) if op.facts.converts else op
            for op in self.ops
        ]
        return Graph(list(self.values), ops, list(self.regions))

    def with_ones(self, names: AbstractSet[str]) -> Graph:
        """The same where the dims of these names are 1: what is as large as something else then, a runtime may take for it."""
        values = [
            replace(v, size=v.size.with_ones(names))
            if v.size is not None and not names.isdisjoint(v.size.dims) else v for v in self.values
        ]
        return Graph(values, list(self.ops), list(self.regions))

    @property
    def has_bounds(self) -> bool:
        """Whether of some value only a most, or a least, is known."""
        return any(v.bound is not v.size for v in self.values)

    def buffers(self) -> Dict[int, Tuple[int, ...]]:
        """By value that others are slices of: it, and those."""
        members: Dict[int, List[int]] = {}
        for value in self.values:
            if value.buffer >= 0:
                members.setdefault(value.buffer, [value.buffer]).append(value.id)
        return {whole: _each_once(each) for whole, each in members.items()}

    def known_by_name(self) -> List[Value]:
        """Those that ops name which have others look them up by these names."""
        named = _each_once(v for op in self.walk() if op.facts.by_names
                           for v in (*op.reads(), *op.writes()))
        return [self.values[v] for v in named]

    def shapes_read(self) -> FrozenSet[int]:
        """Storages of which some op reads the shape alone, and may ask for the type."""
        return frozenset(self.values[v].storage for op in self.walk() for v in op.shape_reads())

    def touched_elsewhere(self) -> FrozenSet[int]:
        """What ops of other regions than the main one name, and those that have some."""
        return frozenset(v for op in self.walk() if op.region != 0 or op.regions
                         for v in op.reads() + op.writes())

    def by_storage(self) -> Dict[int, List[int]]:
        """Value ids by storage."""
        members: Dict[int, List[int]] = {}
        for value in self.values:
            members.setdefault(value.storage, []).append(value.id)
        return members

    def storage_members(self) -> Dict[int, List[int]]:
        """The same, of every storage that has more than one."""
        return {s: m for s, m in self.by_storage().items() if len(m) > 1}
