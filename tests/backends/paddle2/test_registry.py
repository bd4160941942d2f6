"""Operator facts are what Paddle's registry, its in-place pass and its collector say."""
from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Set, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle.base import core
from paddle.base.executor import _apply_inplace_addto_pass
from paddle.base.framework import OpProtoHolder
from paddle.base.proto import framework_pb2

from benchmarks.programs import build, small_options
from tests.builds import needs_cpu_build
from tests.harness import new_programs
from tests.scenarios.common import append, data, fc, named, train
from transpiler import memory_optimize
from transpiler.backends.paddle2.registry import OpRegistry
from transpiler.backends.workers import rank_over_gloo
from transpiler.ir import OpFacts

Program = framework_pb2.ProgramDesc


def program_of(build: Callable[[], Any]) -> Program:
    """The message of a program that `build` writes into; its result becomes the loss, if it is a scalar."""
    with new_programs() as (main, _):
        build()
    return Program.FromString(main.desc.serialize_to_string())


def facts_of(build: Callable[[], Any], kind: str) -> List[OpFacts]:
    registry = OpRegistry()
    return [
        registry.facts(op)
        for block in program_of(build).blocks
        for op in block.ops
        if op.type == kind
    ]


def desc_of(kind: str) -> framework_pb2.OpDesc:
    """An op of that kind with an argument in each slot that its proto names."""
    proto = OpProtoHolder.instance().get_op_proto(kind)
    desc = framework_pb2.OpDesc(type=kind)
    for slots, named_by in ((desc.inputs, proto.inputs), (desc.outputs, proto.outputs)):
        for slot in named_by:
            slots.add(parameter=slot.name, arguments=[f'{slot.name}_{len(slots)}'])
    return desc


# ---------------------------------------------------------------------------------------------------
# In place


def positions_as_names(op: framework_pb2.OpDesc, pairs: Any) -> Set[Tuple[str, str]]:
    operands = [n for s in op.inputs for n in s.arguments]
    results = [n for s in op.outputs for n in s.arguments]
    return {(operands[i], results[j]) for i, j in pairs}


def shared_by_paddle(op: framework_pb2.OpDesc) -> Set[Tuple[str, str]]:
    """What buffer_shared_inplace_pass shares in a program of this op alone."""
    message = Program()
    block = message.blocks.add(idx=0, parent_idx=-1)
    block.ops.add().CopyFrom(op)
    for slot in list(op.inputs) + list(op.outputs):
        for name in slot.arguments:
            tensor = block.vars.add(name=name).type
            tensor.type = framework_pb2.VarType.LOD_TENSOR
            tensor.lod_tensor.tensor.data_type = framework_pb2.VarType.FP32
            tensor.lod_tensor.tensor.dims.append(4)
    program = paddle.static.Program.parse_from_string(message.SerializeToString())
    _apply_inplace_addto_pass(program, True, False, [])
    block = program.desc.block(0)
    ops = [block.op(i) for i in range(block.op_size())]
    return {(a, b) for each in ops if each.type() == 'share_buffer'
            for a, b in zip(each.input('X'), each.output('Out'))}


@functools.lru_cache(maxsize=None)
def real_operators() -> Dict[str, framework_pb2.OpDesc]:
    """One op of each kind that a convolutional, a recurrent and an attention network are trained with."""
    found: Dict[str, framework_pb2.OpDesc] = {}
    for name in ('resnet18', 'mobilenet_v2', 'transformer', 'bert', 'lstm'):
        case = build(name, small_options(name, optimizer='adam'))
        for op in Program.FromString(case.main.desc.serialize_to_string()).blocks[0].ops:
            found.setdefault(op.type, op)
    return found


def test_in_place_pairs_are_those_of_the_pass() -> None:
    for kind, op in real_operators().items():
        pairs = positions_as_names(op, OpRegistry().facts(op).in_place)
        assert {(a, b) for a, b in pairs if a != b} == shared_by_paddle(op), kind


def test_some_operators_work_in_place_and_some_do_not() -> None:
    works = {kind for kind, op in real_operators().items() if OpRegistry().facts(op).in_place}
    assert {'relu', 'relu_grad', 'reshape2', 'elementwise_add', 'elementwise_add_grad'} <= works
    assert not {'matmul_v2', 'conv2d', 'dropout', 'layer_norm'} & works


def test_one_variable_for_both_is_only_for_what_eager_mode_runs_in_place() -> None:
    same = {kind for kind, op in real_operators().items() if OpRegistry().facts(op).same_name}
    assert 'relu' in same and 'elementwise_add_grad' not in same


def test_the_first_argument_of_a_slot_is_the_one_that_gives_its_memory() -> None:
    desc = framework_pb2.OpDesc(type='sum')
    desc.inputs.add(parameter='X', arguments=['a', 'b', 'c'])
    desc.outputs.add(parameter='Out', arguments=['out'])
    assert OpRegistry().facts(desc).in_place == ((0, 0),)


