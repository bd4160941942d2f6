"""CompiledProgram of an optimized program: with every flag of BuildStrategy, the bytes that the untouched one gives with it."""
from __future__ import annotations

from typing import Any, Dict, Iterable, List, Tuple

import numpy as np
import paddle
import pytest
from paddle.base.proto import framework_pb2

from tests.builds import needs_float32_from_amp
from tests.harness import Case, fresh_scope, new_programs, snapshot
from tests.scenarios import loops, straight
from tests.wild.programs import build
from tests.wild.recipes import recipe
from transpiler import memory_optimize
from transpiler.backends.paddle2.fusing import keep_fused_in_order
from transpiler.backends.paddle2.pinning import names_in
from transpiler.backends.settings import has_cpu_kernels_alone

STEPS = 3
# What can't run without a device, untouched or not. Only builds for devices look for one before they fuse updates.
NEEDS_A_GPU = ('allow_cuda_graph_capture', *(() if has_cpu_kernels_alone() else
                                             ('fuse_all_optimizer_ops',)))


def flags() -> Dict[str, bool]:
    """All switches, with the value that they do not have by default."""
    strategy = paddle.static.BuildStrategy()
    found = {name: getattr(strategy, name) for name in dir(strategy) if name not in NEEDS_A_GPU}
    return {name: not value for name, value in found.items() if isinstance(value, bool)}


FUSES = 'fuse_elewise_add_act_ops'
# Those that the documentation of BuildStrategy names, as far as they are switches.
DOCUMENTED = ('enable_addto', 'enable_auto_fusion', 'enable_inplace', 'enable_sequential_execution',
              'fuse_bn_act_ops', 'fuse_bn_add_act_ops', 'fuse_elewise_add_act_ops',
              'fuse_relu_depthwise_conv', 'sync_batch_norm')


def dense_layers() -> Case:
    """Sums that go into an activation, and the gradients of both, which Paddle can make one op of."""
    with new_programs() as (main, startup):
        hidden = paddle.static.data('x', [-1, 32])
        label = paddle.static.data('label', [-1, 1], 'int64')
        for activation in ('relu', 'relu', 'tanh', 'relu'):
            hidden = paddle.static.nn.fc(hidden, 32, activation=activation)
        loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 10), label)
        paddle.optimizer.Momentum(0.1).minimize(loss)
    dice = np.random.RandomState(0)
    feed = {'x': dice.rand(16, 32).astype('float32'), 'label': dice.randint(0, 10, (16, 1))}
    return Case(main, startup, lambda step: feed, [loss.name])


def _inference(network: Any) -> Case:
    with new_programs() as (main, startup):
        weight = paddle.create_parameter([64, 64], 'float32')
        kept, loss = network(paddle.matmul(paddle.static.data('x', [-1, 64]), weight))
    feed = {'x': np.random.RandomState(0).rand(16, 64).astype('float32')}
    return Case(main, startup, lambda step: feed, [kept.name, loss.name])


def _softmax(*parts: Any) -> Any:
    return paddle.nn.functional.softmax(paddle.concat(parts, 1))


def read_by_none() -> Case:
    """What would be one op has no reader, so it would run last; what it reads is gone by then."""

    def network(x: Any) -> Tuple[Any, Any]:
        big = paddle.exp(paddle.tanh(x))
        kept = big + paddle.scale(paddle.mean(x), 2.0)
        deep = paddle.nn.functional.softmax(big)
        for _ in range(3):
            deep = _softmax(deep, deep)
        return kept, paddle.mean(deep)

    return _inference(network)


def far_apart() -> Case:
    """Between the parts of what would be one op, memory that the first reads is let go."""

    def network(x: Any) -> Tuple[Any, Any]:
        hidden = paddle.tanh(x)
        half = paddle.scale(hidden, 0.5)
        wide = paddle.nn.functional.softmax(_softmax(hidden, hidden))
        kept = half + paddle.mean(paddle.concat([wide, wide, wide], 1))
        return kept, paddle.mean(_softmax(wide, wide))

    return _inference(network)


def two_ways_in() -> Case:
    """Both terms of a sum might be made one op with it, and memory that they read is let go before anybody reads the sum."""

    def network(x: Any) -> Tuple[Any, Any]:
        left, right = paddle.exp(x), paddle.exp(paddle.tanh(x))
        kept = paddle.scale(left, 2.0) + paddle.scale(right, 0.5)
        wide = _softmax(left, right)
        return kept, paddle.mean(_softmax(wide, wide))

    return _inference(network)


CASES = {
    'two ways in': two_ways_in,
    'read by none': read_by_none,
    'far apart': far_apart,
    'dense': dense_layers,
    'convolutions': straight.residual_convolutions,
    'loop': loops.gathered_sequence,
}


def outcome(case: Case, chosen: Iterable[str]) -> Tuple[List[Any], Dict[str, Any]]:
    """What each step fetches, and the persistables after the last."""
    strategy = paddle.static.BuildStrategy()
    for name in chosen:
        setattr(strategy, name, flags()[name])
    compiled = paddle.static.CompiledProgram(case.main, build_strategy=strategy)
    with fresh_scope() as scope:
        paddle.seed(1)
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        fetched = [
            snapshot(value) for step in range(STEPS) for value in executor.run(
                compiled, feed=case.feed(step), fetch_list=list(case.fetch), return_numpy=False)
        ]
        state = {
            p.name: snapshot(scope.find_var(p.name).get_tensor())
            for p in case.main.all_parameters()
        }
    return fetched, state


