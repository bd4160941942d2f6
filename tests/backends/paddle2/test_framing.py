"""A message that says anything else than the graph that was proved equal is rejected: each mutation of one that is accepted."""
from __future__ import annotations

import copy
from functools import lru_cache
from typing import Callable, Dict, Iterator, List, Tuple

import pytest
from paddle.base.proto import framework_pb2

from benchmarks.programs import build, small_options
from transpiler.arguments import dim_values
from transpiler.backends.base import OPTIMIZED
from transpiler.backends.paddle2.emitter import EmittedProgram, emit
from transpiler.backends.paddle2.importer import (EMPTY_ARRAY, EMPTY_TENSOR, ImportedProgram,
                                                  empty_of_type, import_program)
from transpiler.backends.paddle2.programs import SerializedPrograms
from transpiler.errors import VerificationError
from transpiler.flow import prove
from transpiler.planning import PlanOptions, plan
from transpiler.runtime import RETAINING

Message = framework_pb2.ProgramDesc
Mutation = Callable[[EmittedProgram], None]
Named = Tuple[str, Mutation]
# Clones, replays, reloads, releases, shared and moved storages; sub-blocks and their gradients.
CASES = {
    'loop': (RETAINING, PlanOptions(recompute='max', skip_grads=False)),
    'transformer': (RETAINING, PlanOptions(recompute='max', level=1)),
}
_VarType = framework_pb2.VarType


@lru_cache(maxsize=None)
def rewritten(name: str) -> Tuple[ImportedProgram, EmittedProgram]:
    model, options = CASES[name]
    case = build(name, small_options(name, dropout=0.1))
    program = import_program(case.main.desc.serialize_to_string(), case.fetch)
    dims, _ = dim_values(program.symbols(), 4, None)
    decided = plan(program.graph, model, dims, options)
    emitted = emit(program, decided.graph, OPTIMIZED, decided.held)
    prove(SerializedPrograms(), program, emitted)
    return program, emitted


def is_rejected(name: str, mutate: Mutation) -> bool:
    program, emitted = rewritten(name)
    changed = copy.copy(emitted)
    changed.message = Message.FromString(emitted.message.SerializeToString())
    changed.origins = [list(block) for block in emitted.origins]
    mutate(changed)
    assert changed.message != emitted.message  # it is a mutation
    try:
        prove(SerializedPrograms(), program, changed)
    except VerificationError:
        return True
    return False


def accepted(name: str, mutations: Iterator[Named]) -> List[str]:
    """Names of the mutations that nobody noticed; there are some at all."""
    tried = list(mutations)
    assert tried
    return [what for what, mutate in tried if not is_rejected(name, mutate)]


# ---------------------------------------------------------------------------------------------------
# Declarations


def _variables(name: str) -> Dict[str, Tuple[int, int]]:
    """One variable (block, position) of each sort."""
    program, emitted = rewritten(name)
    found: Dict[str, Tuple[int, int]] = {}
    for block in emitted.message.blocks:
        known = {v.name for v in program.message.blocks[block.idx].vars}
        for at, variable in enumerate(block.vars):
            if variable.type.type == _VarType.LOD_TENSOR:
                origin = ('kept'
                          if variable.name in known else 'empty' if variable.name == EMPTY_TENSOR
                          else 'order' if variable.name.startswith('execution_order') else 'added')
                sort = (
                    f'{origin} {"persistable " if variable.persistable else ""}'
                    f'{"parameter " if variable.is_parameter else ""}{"inside" if block.idx else ""}'
                )
                found.setdefault(sort, (block.idx, at))
    assert any(sort.startswith('added') for sort in found)
    return {sort: at for sort, at in found.items() if not sort.startswith('order')}


def _dtype(v: framework_pb2.VarDesc) -> None:
    tensor = v.type.lod_tensor.tensor
    tensor.data_type = _VarType.FP64 if tensor.data_type != _VarType.FP64 else _VarType.FP32


def _shape(v: framework_pb2.VarDesc) -> None:
    v.type.lod_tensor.tensor.dims.append(2)


def _lod(v: framework_pb2.VarDesc) -> None:
    v.type.lod_tensor.lod_level += 1


def _persistable(v: framework_pb2.VarDesc) -> None:
    v.persistable = not v.persistable


def _parameter(v: framework_pb2.VarDesc) -> None:
    v.is_parameter = not v.is_parameter


def _fed(v: framework_pb2.VarDesc) -> None:
    v.need_check_feed = not v.need_check_feed


def _gradient(v: framework_pb2.VarDesc) -> None:
    v.stop_gradient = not v.stop_gradient


def _kind(v: framework_pb2.VarDesc) -> None:
    v.type.type = _VarType.LOD_TENSOR_ARRAY


def _name(v: framework_pb2.VarDesc) -> None:
    v.name += '.other'


