"""From a rewritten Graph back to a ProgramDesc."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Dict, FrozenSet, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from paddle.base.proto import framework_pb2

from transpiler.analysis.positions import spans
from transpiler.analysis.segments import Segments
from transpiler.backends.paddle2.descs import ROLE, declare_vector, named_by, role_of
from transpiler.backends.paddle2.frames import without_ops
from transpiler.backends.paddle2.fusing import keep_fused_in_order
from transpiler.backends.paddle2.importer import (EMPTY_ARRAY, FIRST_TYPE, NEVER_WRITTEN,
                                                  ImportedProgram, empty_of_type, is_forget,
                                                  is_release)
from transpiler.backends.paddle2.making import make_fill, make_op
from transpiler.backends.paddle2.naming import Renamed, names_of, rename_lists
from transpiler.backends.paddle2.pinning import bind_to_next, bind_to_reader, chain, pin, uncopied
from transpiler.backends.paddle2.registry import EMPTY_NAME
from transpiler.backends.paddle2.rows import ROW_SUM, ROW_SUM_ATTRIBUTES, row_attributes, row_number_attributes
from transpiler.backends.paddle2.segments import cut
from transpiler.backends.paddle2.slices import touch_flat_parameters
from transpiler.ir import ADD_ROWS, CONVERT, DIVIDE, FILL, FORGET, MEMORY_KINDS, MOVE, READ_ELEMENT, RELEASE, ROW_NUMBERS, ROWS, SELECT, SHARE, UNCOPIED, ZEROS_LIKE, Graph, Op, Value, ValueKind

_BACKWARD = 1
_LIKE_THE_OPERAND = -1
_DIFFERENTIABLE = (framework_pb2.VarType.LOD_TENSOR, framework_pb2.VarType.LOD_TENSOR_ARRAY)
SHAPE_SLOT = 'ShapeOf'  # of an op that releases data and leaves the shape; no kernel sees it


@dataclass
class EmittedProgram:
    """The new message, the imported op that each of its ops stands for, and names that are gone.

    `origins` lists op ids block by block, in the order of the ops, None for added ones; a block that no op runs has none.
    `places` says in which block of the imported program, and where there, each of them stands; of those of `cloned`,
    there are several. `merged` maps each name that is gone to that of the memory it uses now, `renamed` has those that
    attributes may list. `stands_for` says, of each name that is new, what the last value in that memory was called. `emptied` are variables
    of the main block that have their names, and nothing in them in the end. `segments` are blocks that were cut out of the main
    block; what they declare is in `merged`, as it is gone from there.
    """

    message: framework_pb2.ProgramDesc
    origins: List[List[Optional[int]]]
    places: Dict[int, Tuple[int, int]]
    cloned: Set[int]
    merged: Dict[str, str]
    renamed: Renamed
    stands_for: Dict[str, str]
    emptied: Set[str]
    segments: FrozenSet[int] = frozenset()


def emit(
    program: ImportedProgram,
    graph: Graph,
    done: str = '',
    held: FrozenSet[int] = frozenset(),
    segments: Segments = ()) -> EmittedProgram:
    """A message like that of `program`, with the order and the storages of `graph`, and noted as `done`, if that is a text.

    The order of the regions of `held`, and of those that were pinned before, is pinned; so is that of the main region if it
    is cut into `segments`.
    """
    emitted = _Emitter(program, graph).run()
    if done:
        _end_gradients(emitted.message)
    for block, region in program.block_regions.items():
        if region == 0 and segments:
            _cut(program, emitted, segments, len(graph.regions[0].ops))
        elif region in held or block in program.pinned_blocks:
            pin(emitted.message, block)
        elif region == 0:
            bind_to_next(emitted.message, block, _releases(emitted.message.blocks[block]))
            flat = touch_flat_parameters(program.graph, program.descs)
            chain(emitted.message, block,
                  [at for at, origin in enumerate(emitted.origins[block]) if origin in flat])
        for position in _forgets(emitted.message.blocks[block]):
            bind_to_reader(emitted.message.blocks[block], position)
    for block, origins in zip(emitted.message.blocks, emitted.origins) if done else ():
        keep_fused_in_order(block, origins)
    if done:  # a declaration survives clone and save
        variable = emitted.message.blocks[0].vars.add(name=done)
        variable.type.type = framework_pb2.VarType.RAW
    return emitted


def _cut(program: ImportedProgram, emitted: EmittedProgram, segments: Segments, ops: int) -> None:
    """Puts the ops of each segment, of a main region of `ops`, into a block of its own."""
    had = {v.name for v in emitted.message.blocks[0].vars}
    kept = frozenset(
        v.name for v in program.graph.values if v.region == 0 and (v.fed or v.fetched or v.skipped))
    origins = emitted.origins[0]
    added = len(origins) - ops  # in front
    emitted.message, made = cut(emitted.message,
                                [(first + added, last + added) for first, last in segments], kept)
    main: List[Optional[int]] = [*origins]
    for first, last in reversed(made.values()):
        main[first:last + 1] = [None]
    emitted.origins[0] = main
    emitted.origins += [origins[first:last + 1] for first, last in made.values()]
    emitted.segments = frozenset(made)
    now = {v.name for v in emitted.message.blocks[0].vars}
    emitted.merged.update((name, name) for name in had - now)


def _end_gradients(message: framework_pb2.ProgramDesc) -> None:
    """Nothing has a gradient any more: what one would be made of is gone, or another's. That survives clone and save; the
    guard of a live program says more."""
    for variable in (v for block in message.blocks for v in block.vars):
        if not variable.persistable and variable.type.type in _DIFFERENTIABLE:
            variable.stop_gradient = True


def _releases(block: framework_pb2.BlockDesc) -> List[int]:
    """Positions of ops that let go of memory: the next op shall find it free."""
    return [i for i, op in enumerate(block.ops) if is_release(op)]


def _forgets(block: framework_pb2.BlockDesc) -> List[int]:
    return [i for i, op in enumerate(block.ops) if is_forget(op)]


class _Emitter:

    def __init__(self, program: ImportedProgram, graph: Graph) -> None:
        self._program = program
        self._graph = graph
        self._names = names_of(program, graph)
        # Values by the region that has them now, and by the one that declares them in the imported program.
        self._values_of: Dict[int, List[Value]] = {}
        self._declared_in: Dict[int, List[Value]] = {}
        for value in graph.values:
            self._values_of.setdefault(value.region, []).append(value)
            self._declared_in.setdefault(self._home(value), []).append(value)
        self._added = {
            RELEASE: self._emit_release,
            SHARE: self._emit_share,
            MOVE: self._emit_move,
            FORGET: self._emit_forget,
            UNCOPIED: self._emit_uncopied,
            READ_ELEMENT: self._emit_reload,
            ZEROS_LIKE: self._emit_like,
            FILL: self._emit_number,
            CONVERT: self._emit_cast,
            SELECT: self._emit_choice,
            DIVIDE: self._emit_quotient,
            ROWS: self._emit_rows,
            ROW_NUMBERS: self._emit_row_numbers,
            ADD_ROWS: self._emit_row_sum
        }
        self._declarations = {
            (region, v.name): v for block, region in program.block_regions.items()
            for v in program.message.blocks[block].vars
        }

    @cached_property
    def _named_elsewhere(self) -> FrozenSet[str]:
        """What ops of blocks name that no op runs, as Paddle's recompute leaves them behind: they stay as they are, and so do these."""
        run = self._program.block_regions
        unrun = (b for b in self._program.message.blocks if b.idx not in run)
        return frozenset(named_by(*(op for block in unrun for op in block.ops)))

    @cached_property
    def _shapes_read(self) -> FrozenSet[int]:
        return self._graph.shapes_read()

    @cached_property
    def _shape_read_later(self) -> Set[int]:
        """Values whose shape somebody reads after the last read of their data."""
        later = {v for v, span in spans(self._graph).items() if span.shape_last > span.last}
        storages = {self._graph.values[v].storage for v in later}
        return {v.id for v in self._graph.values if v.storage in storages}

    def run(self) -> EmittedProgram:
        message = without_ops(self._program.message)
        origins: List[List[Optional[int]]] = []
        for old, block in zip(self._program.message.blocks, message.blocks):
            region = self._program.block_regions.get(old.idx)
            if region is None:  # no op runs it
                block.ops.extend(old.ops)
                origins.append([])
            else:
                origins.append(self._emit_block(block, region))
        merged = {
            v.name: self._names[v.id] for v in self._graph.values if self._names[v.id] != v.name
        }
        cloned = {op.origin for op in self._graph.ops if op.origin not in (None, op.id)}
        return EmittedProgram(message, origins, self._program.places(), cloned, merged,
                              self._names.replaced, self._names.stands_for, self._names.emptied)

    def _emit_block(self, block: framework_pb2.BlockDesc, region: int) -> List[Optional[int]]:
        """Fills `block`, which has its variables by now; gives the origins of its ops."""
        ops = list(self._graph.region_ops(region))
        gone = {
            v.name
            for v in self._declared_in.get(region, ())
            if self._names[v.id] != v.name or v.region != region
        }
        had = list(block.vars)
        del block.vars[:]
        block.vars.extend(v for v in had if v.name not in gone)
        self._declare_added(block, region)
        declared = {v.name for v in block.vars}
        block.vars.extend(v for v in had if v.name in self._named_elsewhere - declared)
        self._declare_ours(block, ops)
        ahead = len(block.ops)
        for op in ops:
            self._emit_op(op, block.ops.add())
        _set_roles(block.ops[ahead:], ops)
        return [None] * ahead + [op.origin for op in ops]

    def _declare_ours(self, block: framework_pb2.BlockDesc, ops: List[Op]) -> None:
        """What ops of ours read, and ahead of all ops those that fill it."""
        kinds = {
            self._graph.values[v].kind for op in ops if op.kind == RELEASE for v in op.writes()
        }
        if any(op.kind == FORGET for op in ops):
            _declare_never_written(block)
        if ValueKind.ARRAY in kinds:
            _declare_empty_array(block)
        for dtype in sorted({self._type_given(op) for op in ops if self._is_release(op)}):
            _declare_empty(block, dtype)

    def _declare_added(self, block: framework_pb2.BlockDesc, region: int) -> None:
        """What the block does not declare by now, each storage like the value that it is called after."""
        for value in self._values_of.get(region, []):
            if not self._names.is_called_after(value):
                continue
            name = self._names[value.id]
            is_new = self._home(value) != region or name != value.name
            if value.copy_of >= 0 or (is_new and self._is_declared(value)):
                desc = block.vars.add()
                desc.CopyFrom(self._declaration(value.copy_of if value.copy_of >= 0 else value.id))
                desc.name = name
                desc.persistable = desc.is_parameter = False
                if value.copy_of >= 0 and value.kind is ValueKind.DENSE:
                    self._look_like(desc.type.lod_tensor.tensor, value)

    def _is_declared(self, value: Value) -> bool:
        original = self._program.graph.values[value.id]
        return (original.region, original.name) in self._declarations

    def _look_like(self, tensor: framework_pb2.VarType.TensorDesc, value: Value) -> None:
        """What a pass gave another type or another shape than that of the value it is declared like."""
        tensor.data_type = self._data_type(value.id)
        if value.shape != self._graph.values[
                value.copy_of].shape:  # a pass gives only sizes that are known
            del tensor.dims[:]
            tensor.dims.extend(dim.evaluate({}) for dim in value.shape)

    def _home(self, value: Value) -> int:
        """The region that the imported program declares `value` in; its own if a pass added it."""
        imported = self._program.graph.values
        return imported[value.id].region if value.id < len(imported) else value.region

    def _declaration(self, value: int) -> framework_pb2.VarDesc:
        original = self._program.graph.values[value]
        return self._declarations[original.region, original.name]

    def _emit_op(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        if op.origin is None or op.kind in (*MEMORY_KINDS, ADD_ROWS):
            self._added[op.kind](op, desc)
            return
        desc.CopyFrom(self._program.descs[op.origin])
        if op.facts.left_fold:
            # A part of a sum has fewer terms; which ones is for the names to say.
            del desc.inputs[0].arguments[len(op.operands):]
        self._rename(desc.inputs, iter(op.operands))
        self._rename(desc.outputs, iter(op.results))
        rename_lists(desc, self._names.replaced)
        if op.backward and op.id != op.origin:
            _set_role(desc, _BACKWARD)

    def _rename(self, slots: Iterable[framework_pb2.OpDesc.Var], values: Iterator[int]) -> None:
        for slot in slots:
            for i, old in enumerate(slot.arguments):
                value = next(values)
                name = EMPTY_NAME if value < 0 else self._names[value]
                if name != old:
                    slot.arguments[i] = name

    def _emit_share(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        """What Paddle's own in-place pass inserts; naming the operand as written orders it before the next op."""
        self._share_buffers(op, desc, with_shape=False)

    def _emit_move(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        self._share_buffers(op, desc, with_shape=True)

    def _share_buffers(self, op: Op, desc: framework_pb2.OpDesc, with_shape: bool) -> None:
        desc.type = 'share_buffer'
        operands = [self._names[v] for v in op.operands]
        desc.inputs.add(parameter='X', arguments=operands)
        desc.outputs.add(parameter='Out', arguments=[self._names[v] for v in op.results])
        desc.outputs.add(parameter='XOut', arguments=operands)
        attribute = desc.attrs.add(name='share_dims_and_dtype', type=framework_pb2.BOOLEANS)
        attribute.bools.extend([with_shape] * len(operands))

    def _emit_uncopied(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        uncopied(desc, self._names[op.operands[0]])

    def _emit_reload(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        desc.type = 'read_from_array'
        for slot, value in zip('XI', op.operands):
            desc.inputs.add(parameter=slot, arguments=[self._names[value]])
        desc.outputs.add(parameter='Out', arguments=[self._names[op.results[0]]])

    def _emit_like(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        self._make('fill_any_like', op, desc, ('X',), value=op.facts.fills, dtype=_LIKE_THE_OPERAND)

    def _emit_number(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        desc.CopyFrom(
            make_fill(self._names[op.results[0]], [1],
                      self._data_type(op.results[0]),
                      op.facts.fills,
                      str_value=repr(op.facts.fills)))

    def _emit_cast(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        self._make('cast',
                   op,
                   desc, ('X',),
                   in_dtype=self._data_type(op.operands[0]),
                   out_dtype=self._data_type(op.results[0]))

    def _emit_choice(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        self._make('where', op, desc, ('Condition', 'X', 'Y'))

    def _emit_quotient(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        self._make('elementwise_div', op, desc, ('X', 'Y'), axis=-1)

    def _emit_rows(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        self._make('slice', op, desc, ('Input',), **row_attributes(*op.facts.rows))

    def _emit_row_numbers(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        self._make('assign_value', op, desc, (), **row_number_attributes(*op.facts.rows))

    def _emit_row_sum(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        self._make(ROW_SUM, op, desc, ('X', 'AddValue', 'Index'), **ROW_SUM_ATTRIBUTES)
        desc.attrs.extend(a for a in self._program.descs[op.origin].attrs if a.name == ROLE)

    def _make(self, kind: str, op: Op, desc: framework_pb2.OpDesc, slots: Sequence[str],
              **attributes: object) -> None:
        operands = {slot: [self._names[v]] for slot, v in zip(slots, op.operands)}
        results = {'Out': [self._names[op.results[0]]]}
        desc.CopyFrom(make_op(kind, operands, results, **attributes))

    def _data_type(self, value: int) -> int:
        return framework_pb2.VarType.Type.Value(self._graph.values[value].dtype)

    def _emit_forget(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        """What the executor's collector does to a variable: its buffer goes, its shape stays."""
        desc.type = 'share_buffer'
        desc.inputs.add(parameter='X',
                        arguments=[NEVER_WRITTEN])  # several, Paddle would ask for their type
        desc.outputs.add(parameter='Out', arguments=[self._names[op.results[0]]])
        desc.outputs.add(parameter='XOut', arguments=[])
        desc.attrs.add(name='share_dims_and_dtype', type=framework_pb2.BOOLEANS, bools=[False])

    def _is_release(self, op: Op) -> bool:
        """Whether `op` releases tensors."""
        return (op.kind == RELEASE and
                self._graph.values[op.results[0]].kind is not ValueKind.ARRAY)

    def _type_given(self, op: Op) -> str:
        """The type that a RELEASE op leaves its results with: that of those whose shape somebody reads, and may ask for it."""
        written = (self._graph.values[v] for v in op.writes())
        return next((v.dtype for v in written if v.storage in self._shapes_read), FIRST_TYPE)

    def _emit_release(self, op: Op, desc: framework_pb2.OpDesc) -> None:
        """share_buffer from a tensor without elements: the old buffer is freed, the executor's own order kept."""
        dead = [self._names[v] for v in op.writes()]
        if self._graph.values[op.results[0]].kind is ValueKind.ARRAY:
            desc.type = 'assign'
            desc.inputs.add(parameter='X', arguments=[EMPTY_ARRAY])
            desc.outputs.add(parameter='Out', arguments=dead)
            return
        desc.type = 'share_buffer'
        dtype = self._type_given(op)
        desc.inputs.add(parameter='X', arguments=[empty_of_type(dtype)] * len(dead))
        desc.outputs.add(parameter='Out', arguments=dead)
        desc.outputs.add(parameter='XOut', arguments=[])
        # Paddle runs no share_buffer op whose inputs are of several types.
        shaped = [
            self._names[v]
            for v in op.writes()
            if v in self._shape_read_later and self._graph.values[v].dtype == dtype
        ]
        if shaped:  # or it looks as if nobody needed what they were before, and Paddle's passes take that out
            desc.inputs.add(parameter=SHAPE_SLOT, arguments=shaped)
        attribute = desc.attrs.add(name='share_dims_and_dtype', type=framework_pb2.BOOLEANS)
        # With its dims gone too, a fetch gives an empty array rather than what lies there now. Under a name of the user's
        # it has to be an error, as it is for dims without memory.
        kept = self._names.emptied
        attribute.bools.extend(
            v not in self._shape_read_later and self._names[v] not in kept for v in op.writes())


def _set_role(desc: framework_pb2.OpDesc, role: int) -> None:
    for attribute in desc.attrs:
        if attribute.name == ROLE:
            attribute.i = role


def _set_roles(descs: Sequence[framework_pb2.OpDesc], ops: List[Op]) -> None:
    """Gives added ops the role (forward, backward, optimize) of the op that they serve: `clone(for_test=True)` takes out
    the ops of the other roles, and fails on an op without one."""
    if all(op.origin is not None for op in ops):
        return
    roles = list(map(role_of, descs))
    role = 0
    for step in (1, -1):  # a release serves the op before it, the others the op after them
        for i in range(len(ops))[::step]:
            own = roles[i]
            if own is not None:
                role = own
            elif ops[i].origin is None and (ops[i].kind == RELEASE) == (step == 1):
                descs[i].attrs.add(name=ROLE, type=framework_pb2.INT, i=role)
                roles[i] = role


def _declare_empty_array(block: framework_pb2.BlockDesc) -> None:
    if any(v.name == EMPTY_ARRAY for v in block.vars):
        return
    variable = block.vars.add(name=EMPTY_ARRAY)
    variable.type.type = framework_pb2.VarType.LOD_TENSOR_ARRAY
    variable.type.tensor_array.tensor.data_type = framework_pb2.VarType.FP32


def _declare_never_written(block: framework_pb2.BlockDesc) -> None:
    if not any(v.name == NEVER_WRITTEN for v in block.vars):
        declare_vector(block, NEVER_WRITTEN, 0)


def _declare_empty(block: framework_pb2.BlockDesc, dtype: str) -> None:
    """Declares and fills the tensor without elements of a type, unless the block has it already."""
    name, data_type = empty_of_type(dtype), framework_pb2.VarType.Type.Value(dtype)
    if not any(v.name == name for v in block.vars):
        declare_vector(block, name, 0, data_type)
        block.ops.add().CopyFrom(make_fill(name, [0], data_type, 0.0, **{ROLE: 0}))