def assert_equal_with(name: str, runtime: str, choices: Iterable[Tuple[str, ...]]) -> None:
    plain, case = CASES[name](), CASES[name]()
    assert memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=16,
                           runtime=runtime).changed
    tried = 0
    for chosen in choices:
        expected = outcome(plain, chosen)
        assert len(expected[0]) == STEPS * len(case.fetch) and expected[1]
        found = outcome(case, chosen)
        if FUSES in chosen and found != expected:
            # Paddle finds nothing to fuse where buffers are handed on, and rounds as it does without the flag.
            expected = outcome(plain, set(chosen) - {FUSES})
        assert found == expected, chosen
        tried += 1
    assert tried


def test_every_flag_gives_the_bytes_of_the_untouched_program() -> None:
    assert set(DOCUMENTED) <= set(flags())
    assert_equal_with('dense', 'collecting', [(), *((flag,) for flag in sorted(flags()))])


@pytest.mark.parametrize('name', ['read by none', 'two ways in'])
def test_what_is_made_one_op_reads_what_its_parts_did(name: str) -> None:
    assert_equal_with(name, 'retaining', [(), (FUSES,)])


@pytest.mark.parametrize('runtime', ['retaining', 'collecting'])
def test_what_would_read_what_is_gone_is_not_made_one_op(runtime: str) -> None:
    assert_equal_with('far apart', runtime, [(), (FUSES,)])


Named = Tuple[str, str, str]  # an operator, and what it reads and writes, one letter each


def block_of(*ops: Named, element: int = framework_pb2.VarType.FP32) -> Any:
    block = framework_pb2.ProgramDesc().blocks.add(idx=0, parent_idx=-1)
    for name in sorted({name for _, read, written in ops for name in read + written}):
        looks = block.vars.add(name=name).type
        looks.type = framework_pb2.VarType.LOD_TENSOR
        looks.lod_tensor.tensor.data_type = element
    for kind, read, written in ops:
        op = block.ops.add(type=kind)
        op.inputs.add(parameter='X', arguments=read)
        op.outputs.add(parameter='Out', arguments=written)
    return block


def test_an_op_without_effect_keeps_two_apart_where_one_would_be_too_late() -> None:
    block = block_of(('tanh', 'x', 'a'), ('relu', 'a', 'b'), ('elementwise_add', 'b', 'c'),
                     ('exp', 'x', 'a'), ('exp', 'a', 'd'))
    before, origins = list(block.ops), list(range(5))
    keep_fused_in_order(block, origins)
    assert origins == [0, 1, None, 2, 3, 4] and [block.ops[i] for i in (0, 1, 3, 4, 5)] == before
    added = block.ops[2]
    assert [names_in(slots) for slots in (added.inputs, added.outputs)] == [{'b'}, {'b'}]


def test_an_activation_that_others_read_stays_by_itself_and_needs_nothing() -> None:
    """As before a residual sum: Paddle makes one op only where nobody else reads what is handed on."""
    block = block_of(('relu', 'x', 'a'), ('conv2d', 'a', 'b'), ('elementwise_add', 'ab', 'c'))
    before = block.SerializeToString()
    keep_fused_in_order(block, [0, 1, 2])
    assert block.SerializeToString() == before


TWO_OF_ONE_SUM = (('scale', 'x', 'a'), ('scale', 'y', 'b'), ('elementwise_add', 'ab', 'c'),
                  ('share_buffer', 'e', 'xy'), ('exp', 'c', 'd'))


def test_two_pairs_of_one_sum_order_it_once() -> None:
    block = block_of(*TWO_OF_ONE_SUM)
    keep_fused_in_order(block, list(range(5)))
    orders = [name for slot in block.ops[2].outputs for name in slot.arguments if name != 'c']
    assert len(orders) == 1 and len(block.ops) == 5


@pytest.mark.parametrize('element', [framework_pb2.VarType.BF16, framework_pb2.VarType.FP64])
def test_what_releases_another_type_than_float32_is_not_given_an_order_to_read(
        element: int) -> None:
    """Paddle asks all that an op reads for one type, and takes an order's variable for float32: the program did not run."""
    block, origins = block_of(*TWO_OF_ONE_SUM, element=element), list(range(5))
    releases = [op for op in block.ops if op.type == 'share_buffer']
    keep_fused_in_order(block, origins)
    assert origins == [0, None, 1, None, 2, 3, 4]
    assert [names_in(op.inputs) for op in releases] == [{'e'}]


# Generated programs some of whose pairs stay two; 145 has two of one sum.
@pytest.mark.parametrize('seed', [pytest.param(145, marks=needs_float32_from_amp), 154, 173, 187])
def test_generated_programs_bear_the_flag(seed: int) -> None:
    plain, built = build(recipe(seed)), build(recipe(seed))
    assert memory_optimize(built.case.main, fetch_list=list(built.case.fetch),
                           **built.options).changed
    expected = [outcome(plain.case, chosen) for chosen in ((FUSES,), ())]
    assert outcome(built.case, (FUSES,)) in expected


@pytest.mark.parametrize('name,runtime', [('dense', 'retaining'), ('convolutions', 'collecting'),
                                          ('loop', 'collecting')])
def test_every_documented_flag_bears_other_networks(name: str, runtime: str) -> None:
    chosen = set(DOCUMENTED).difference(['sync_batch_norm'])  # which needs a GPU where there is any
    assert_equal_with(name, runtime, [(flag,) for flag in sorted(chosen)])


def test_the_flag_that_fuses_bears_every_other() -> None:
    others = [flag for flag in DOCUMENTED if flag != FUSES]
    assert_equal_with('dense', 'collecting', [(FUSES, other) for other in others])