# What a name that is new looks like is for the ops that write it; its shape and what follows from its gradient say nothing.
OF_ALL = (_dtype, _persistable, _parameter, _fed, _kind, _name)
OF_KEPT = (*OF_ALL, _shape, _lod, _gradient)


def _declarations(name: str) -> Iterator[Named]:
    for sort, (block, at) in _variables(name).items():
        for change in OF_ALL if sort.startswith('added') else OF_KEPT:
            yield (f'{change.__name__} of {sort}',
                   lambda e, b=block, i=at, change=change: change(e.message.blocks[b].vars[i]))


def test_a_changed_declaration_is_rejected() -> None:
    assert accepted('loop', _declarations('loop')) == []


def _blocks(name: str) -> Iterator[Named]:
    _, emitted = rewritten(name)

    def drop(e: EmittedProgram, block: int, at: int) -> None:
        del e.message.blocks[block].vars[at]

    def again(e: EmittedProgram, block: int, at: int) -> None:
        e.message.blocks[block].vars.add().CopyFrom(e.message.blocks[block].vars[at])

    def other(e: EmittedProgram, field: str, block: int) -> None:
        setattr(e.message.blocks[block], field, getattr(e.message.blocks[block], field) + 1)

    for sort, (block, at) in _variables(name).items():
        yield f'dropped {sort}', lambda e, b=block, i=at: drop(e, b, i)
        yield f'twice {sort}', lambda e, b=block, i=at: again(e, b, i)
    for block in range(len(emitted.message.blocks)):
        yield f'forward of {block}', lambda e, b=block: other(e, 'forward_block_idx', b)
        if block:
            yield f'parent of {block}', lambda e, b=block: other(e, 'parent_idx', b)


def test_a_declaration_less_or_more_or_another_nesting_is_rejected() -> None:
    assert accepted('loop', _blocks('loop')) == []


# ---------------------------------------------------------------------------------------------------
# The tensor without elements


def _fills(message: Message) -> List[Tuple[int, int]]:
    return [(block.idx, at)
            for block in message.blocks
            for at, op in enumerate(block.ops)
            if op.type == 'fill_constant' and op.outputs[0].arguments[0] == EMPTY_TENSOR]


def _emptiness(name: str) -> Iterator[Named]:

    def moved(e: EmittedProgram, block: int, at: int, to: int) -> None:
        ops, origins = list(e.message.blocks[block].ops), e.origins[block]
        ops.insert(to, ops.pop(at))
        origins.insert(to, origins.pop(at))
        kept = [framework_pb2.OpDesc.FromString(op.SerializeToString()) for op in ops]
        del e.message.blocks[block].ops[:]
        e.message.blocks[block].ops.extend(kept)

    def dropped(e: EmittedProgram, block: int, at: int) -> None:
        del e.message.blocks[block].ops[at]
        del e.origins[block][at]

    def twice(e: EmittedProgram, block: int, at: int) -> None:
        moved_op = e.message.blocks[block].ops[at]
        e.message.blocks[block].ops.add().CopyFrom(moved_op)
        e.origins[block].append(None)

    def full(e: EmittedProgram, block: int, at: int) -> None:
        shape = next(a for a in e.message.blocks[block].ops[at].attrs if a.name == 'shape')
        shape.longs[0] = 3

    def elsewhere(e: EmittedProgram, block: int, at: int) -> None:
        e.message.blocks[block].ops[at].outputs[0].arguments[0] = EMPTY_ARRAY

    def onednn(e: EmittedProgram, block: int, at: int) -> None:
        add_onednn(e.message.blocks[block].ops[at], True)

    _, emitted = rewritten(name)
    for block, at in _fills(emitted.message):
        releases = [
            i for i, op in enumerate(emitted.message.blocks[block].ops)
            if op.type == 'share_buffer' and EMPTY_TENSOR in op.inputs[0].arguments
        ]
        where = f' in block {block}'
        yield 'dropped' + where, lambda e, b=block, i=at: dropped(e, b, i)
        yield 'behind a release' + where, lambda e, b=block, i=at, to=releases[0]: moved(
            e, b, i, to)
        yield 'last' + where, lambda e, b=block, i=at: moved(e, b, i, len(e.origins[b]) - 1)
        yield 'twice' + where, lambda e, b=block, i=at: twice(e, b, i)
        yield 'full' + where, lambda e, b=block, i=at: full(e, b, i)
        yield 'elsewhere' + where, lambda e, b=block, i=at: elsewhere(e, b, i)
        yield 'by oneDNN' + where, lambda e, b=block, i=at: onednn(e, b, i)


@pytest.mark.parametrize('name', CASES)
def test_releases_without_anything_empty_are_rejected(name: str) -> None:
    assert accepted(name, _emptiness(name)) == []


def add_onednn(op: framework_pb2.OpDesc, on: bool) -> None:
    op.attrs.add(name='use_mkldnn', type=framework_pb2.BOOLEAN, b=on)


