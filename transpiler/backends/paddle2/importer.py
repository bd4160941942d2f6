"""From a ProgramDesc to a Graph: names become values, scopes become regions."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from functools import cached_property
from typing import Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

from google.protobuf.message import DecodeError
from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.backends.base import OPTIMIZED, RELEASED, Declared
from transpiler.backends.call_stacks import frames
from transpiler.backends.paddle2.broadcasts import works_in_place
from transpiler.backends.paddle2.caches import count_caches, link_caches, link_results
from transpiler.backends.paddle2.conditions import note_conditions
from transpiler.backends.paddle2.descs import ROLE, is_onednn, read_by, written_by
from transpiler.backends.paddle2.joined_arrays import link_joined
from transpiler.backends.paddle2.pinning import is_pinned, unpin
from transpiler.backends.paddle2.registry import EMPTY_NAME, OpRegistry, has_onednn_kernel
from transpiler.backends.paddle2.run_once import RUNS_BLOCK, is_segmented
from transpiler.backends.paddle2.selected_rows import bound_rows
from transpiler.backends.paddle2.separate import makes_separately, spare_released
from transpiler.backends.paddle2.shapes import Inferred, infer
from transpiler.backends.paddle2.slices import link_flat_parameters, link_slices
from transpiler.backends.paddle2.workspaces import Workspaces
from transpiler.errors import InvalidProgramError
from transpiler.ir import FORGET, HANDED_ON, MOVE, RELEASE, SHARE, UNCOPIED, Graph, Op, OpFacts, Region, RegionKind, Site, Size, Value, ValueKind
from transpiler.ir.extents import note_extents
from transpiler.ir.symbols import trip

_VarType = framework_pb2.VarType
# A tensor without elements. Sharing its buffer is how a RELEASE op makes a variable let go of its own; with the buffer it gets the
# type. There is one for each type, called after it, but for the first.
EMPTY_TENSOR, FIRST_TYPE = 'transpiler.empty', 'FP32'
# An array without elements, which makes an array let go of its tensors.
EMPTY_ARRAY = 'transpiler.empty_array'
# One that nobody ever writes to: a variable that shares its buffer has none.
NEVER_WRITTEN = 'transpiler.never_written'
CALL_STACK = 'op_callstack'
_DEEPEST = 150  # blocks inside each other
_BACKWARD, _OPTIMIZER = 1, 2  # bits of the attribute op_role
_COMPLEX = 'COMPLEX'
_NUMBER = re.compile(r'_[0-9]+$')
_KINDS = {
    _VarType.LOD_TENSOR: ValueKind.DENSE,
    _VarType.SELECTED_ROWS: ValueKind.SELECTED_ROWS,
    _VarType.LOD_TENSOR_ARRAY: ValueKind.ARRAY,
}
_DTYPES = MappingProxyType(dict(map(reversed, _VarType.Type.items())))
_MAY_BE_ADDED = ('share_buffer', 'depend', 'assign')
_REGION_KINDS = {
    'while': RegionKind.LOOP,
    'while_grad': RegionKind.LOOP_GRADIENT,
    'conditional_block': RegionKind.BRANCH,
    RUNS_BLOCK: RegionKind.BRANCH,
    'conditional_block_grad': RegionKind.BRANCH_GRADIENT,
}


@dataclass
class ImportedProgram:
    """A graph, and what it takes to write it back: the parsed message and the desc of each op. See `backends.base.Imported`."""

    graph: Graph
    message: framework_pb2.ProgramDesc
    descs: Dict[int, framework_pb2.OpDesc]  # by op id
    block_regions: Dict[int, int]  # block index -> region id; blocks that no op runs are missing
    pinned_blocks: FrozenSet[int] = frozenset()  # blocks whose order an earlier call held
    gone: Mapping[str, str] = field(default_factory=dict)  # names that earlier calls took away
    closed: str = ''
    under_way: int = 0  # of a section of a pipeline: so many small batches at a time
    elsewhere: FrozenSet[str] = frozenset()  # names that the other sections may have
    registry: Optional[OpRegistry] = None  # whose answers its facts are

    def symbols(self) -> FrozenSet[str]:
        """Names of all symbolic dims in sizes and trips."""
        return self.graph.symbols()

    @cached_property
    def shapes_read(self) -> FrozenSet[int]:
        """See Graph: of the graph as it is when this is first asked for."""
        return self.graph.shapes_read()

    @property
    def declared(self) -> Declared:
        here = declared(self.message, self.gone)
        return replace(here,
                       main=here.main | self.elsewhere,
                       everywhere=here.everywhere | self.elsewhere)

    @property
    def inputs(self) -> FrozenSet[str]:
        main = self.message.blocks[0]
        found = {v.name for v in self.graph.values if v.fed}
        found.update(v.name for v in main.vars if v.need_check_feed)
        found.update(written_by(*(op for op in main.ops if op.type == 'feed')))
        return frozenset(found)

    @property
    def done(self) -> FrozenSet[str]:
        both = frozenset((OPTIMIZED, RELEASED))
        if is_segmented(self.message):  # its order and its scopes are what they have to be
            return both
        return both.intersection(v.name for v in self.message.blocks[0].vars)

    def places(self) -> Dict[int, Tuple[int, int]]:
        """By op id: the index of its block, and its position in it."""
        return {
            op: (block, at) for block, region in self.block_regions.items()
            for at, op in enumerate(self.graph.regions[region].ops)
        }


def declared(
    message: framework_pb2.ProgramDesc, gone: Mapping[str, str] = MappingProxyType({})) -> Declared:
    """The names that `message` declares."""
    return Declared(frozenset(v.name for v in message.blocks[0].vars),
                    frozenset(v.name for block in message.blocks for v in block.vars), gone)


def parse(serialized: bytes) -> framework_pb2.ProgramDesc:
    """The message in `serialized`; raises InvalidProgramError if it is not a program."""
    try:
        message = framework_pb2.ProgramDesc.FromString(serialized)
    except DecodeError as error:
        raise InvalidProgramError(f'not a serialized Paddle program: {error}') from error
    if not message.IsInitialized():
        missing = message.FindInitializationErrors()[0]
        raise InvalidProgramError(f'not a serialized Paddle program: {missing} is missing')
    if not message.blocks:
        raise InvalidProgramError('not a serialized Paddle program: it has no block')
    return message


def _check_depth(message: framework_pb2.ProgramDesc) -> None:
    """Raises InvalidProgramError for blocks inside blocks deeper than calls may be."""
    depth: Dict[int, int] = {}
    for block in message.blocks:  # one comes behind that around it
        depth[block.idx] = 1 + depth.get(block.parent_idx, -1)
    deepest = max(depth.values())
    if deepest > _DEEPEST:
        raise InvalidProgramError(
            f'blocks are nested {deepest} deep; at most {_DEEPEST} are planned: '
            'a loop, or several programs, can take their place')


def import_program(
    serialized: bytes, fetched: Iterable[str] = (), skipped: Iterable[str] = ()) -> ImportedProgram:
    """The graph of a serialized ProgramDesc, as `Program.desc.serialize_to_string()` gives it; see `import_message`."""
    return import_message(parse(serialized), fetched, skipped)


def import_message(message: framework_pb2.ProgramDesc,
                   fetched: Iterable[str] = (),
                   skipped: Iterable[str] = (),
                   inferred: Callable[[framework_pb2.ProgramDesc], Inferred] = infer,
                   figures: bool = True,
                   registry: Optional[OpRegistry] = None) -> ImportedProgram:
    """The graph of a ProgramDesc.

    Args:
        message: becomes part of the result; what holds the order of its ops is taken out.
        fetched: names of the main block that the user will fetch.
        skipped: names, of any block, that must keep a memory of their own.
        inferred: gives the shapes, which takes most of the time.
        figures: say of each op what its kernel allocates, and where the user made it.
        registry: what is asked about operators: that of a program which is much the same has most answers. A new one, if not given.
    """
    _check_depth(message)
    pinned = frozenset(b.idx for b in message.blocks if is_pinned(message, b.idx))
    unpin(message)
    importer = _Importer(message, inferred(message), frozenset(fetched), frozenset(skipped),
                         figures, registry or OpRegistry())
    return replace(importer.run(), pinned_blocks=pinned)


class _Importer:

    def __init__(self, message: framework_pb2.ProgramDesc, inferred: Inferred,
                 fetched: FrozenSet[str], skipped: FrozenSet[str], figures: bool,
                 registry: OpRegistry) -> None:
        self._message = message
        self._shapes, self._at_most, self._at_least = inferred
        self._fetched = fetched
        self._skipped = skipped
        self._figures = figures
        self._workspaces = Workspaces()
        self._has_complex = False
        self._graph = Graph()
        self._registry = registry
        self._descs: Dict[int, framework_pb2.OpDesc] = {}
        self._sizes: Dict[Tuple[Tuple[Size, ...], int], Size] = {}
        self._regions: Dict[int, int] = {}
        self._scopes: Dict[int, Dict[str, int]] = {}  # block index -> name -> value
        self._copies: Dict[int, Dict[str, int]] = {}  # forward block -> name -> per-trip copy
        self._chains: Dict[int, List[Dict[str, int]]] = {
        }  # by block that is being read: where names are looked up
        # They are fed, and held, even if no op reads them.
        self._inputs = {v.name for v in message.blocks[0].vars if v.need_check_feed}
        self._runs = Counter(b for block in message.blocks for op in block.ops
                             if op.type == RUNS_BLOCK
                             for b in _blocks_run(op))  # by several, in parts

    def run(self) -> ImportedProgram:
        self._import_block(0, self._graph.new_region(RegionKind.BLOCK))
        self._mark_fed_and_fetched()
        link_slices(self._graph, self._descs)
        link_flat_parameters(self._graph, self._message.blocks[0], self._descs)
        link_caches(self._graph, self._descs)
        link_results(self._graph, self._descs)
        link_joined(self._graph, self._descs)
        note_conditions(self._graph, self._descs)
        spare_released(self._graph, self._descs)
        if self._figures:
            note_extents(self._graph, runs_as_declared=True)
        for value in self._graph.known_by_name():
            value.skipped = True
        return ImportedProgram(self._graph,
                               self._message,
                               self._descs,
                               self._regions,
                               registry=self._registry)

    def _import_block(self, index: int, region: Region) -> None:
        self._regions[index] = region.id
        scope = self._scopes.setdefault(index, {})
        self._chains[index] = list(self._scope_chain(index))
        for variable in self._message.blocks[index].vars:
            if variable.name not in scope:
                scope[variable.name] = self._declare(variable, index, region.id).id
        for desc in self._message.blocks[index].ops:
            self._import_op(desc, index, region)

    def _declare(self, variable: framework_pb2.VarDesc, index: int, region: int) -> Value:
        name, looks = variable.name, variable.type
        kind = _KINDS.get(looks.type, ValueKind.OTHER)
        value = self._graph.new_value(name,
                                      region,
                                      kind=kind,
                                      persistable=variable.persistable,
                                      parameter=variable.is_parameter,
                                      skipped=name in self._skipped)
        if kind is ValueKind.SELECTED_ROWS:
            value.dtype = _DTYPES[looks.selected_rows.data_type]
            self._has_complex |= value.dtype.startswith(_COMPLEX)
            value.shape = self._shapes.get((index, name))
        if kind is ValueKind.DENSE:
            dense = looks.lod_tensor
            data_type = dense.tensor.data_type
            value.dtype = _DTYPES[data_type]
            self._has_complex |= value.dtype.startswith(_COMPLEX)
            value.lod_level = dense.lod_level
            value.shape = self._shapes.get((index, name))
            if value.shape is not None:
                value.size = self._size(value.shape, data_type)
            elif self._at_most.get((index, name)) is not None:
                value.at_most = self._size(self._at_most[index, name], data_type)
            elif self._at_least.get((index, name)) is not None:
                value.at_least = self._size(self._at_least[index, name], data_type)
        return value

    def _size(self, shape: Tuple[Size, ...], data_type: int) -> Size:
        key = (shape, data_type)
        if key not in self._sizes:
            self._sizes[key] = Size.product(shape) * core.size_of_dtype(
                core.VarDesc.VarType(data_type))
        return self._sizes[key]

    def _import_op(self, desc: framework_pb2.OpDesc, index: int, region: Region) -> None:
        op = self._graph.new_op(desc.type, region.id, facts=self._registry.facts(desc))
        if op.kind == 'fill_constant' and any(map(type_of_empty, _slot(desc.outputs, 'Out'))):
            op.facts = replace(op.facts, side_effect=True)  # stays before the releases that need it
        self._descs[op.id] = desc
        if op.kind in _MAY_BE_ADDED and self._import_added(op, desc, index):
            return
        op.operands = self._resolve_all(desc.inputs, index)
        op.results = self._resolve_all(desc.outputs, index)
        if op.facts.in_place and not works_in_place(self._graph, op):
            op.facts = replace(op.facts, in_place=())
        if op.facts.separate and not makes_separately(self._graph, op):
            op.facts = replace(op.facts, separate=())
        role, callstack, scope = _made_as(desc)
        if self._has_own_layout(op, desc) or self._is_promoted(op):
            op.facts = replace(op.facts, converts=True)
        bound_rows(self._graph, op, desc)
        count_caches(self._graph, op, desc)
        if self._figures:
            op.workspace, op.bounded = self._workspaces.of(self._graph, op, desc)
            op.site = Site(frames(callstack), _scope(scope, role))
            op.label = next(iter(op.site.frames), '')
        op.backward = bool(role & (_BACKWARD | _OPTIMIZER))
        for block in _blocks_run(desc) if len(self._message.blocks) > 1 else ():
            self._runs[block] -= 1
            # Of the ops that run one block for one part after the other, the last finds what all others left.
            if block not in self._regions and self._runs[block] <= 0:
                op.regions += (self._import_region(op, desc, block, region),)

    def _has_own_layout(self, op: Op, desc: framework_pb2.OpDesc) -> bool:
        """Whether a kernel of oneDNN's runs it: one is asked for, and there is one for what it reads."""
        if not is_onednn(desc):
            return False
        return has_onednn_kernel(desc.type, {self._graph.values[v].dtype for v in op.reads()})

    def _is_promoted(self, op: Op) -> bool:
        """Whether the runtime makes complex numbers of an operand, because another is complex."""
        if not self._has_complex:
            return False
        types = {self._graph.values[v].dtype for v in op.operands if v >= 0} - {''}
        return 0 < sum(name.startswith(_COMPLEX) for name in types) < len(types)

    def _import_added(self, op: Op, desc: framework_pb2.OpDesc, index: int) -> bool:
        """Whether `desc` is what the emitter makes of a SHARE, MOVE, UNCOPIED, FORGET or RELEASE op; then `op` is that."""
        if desc.type == 'depend' and _slot(desc.inputs, 'X') == _slot(desc.inputs, 'Dep'):
            op.kind, op.facts = UNCOPIED, OpFacts()  # of the operator that says it, none is true
            op.operands = op.results = (self._resolve(_slot(desc.inputs, 'X')[0], index),)
            return True
        if is_release(desc):
            op.kind, op.facts = RELEASE, OpFacts(side_effect=True, loses_shape=_loses_shape(desc))
            op.operands = tuple(self._resolve(n, index) for n in _slot(desc.outputs, 'XOut'))
            op.results = tuple(self._resolve(n, index) for n in _slot(desc.outputs, 'Out'))
            return True
        if is_forget(desc):
            op.kind = FORGET
            op.results = tuple(self._resolve(n, index) for n in _slot(desc.outputs, 'Out'))
            return True
        if desc.type == 'share_buffer':
            op.kind = SHARE
            if _is_move(desc):
                op.kind, op.facts = MOVE, OpFacts()
            op.operands = tuple(self._resolve(n, index) for n in _slot(desc.inputs, 'X'))
            op.results = tuple(self._resolve(n, index) for n in _slot(desc.outputs, 'Out'))
            return True
        return False

    def _import_region(self, op: Op, desc: framework_pb2.OpDesc, block: int, parent: Region) -> int:
        kind = _REGION_KINDS.get(desc.type, RegionKind.OPAQUE)
        region = self._graph.new_region(kind, op=op.id, parent=parent.id, label=f'block {block}')
        forward_block = self._message.blocks[block].forward_block_idx
        if kind.is_gradient:
            region.forward = self._regions.get(forward_block, -1)
        if kind is RegionKind.LOOP:
            region.trips = Size.dim(trip(block))
            region.keeps_scopes = not _flag(desc, 'is_test')
        elif kind is RegionKind.BRANCH:
            region.frees_at_once = desc.type == RUNS_BLOCK  # by Paddle's old executor
            region.keeps_scopes = desc.type == 'conditional_block' and not _flag(desc, 'is_test')
        elif kind is RegionKind.LOOP_GRADIENT:
            region.trips = self._graph.regions[region.forward].trips
            region.arguments = self._link_output_gradients(op, desc, block, region)
        if kind is RegionKind.LOOP and region.keeps_scopes:
            region.arguments = self._copy_inputs(op, desc, block, region)
        self._import_block(block, region)
        if kind is RegionKind.LOOP_GRADIENT:
            region.results = self._hand_out_gradients(op, desc, block, 'X')
        elif kind is RegionKind.BRANCH_GRADIENT:
            region.results = self._hand_out_gradients(op, desc, block, 'Input')
        return region.id

    def _copy_inputs(self, op: Op, desc: framework_pb2.OpDesc, block: int,
                     region: Region) -> Tuple[Tuple[int, int], ...]:
        """The inputs that the runtime copies into each trip's scope, for the gradient to read."""
        kept = {n for n in _names_in_place(self._message.blocks[block])}
        copies = self._copies.setdefault(block, {})
        pairs = []
        for name in _slot(desc.inputs, 'X'):
            outer = self._graph.values[self._resolve(name, self._block_of(op.region))]
            if name in kept or outer.parameter or outer.kind is not ValueKind.DENSE:
                continue
            copies[name] = self._value_like(outer, name, region)
            pairs.append((outer.id, copies[name]))
        return tuple(pairs)

    def _link_output_gradients(self, op: Op, desc: framework_pb2.OpDesc, block: int,
                               region: Region) -> Tuple[Tuple[int, int], ...]:
        """Output gradients, under the names that they have inside; the runtime shares their memory."""
        scope = self._scopes.setdefault(block, {})
        outside = _slot(desc.inputs, 'Out@GRAD')
        inside = next((a.strings for a in desc.attrs if a.name == 'original_output_grad'), ())
        pairs = []
        for outer_name, inner_name in zip(outside, inside):
            outer = self._graph.values[self._resolve(outer_name, self._block_of(op.region))]
            if inner_name not in scope:
                scope[inner_name] = self._value_like(outer, inner_name, region)
            pairs.append((outer.id, scope[inner_name]))
        return tuple(pairs)

    def _value_like(self, outer: Value, name: str, region: Region) -> int:
        return self._graph.new_value(name,
                                     region.id,
                                     kind=outer.kind,
                                     dtype=outer.dtype,
                                     shape=outer.shape,
                                     size=outer.size,
                                     at_most=outer.at_most,
                                     at_least=outer.at_least,
                                     lod_level=outer.lod_level).id

    def _hand_out_gradients(self, op: Op, desc: framework_pb2.OpDesc, block: int,
                            slot: str) -> Tuple[Tuple[int, int], ...]:
        """Gradients of the inputs: the runtime finds the inner ones by the input's name."""
        outer_index = self._block_of(op.region)
        pairs = zip(_slot(desc.inputs, slot), _slot(desc.outputs, f'{slot}@GRAD'))
        return tuple((self._resolve(x + '@GRAD', block), self._resolve(outer, outer_index))
                     for x, outer in pairs
                     if outer != EMPTY_NAME)

    def _block_of(self, region: int) -> int:
        return next(b for b, r in self._regions.items() if r == region)

    def _resolve_all(self, slots: Iterable[framework_pb2.OpDesc.Var],
                     index: int) -> Tuple[int, ...]:
        """Values by position; most names are those of the block itself."""
        scope = self._scopes[index]
        return tuple([
            scope[name] if name in scope and name != EMPTY_NAME else self._resolve(name, index)
            for slot in slots
            for name in slot.arguments
        ])

    def _resolve(self, name: str, index: int) -> int:
        """The value that `name` stands for in block `index`; -1 for an empty argument."""
        if name == EMPTY_NAME:
            return -1
        for scope in self._chains.get(index) or self._scope_chain(index):
            if name in scope:
                return scope[name]
        value = self._graph.new_value(name, self._regions[index], kind=ValueKind.OTHER)
        self._scopes[index][name] = value.id
        return value.id

    def _scope_chain(self, index: int) -> Iterable[Dict[str, int]]:
        seen: Set[int] = set()
        while index >= 0 and index not in seen:
            seen.add(index)
            block = self._message.blocks[index]
            yield self._scopes.get(index, {})
            if block.forward_block_idx >= 0:
                yield self._scopes.get(block.forward_block_idx, {})
                yield self._copies.get(block.forward_block_idx, {})
            index = block.parent_idx

    def _mark_fed_and_fetched(self) -> None:
        written: Set[int] = set()
        read: Set[int] = set()
        for op in self._graph.walk():
            read.update(op.reads())
            if op.kind not in ('feed', RELEASE):
                written.update(op.writes())
        gradients = {f'{v.name}@GRAD' for v in self._graph.values if v.parameter}
        for value in self._graph.values:
            is_main = value.region == 0
            value.parameter_gradient = is_main and value.name in gradients
            value.fetched = value.copied_out = is_main and value.name in self._fetched
            enters = value.id in read or value.name in self._inputs
            value.fed = (is_main and not value.persistable and enters and value.id not in written)
        for op in self._graph.region_ops(0):
            if op.kind in ('fetch', 'fetch_v2'):
                for v in op.reads():
                    self._graph.values[v].fetched = True