# ---------------------------------------------------------------------------------------------------
# Shapes


def trained() -> None:
    x = data('x', -1, 8)
    hidden = fc(fc(x, 8, 'relu'), 8)
    embedded = paddle.static.nn.embedding(data('ids', -1, 1, dtype='int64'), [10, 8])
    joined = paddle.concat([hidden, paddle.reshape(embedded, [-1, 8])], axis=1)
    train(paddle.mean(paddle.slice(joined, [1], [0], [4])))


def test_shape_only_slots_are_those_that_the_collector_skips() -> None:
    registry, seen = OpRegistry(), set()
    for op in program_of(trained).blocks[0].ops:
        inputs = {s.parameter: list(s.arguments) for s in op.inputs}
        outputs = {s.parameter: list(s.arguments) for s in op.outputs}
        expected = core.infer_no_need_buffer_slots(op.type, inputs, outputs, {})
        slots = [s.parameter for s in op.inputs for _ in s.arguments]
        found = {slots[i] for i in registry.facts(op).shape_only}
        assert found == {s for s in expected if inputs.get(s)}, op.type
        seen.update((op.type, slot) for slot in found)
    assert ('elementwise_add_grad', 'Y') in seen and ('lookup_table_v2_grad', 'W') in seen


# ---------------------------------------------------------------------------------------------------
# Random

RANDOM: Dict[str, Callable[[], Any]] = {
    'dropout':
        lambda: F.dropout(data('x', 4, 4), 0.5),
    'uniform_random':
        lambda: paddle.uniform([4]),
    'gaussian_random':
        lambda: paddle.randn([4]),
    'truncated_gaussian_random':
        lambda: append('truncated_gaussian_random', {}, {'Out': [named('t', data('x', 4))]},
                       shape=[4]),
    'randint':
        lambda: paddle.randint(0, 4, [4]),
    'randperm':
        lambda: paddle.randperm(4),
    'bernoulli':
        lambda: paddle.bernoulli(data('x', 4)),
    'multinomial':
        lambda: paddle.multinomial(data('x', 4), 2),
    'poisson':
        lambda: paddle.poisson(data('x', 4)),
    'rrelu':
        lambda: F.rrelu(data('x', 4), training=True),
    'gumbel_softmax':
        lambda: F.gumbel_softmax(data('x', 4, 4)),
    'exponential':
        lambda: data('x', 4).exponential_(),
    'rnn':
        lambda: paddle.nn.LSTM(4, 4, num_layers=2, dropout=0.5)(data('x', 2, 3, 4)),
}


@pytest.mark.parametrize('kind', sorted(RANDOM))
def test_operators_that_draw_random_numbers_are_random(kind: str) -> None:
    facts = facts_of(RANDOM[kind], kind)
    assert facts and all(f.random and f.ordered for f in facts)


@pytest.mark.parametrize('kind', [
    'flash_attn', 'memory_efficient_attention', 'graph_sample_neighbors',
    'weighted_sample_neighbors', 'graph_khop_sampler', 'fused_bias_dropout_residual_layer_norm',
    'shuffle_batch', 'dropout_nd', 'bernoulli_p'
])
def test_registered_operators_without_a_seed_attribute_are_random_too(kind: str) -> None:
    assert OpRegistry().facts(desc_of(kind)).random


def test_gradients_and_plain_operators_are_not_random() -> None:
    message = program_of(lambda: train(paddle.mean(F.dropout(fc(data('x', 4, 4), 4), 0.5))))
    facts = {op.type: OpRegistry().facts(op) for op in message.blocks[0].ops}
    assert [kind for kind, f in facts.items() if f.random] == ['dropout']
    assert not facts['dropout_grad'].random and not facts['mul'].random


# ---------------------------------------------------------------------------------------------------
# Effects


def test_an_operator_without_results_has_a_side_effect() -> None:
    desc = framework_pb2.OpDesc(type='assert')
    desc.inputs.add(parameter='Cond', arguments=['c'])
    assert OpRegistry().facts(desc).side_effect


def test_print_and_py_func_have_side_effects() -> None:

    def build() -> None:
        x = data('x', 4)
        paddle.static.Print(x)
        out = named('out', x)
        paddle.static.py_func(lambda value: value, x, out)

    assert all(f.side_effect for f in facts_of(build, 'print') + facts_of(build, 'py_func'))


@pytest.mark.parametrize('kind', [
    'c_allreduce_sum', 'c_broadcast', 'c_allgather', 'c_reducescatter', 'send_v2', 'recv_v2',
    'p_send', 'p_recv', 'barrier', 'partial_send', 'c_sync_comm_stream', 'global_scatter',
    'alltoall'
])
def test_communication_is_collective_or_has_a_side_effect(kind: str) -> None:
    assert OpRegistry().facts(desc_of(kind)).ordered


