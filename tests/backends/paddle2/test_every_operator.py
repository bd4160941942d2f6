"""Whatever operator stands in a program, with whatever attributes: asking for its facts never raises."""
from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

import pytest
from paddle.base import core
from paddle.base.framework import OpProtoHolder
from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2 import registry
from transpiler.backends.paddle2.importer import import_message
from transpiler.backends.paddle2.registry import OpRegistry

PROTOS = OpProtoHolder.instance().op_proto_map
# An extreme, an odd and a long value of each type that an attribute may have.
ODD = {
    framework_pb2.INT: ('i', (0, -7, 2**31 - 1)),
    framework_pb2.FLOAT: ('f', (0.0, -1.5, 1e30)),
    framework_pb2.STRING: ('s', ('', '?', '9' * 400)),
    framework_pb2.BOOLEAN: ('b', (False, True, True)),
    framework_pb2.LONG: ('l', (0, -7, 2**63 - 1)),
    framework_pb2.FLOAT64: ('float64', (0.0, -1.5, 1e300)),
    framework_pb2.INTS: ('ints', ([], [-7], [2**31 - 1] * 9)),
    framework_pb2.FLOATS: ('floats', ([], [-7.0], [1e30] * 9)),
    framework_pb2.STRINGS: ('strings', ([], ['?'], ['?'] * 9)),
    framework_pb2.BOOLEANS: ('bools', ([], [True], [True] * 9)),
    framework_pb2.LONGS: ('longs', ([], [-7], [2**63 - 1] * 9)),
    framework_pb2.FLOAT64S: ('float64s', ([], [-7.0], [1e300] * 9)),
}


def bare(kind: str) -> framework_pb2.OpDesc:
    """An op of that kind without attributes, an argument in each slot that its proto names; gradients have no proto."""
    desc = framework_pb2.OpDesc(type=kind)
    proto = PROTOS.get(kind)
    inputs = [s.name for s in proto.inputs] if proto else ['X', 'Out', 'Out@GRAD']
    outputs = [s.name for s in proto.outputs] if proto else ['X@GRAD']
    for slots, names in ((desc.inputs, inputs), (desc.outputs, outputs)):
        for name in names:
            slots.add(parameter=name, arguments=[f'{kind}.{name}'])
    return desc


def odd(kind: str, which: int) -> framework_pb2.OpDesc:
    """Each attribute with its odd value, those that say who made the op, too."""
    desc = bare(kind)
    for attribute in PROTOS[kind].attrs:
        if attribute.type in ODD:
            field, values = ODD[attribute.type]
            filled = desc.attrs.add(name=attribute.name, type=attribute.type)
            if isinstance(values[which], list):
                getattr(filled, field).extend(values[which])
            else:
                setattr(filled, field, values[which])
    return desc


def untyped(kind: str) -> framework_pb2.OpDesc:
    """Each attribute as a text."""
    desc = bare(kind)
    for attribute in PROTOS[kind].attrs:
        desc.attrs.add(name=attribute.name, type=framework_pb2.STRING, s='?')
    return desc


def program_of(descs: List[framework_pb2.OpDesc]) -> framework_pb2.ProgramDesc:
    message = framework_pb2.ProgramDesc()
    block = message.blocks.add(idx=0, parent_idx=-1)
    block.ops.extend(descs)
    for name in {n for op in descs for s in [*op.inputs, *op.outputs] for n in s.arguments}:
        looks = block.vars.add(name=name).type
        looks.type = framework_pb2.VarType.LOD_TENSOR
        looks.lod_tensor.tensor.data_type = framework_pb2.VarType.FP32
        looks.lod_tensor.tensor.dims.extend([2, 4, 4, 4])
    return message


def gradients(kind: str) -> Iterator[framework_pb2.OpDesc]:
    """What Paddle makes for an op with its default attributes; nothing if it makes nothing."""
    if any(a.type == framework_pb2.BLOCK for a in PROTOS[kind].attrs):
        return  # its gradient is made of the ops of that block
    program = core.ProgramDesc(program_of([bare(kind)]).SerializeToString())
    op = program.block(0).op(0)
    try:
        op.check_attrs()  # gives it its defaults
        made, _ = core.get_grad_op_desc(op, set(), [])
    except (RuntimeError, ValueError, IndexError):
        return
    yield from (framework_pb2.OpDesc.FromString(each.serialize_to_string()) for each in made)


def test_every_operator_can_be_asked_with_its_default_and_with_odd_attributes() -> None:
    kinds = sorted(core.get_all_op_names())
    assert len(kinds) > 1000 and set(PROTOS) <= set(kinds)
    asked = OpRegistry()
    known: Dict[str, bool] = {}
    for kind in kinds:
        known[kind] = asked.facts(bare(kind)).known
        for desc in [odd(kind, i) for i in range(3)] + [untyped(kind)] if kind in PROTOS else []:
            assert asked.facts(desc).known or asked.facts(desc).ordered
    made = {g.type: asked.facts(g) for kind in PROTOS for g in gradients(kind)}
    assert len(made) > 200 and all(facts.known for facts in made.values())
    assert sum(known.values()) > 0.95 * len(kinds)


def test_a_program_of_every_operator_is_read() -> None:
    kinds = sorted(kind for kind in PROTOS
                   if not any(a.type == framework_pb2.BLOCK for a in PROTOS[kind].attrs))
    program = import_message(program_of([bare(kind) for kind in kinds]))
    assert [program.descs[op.id].type for op in program.graph.ops] == kinds


@pytest.mark.parametrize('questions', [('infer_no_need_buffer_slots', '_get_eager_deletion_vars'),
                                       ('apply_pass',)])
@pytest.mark.parametrize('error', [RuntimeError, ValueError, IndexError, SystemError, MemoryError])
def test_an_op_of_which_paddle_does_not_answer_is_unknown(questions: Tuple[str, ...], error: type,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:

    def throws(*_: object) -> None:
        raise error('as some kernel does')

    assert OpRegistry().facts(bare('relu')).known
    for question in questions:
        monkeypatch.setattr(registry.core, question, throws)
    facts = OpRegistry().facts(bare('relu'))
    assert not facts.known and facts.ordered and not facts.in_place and not facts.shape_only


def test_what_an_op_reads_may_hang_on_its_attributes() -> None:
    """The gradient of sequence_conv needs the padding only where that is trained."""
    asked, read = OpRegistry(), {}
    for trained in (False, True, False):
        desc = framework_pb2.OpDesc(type='sequence_conv_grad')
        for slot in ('X', 'Filter', 'PaddingData', 'Out@GRAD'):
            desc.inputs.add(parameter=slot, arguments=[slot])
        desc.outputs.add(parameter='Filter@GRAD', arguments=['g'])
        desc.attrs.add(name='paddingTrainable', type=framework_pb2.BOOLEAN, b=trained)
        facts = asked.facts(desc)
        assert facts.known and facts == OpRegistry().facts(desc)
        assert read.setdefault(trained, facts) == facts
    assert read[False].shape_only == {2} and not read[True].shape_only