@pytest.mark.parametrize('name', CASES)
def test_what_paddle_writes_into_a_program_that_it_reads_changes_nothing(name: str) -> None:
    """It says of the tensor without elements that oneDNN does not fill it."""

    def said(e: EmittedProgram) -> None:
        for block, at in _fills(e.message):
            add_onednn(e.message.blocks[block].ops[at], False)

    assert _fills(rewritten(name)[1].message) and not is_rejected(name, said)


def test_a_release_that_leaves_no_shape_to_a_reader_of_the_shape_is_rejected() -> None:
    """Of releases that keep the shape there is one, at least, after which it is read."""

    def bare(e: EmittedProgram) -> None:
        for attribute in (a for op in e.message.blocks[0].ops for a in op.attrs):
            if attribute.name == 'share_dims_and_dtype' and not all(attribute.bools):
                attribute.bools[:] = [True] * len(attribute.bools)

    assert is_rejected('transformer', bare)


def test_a_release_that_leaves_another_type_to_a_reader_of_the_shape_is_rejected() -> None:
    """All of it is there, declared and filled, but of a type that nothing of the program has."""
    name, dtype = empty_of_type('FP64'), _VarType.FP64

    def other(e: EmittedProgram) -> None:
        for block in e.message.blocks:
            for variable in (v for v in block.vars if v.name == EMPTY_TENSOR):
                variable.name, variable.type.lod_tensor.tensor.data_type = name, dtype
            for op in block.ops:
                for slot in [*op.inputs, *op.outputs]:
                    slot.arguments[:] = [name if n == EMPTY_TENSOR else n for n in slot.arguments]
                for fill in (a for a in op.attrs if a.name == 'dtype' and
                             op.type == 'fill_constant' and op.outputs[0].arguments[0] == name):
                    fill.i = dtype

    assert is_rejected('transformer', other)


# ---------------------------------------------------------------------------------------------------
# Operators


def _ops(name: str) -> Dict[str, Tuple[int, int]]:
    """One op (block, position) of each kind, of those that were there and of those that were added."""
    _, emitted = rewritten(name)
    found: Dict[str, Tuple[int, int]] = {}
    for block in emitted.message.blocks:
        for at, origin in enumerate(emitted.origins[block.idx]):
            sort = f'{"added" if origin is None else "kept"} {block.ops[at].type}'
            found.setdefault(sort, (block.idx, at))
    return found


def _change(attribute: framework_pb2.OpDesc.Attr) -> bool:
    """Gives it another value; False for a list without elements, or of a type that none has here."""
    for field in ('i', 'f', 'l', 'float64', 'block_idx'):
        if attribute.HasField(field):
            setattr(attribute, field, getattr(attribute, field) + 1)
            return True
    if attribute.HasField('s') or attribute.HasField('b'):
        attribute.s, attribute.b = attribute.s + '?', not attribute.b
        return True
    for field in ('ints', 'longs', 'floats', 'bools'):
        values = getattr(attribute, field)
        if values:
            values.append(values[0])
            return True
    return False


def _operators(name: str) -> Iterator[Named]:
    _, emitted = rewritten(name)

    def attribute(e: EmittedProgram, block: int, at: int, which: int) -> None:
        _change(e.message.blocks[block].ops[at].attrs[which])

    def more(e: EmittedProgram, block: int, at: int) -> None:
        e.message.blocks[block].ops[at].attrs.add(name='axis', type=framework_pb2.INT, i=1)

    def slot(e: EmittedProgram, block: int, at: int) -> None:
        op = e.message.blocks[block].ops[at]
        (op.inputs or op.outputs)[0].parameter += 'Other'

    def target(e: EmittedProgram, block: int, at: int) -> None:
        e.message.blocks[block].ops[at].is_target = True

    seen = set()
    for sort, (block, at) in _ops(name).items():
        op = emitted.message.blocks[block].ops[at]
        for which, each in enumerate(op.attrs):
            # Added ops have the role of those that they serve, whichever that is.
            is_free = each.name == 'op_role' and sort.startswith('added')
            kept = sort.startswith('kept') and each.name
            if not is_free and kept not in seen and _change(
                    framework_pb2.OpDesc.Attr.FromString(each.SerializeToString())):
                seen.add(kept or sort)
                yield (f'{each.name} of {sort}',
                       lambda e, b=block, i=at, which=which: attribute(e, b, i, which))
        if sort.startswith('kept') and len(seen) % 5:
            continue
        yield f'one more of {sort}', lambda e, b=block, i=at: more(e, b, i)
        yield f'slot of {sort}', lambda e, b=block, i=at: slot(e, b, i)
        yield f'target {sort}', lambda e, b=block, i=at: target(e, b, i)


def test_an_operator_with_another_attribute_or_slot_is_rejected() -> None:
    assert accepted('loop', _operators('loop')) == []
    assert any(sort.startswith('added') for sort in _ops('loop'))