def test_plain_computation_is_not_ordered() -> None:
    ordered = {kind for kind, op in real_operators().items() if OpRegistry().facts(op).ordered}
    assert ordered <= {'dropout', 'rnn', 'rnn_grad'}


def test_an_unregistered_operator_is_unknown_and_ordered() -> None:
    desc = framework_pb2.OpDesc(type='my_own_operator')
    desc.inputs.add(parameter='X', arguments=['a'])
    desc.outputs.add(parameter='Out', arguments=['b'])
    facts = OpRegistry().facts(desc)
    assert not facts.known and facts.ordered and facts.in_place == ()


def test_facts_do_not_depend_on_what_was_asked_before() -> None:
    """The cache knows an op by its slots: the same kind with another number of arguments is another op."""
    registry = OpRegistry()
    short, long = framework_pb2.OpDesc(type='sum'), framework_pb2.OpDesc(type='sum')
    for desc, names in ((short, ['a']), (long, ['a', 'b', 'c'])):
        desc.inputs.add(parameter='X', arguments=names)
        desc.outputs.add(parameter='Out', arguments=['out'])
    assert registry.facts(short) == OpRegistry().facts(short)
    assert registry.facts(long) == OpRegistry().facts(long)
    assert registry.facts(short) == OpRegistry().facts(short)


def _dropouts(**options: Any) -> List[OpFacts]:
    return facts_of(lambda: F.dropout(data('x', -1, 8), **options), 'dropout')


@needs_cpu_build
def test_a_dropout_by_a_share_that_is_computed_is_not_made_again() -> None:
    found = facts_of(lambda: F.dropout(data('x', -1, 8), paddle.full([1], 0.3)), 'dropout')
    assert [facts.replay for facts in found] == [None]


@needs_cpu_build
def test_a_dropout_can_be_made_again_from_its_mask() -> None:
    scaled, plain = _dropouts(p=0.3)[0], _dropouts(p=0.3, mode='downscale_in_infer')[0]
    assert (scaled.replay.operand, scaled.replay.result, scaled.replay.mask) == (0, 1, 0)
    assert scaled.replay.divisor == float(np.float32(1) - np.float32(0.3))
    assert plain.replay.divisor is None and scaled.random and plain.random


@pytest.mark.parametrize('change', ['is_test', 'use_mkldnn', 'everything', 'unused mask'])
def test_other_kernels_than_that_of_training_on_a_cpu_are_not_made_again(change: str) -> None:
    message = program_of(lambda: F.dropout(data('x', -1, 8), 0.3))
    op = next(op for op in message.blocks[0].ops if op.type == 'dropout')
    if change == 'everything':
        next(a for a in op.attrs if a.name == 'dropout_prob').f = 1.0
    elif change == 'unused mask':
        next(s for s in op.outputs if s.parameter == 'Mask').arguments[:] = []
    else:
        for attribute in [a for a in op.attrs if a.name == change]:
            op.attrs.remove(attribute)
        op.attrs.add(name=change, type=framework_pb2.BOOLEAN, b=True)
    assert OpRegistry().facts(op).replay is None


@needs_cpu_build
def test_a_broadcast_leaves_what_it_sends_on_its_root_alone() -> None:
    """Which rank a worker has is told, never guessed."""

    def sends(root: int) -> Program:

        def make() -> None:
            block = paddle.static.default_main_program().global_block()
            x = block.create_var(name='x', dtype='float32', shape=[4])
            block.append_op(type='c_broadcast',
                            inputs={'X': x},
                            outputs={'Out': x},
                            attrs={
                                'ring_id': 0,
                                'root': root
                            })

        return program_of(make)

    def left(root: int, rank: Any) -> Any:
        op, = sends(root).blocks[0].ops
        return OpRegistry(rank).facts(op).unchanged

    assert left(root=1, rank=1) == left(root=0, rank=0) == ((0, 0),)
    assert not (left(root=1, rank=0) or left(root=0, rank=1) or left(root=0, rank=None))


def test_a_process_that_met_no_other_worker_knows_no_rank() -> None:
    assert rank_over_gloo() is None


def test_what_is_written_is_read_again_without_asking_of_the_same_operators(
        monkeypatch: pytest.MonkeyPatch) -> None:
    asked: List[Any] = []
    ask = OpRegistry._ask
    monkeypatch.setattr(
        OpRegistry, '_ask',
        lambda self, desc, signature: asked.append(signature) or ask(self, desc, signature))
    case = build('fc_chain', small_options('fc_chain'))
    assert memory_optimize(case.main, fetch_list=list(case.fetch)).changed
    kinds = {op.type for op in case.main.global_block().ops}
    assert len(asked) == len(set(asked)) and {kind for kind, *_ in asked} == kinds