def _is_move(desc: framework_pb2.OpDesc) -> bool:
    """Whether `desc`, a share_buffer op, is what the emitter makes of a MOVE op: each pair has a handed-on name."""
    shares_all = all(all(a.bools) for a in desc.attrs if a.name == 'share_dims_and_dtype')
    pairs = zip(_slot(desc.inputs, 'X'), _slot(desc.outputs, 'Out'))
    return shares_all and all(HANDED_ON in x + out for x, out in pairs)


def is_release(desc: framework_pb2.OpDesc) -> bool:
    """Whether `desc` is what the emitter makes of a RELEASE op."""
    read = set(_slot(desc.inputs, 'X'))
    if desc.type == 'assign':
        return read == {EMPTY_ARRAY}
    return desc.type == 'share_buffer' and len(read) == 1 and all(map(type_of_empty, read))


def empty_of_type(dtype: str) -> str:
    """The name of the tensor without elements of this type."""
    return EMPTY_TENSOR if dtype == FIRST_TYPE else f'{EMPTY_TENSOR}.{dtype}'


def type_of_empty(name: str) -> str:
    """The type of the tensor without elements of that name; nothing if it is none."""
    first, _, dtype = name.partition(f'{EMPTY_TENSOR}.')
    if name == EMPTY_TENSOR:
        return FIRST_TYPE
    return dtype if not first and dtype in _VarType.Type.keys() and dtype != FIRST_TYPE else ''


def is_forget(desc: framework_pb2.OpDesc) -> bool:
    """Whether `desc` is what the emitter makes of a FORGET op."""
    return desc.type == 'share_buffer' and set(_slot(desc.inputs, 'X')) == {NEVER_WRITTEN}


def _loses_shape(desc: framework_pb2.OpDesc) -> FrozenSet[int]:
    """Positions of the results that a RELEASE op leaves without their shape, too."""
    flags = next((a.bools for a in desc.attrs if a.name == 'share_dims_and_dtype'), ())
    return frozenset(i for i, flag in enumerate(flags) if flag)


def _slot(slots: Iterable[framework_pb2.OpDesc.Var], name: str) -> List[str]:
    return next((list(s.arguments) for s in slots if s.parameter == name), [])


def _flag(desc: framework_pb2.OpDesc, name: str) -> bool:
    return next((a.b for a in desc.attrs if a.name == name), False)


def _made_as(desc: framework_pb2.OpDesc) -> Tuple[int, Sequence[Union[str, bytes]], str]:
    """The role of an op, the call stack of who made it, and the scope of names in which that was done."""
    role, callstack, scope = 0, (), ''
    for attribute in desc.attrs:
        name = attribute.name
        if name == CALL_STACK:
            callstack = attribute.strings
        elif name == ROLE:
            role = attribute.i
        elif name == 'op_namescope':
            scope = attribute.s if isinstance(attribute.s, str) else ''
    return role, callstack, scope


def _scope(given: str, role: int) -> str:
    """The scope of names that an op is in. Optimizers open another for each parameter, with a number: one is meant."""
    first, slash, rest = given.strip('/').partition('/')
    return (_NUMBER.sub('', first) if role & _OPTIMIZER else first) + slash + rest


def _blocks_run(desc: framework_pb2.OpDesc) -> List[int]:
    blocks: List[int] = []
    for attribute in desc.attrs:
        if attribute.type == framework_pb2.BLOCK:
            blocks.append(attribute.block_idx)
        elif attribute.type == framework_pb2.BLOCKS:
            blocks.extend(attribute.blocks_idx)
    return blocks


def _names_in_place(block: framework_pb2.BlockDesc) -> FrozenSet[str]:
    """Names that some op of `block` has among both its inputs and its outputs."""
    names: Set[str] = set()
    for op in block.ops:
        names.update(set(read_by(op)).intersection(written_by(op)))
    return frozenset(names)
