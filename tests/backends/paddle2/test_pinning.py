"""The order that was planned is the order that runs: read back, and measured over ten runs of the default executor."""
from __future__ import annotations

from typing import List

import numpy as np
import paddle
import pytest
from paddle.base.proto import framework_pb2

from tests.harness import Case, Mode, assert_same_bytes, least_peak, measure_peak, new_programs, run_case
from transpiler import memory_optimize
from transpiler.backends.paddle2.importer import import_program, parse
from transpiler.backends.paddle2.pinning import ORDER_SLOT, is_pinned, pin, unpin

MB = 1 << 20
UNITS = 1 << 18  # float32 in one MB


def two_far_apart() -> Case:
    """80, 200 and 80 MB, each reduced to a number before the next: 200 MB in this order, 360 side by side."""
    with new_programs() as (main, startup):
        parts = []
        for number, size in enumerate((80, 200, 80)):
            parts.append(paddle.mean(paddle.full([size * UNITS], float(number))))
        total = paddle.add_n(parts)
    return Case(main, startup, lambda step: {}, [total.name])


def fc_chain(optimizer: str = 'SGD') -> Case:
    with new_programs() as (main, startup):
        hidden = paddle.static.data('x', [-1, 256])
        for _ in range(6):
            hidden = paddle.static.nn.fc(hidden, 256, activation='relu')
        loss = paddle.mean(hidden)
        getattr(paddle.optimizer, optimizer)(0.01).minimize(loss)
    dice = np.random.RandomState(0)
    feed = {'x': dice.rand(16, 256).astype('float32')}
    return Case(main, startup, lambda step: feed, [loss.name])


def loop_of_branches() -> Case:
    """Each trip of a loop makes eight values of 8 MB, one after the other."""
    with new_programs() as (main, startup):
        index, trips = paddle.zeros([1], 'int64'), paddle.full([1], 3, 'int64')
        start = paddle.zeros([1])

        def body(i, total):
            parts = [total] + [
                paddle.mean(paddle.full([8 * UNITS], float(b)), keepdim=True) for b in range(8)
            ]
            return [i + 1, paddle.add_n(parts)]

        result = paddle.static.nn.while_loop(lambda i, _: i < trips,
                                             body, [index, start],
                                             is_test=True)[1]
    return Case(main, startup, lambda step: {}, [result.name])


def kinds(program: paddle.static.Program, block: int = 0) -> List[str]:
    return [op.type for op in program.block(block).ops]


def test_ten_runs_keep_the_planned_peak_where_the_plain_program_hoists() -> None:
    here = f'{__name__}:two_far_apart'
    plain = measure_peak(here, optimise=False, steps=10)
    held = least_peak(here, 201 * MB, steps=10)
    assert plain.above_resting() > 280 * MB
    assert held.above_resting() <= 201 * MB  # the first run's, too


def test_orders_hold_in_loops() -> None:
    """One value at a time; of the plain program's there are two at the least."""
    here = f'{__name__}:loop_of_branches'
    plain = measure_peak(here, optimise=False, steps=4)
    held = least_peak(here, 9 * MB, steps=4)
    assert held.above_resting() <= 9 * MB < plain.above_resting()


@pytest.mark.parametrize('optimizer', ('SGD', 'Momentum', 'Adam'))
def test_a_held_program_computes_the_same_bytes_for_ten_runs(optimizer: str) -> None:
    plain, held = fc_chain(optimizer), fc_chain(optimizer)
    report = memory_optimize(held.main, fetch_list=list(held.fetch), batch_size=16)
    assert report.peak_bytes_after < 0.6 * report.peak_bytes_before
    for order in ('default', 'serial', 'sequential'):
        mode = Mode(order=order)
        assert_same_bytes(run_case(plain, steps=10, mode=mode), run_case(held, steps=10, mode=mode))


def test_updates_stand_among_the_gradients_and_are_held() -> None:
    case = fc_chain()
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=16)
    order = kinds(case.main)
    last_gradient = max(i for i, kind in enumerate(order) if kind.endswith('_grad'))
    assert order.index('sgd') < last_gradient
    assert is_pinned(parse(case.main.desc.serialize_to_string()), 0)


def test_clones_and_copies_stay_pinned() -> None:
    case = fc_chain()
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=16)
    order = kinds(case.main)
    serialized = case.main.desc.serialize_to_string()
    for copy in (case.main.clone(), paddle.static.Program.parse_from_string(serialized)):
        assert kinds(copy) == order
        assert is_pinned(parse(copy.desc.serialize_to_string()), 0)


def test_a_clone_for_testing_runs() -> None:
    case = two_far_apart()
    memory_optimize(case.main, fetch_list=list(case.fetch))
    test = case.main.clone(for_test=True)
    outcome = run_case(Case(test, case.startup, case.feed, case.fetch), steps=2)
    assert outcome.scalars(case.fetch[0]) == [3.0, 3.0]


def test_pinning_is_undone_without_a_trace_and_hidden_from_the_graph() -> None:
    message = parse(fc_chain().main.desc.serialize_to_string())
    before = message.SerializeToString(deterministic=True)
    plain = import_program(before).graph
    pin(message, 0)
    assert is_pinned(message, 0)
    pinned = import_program(message.SerializeToString())
    assert pinned.pinned_blocks == {0}
    assert [v.name for v in pinned.graph.values] == [v.name for v in plain.values]
    assert [op.results for op in pinned.graph.ops] == [op.results for op in plain.ops]
    unpin(message)
    assert message.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize('onednn', ['', 'reader', 'writer'])
def test_who_writes_over_what_onednn_reads_does_not_wait_by_names(onednn: str) -> None:
    """The executor gives its kernels copies in layouts of theirs, which lie in the same memory, and waits for who makes them alone."""
    with new_programs() as (main, _):
        value = paddle.tanh(paddle.static.data('x', [4, 8]))
        paddle.exp(value)
        paddle.assign(paddle.ones([4, 8]), output=value)
        paddle.tanh(value)
    message = parse(main.desc.serialize_to_string())
    made, reader, ones, writer, last = message.blocks[0].ops
    for op, name in ((reader, 'reader'), (writer, 'writer')):
        for attribute in [each for each in op.attrs if each.name == 'use_mkldnn']:
            op.attrs.remove(attribute)
        op.attrs.add(name='use_mkldnn', type=framework_pb2.BOOLEAN, b=name == onednn)
    order = [made, ones, reader, writer, last]
    pinned = framework_pb2.ProgramDesc.FromString(message.SerializeToString())
    del pinned.blocks[0].ops[:]
    pinned.blocks[0].ops.extend(order)
    pin(pinned, 0)
    waits = [any(s.parameter == ORDER_SLOT for s in op.outputs) for op in pinned.blocks[0].ops]
    # `ones` and its neighbours share no name; the writer waits for the reader, and the last one for what it reads.
    assert waits == [True, True, True, bool(onednn), False]


def test_a_second_call_finds_nothing_to_do_and_keeps_the_order() -> None:
    case = fc_chain()
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=16)
    order = kinds(case.main)
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=16)
    assert kinds(case.main) == order
    assert is_pinned(parse(case.main.desc.serialize_to_string()), 0)


def test_parallel_holds_and_moves_nothing() -> None:
    case = fc_chain()
    order = kinds(case.main)
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=16, parallel=True)
    assert kinds(case.main) == order
    assert not is_pinned(parse(case.main.desc.serialize_to_string()), 0)


def branches_of_large_values() -> Case:
    """Eight branches of 16 MB that end in a few bytes each: a small op stands between two large ones."""
    with new_programs() as (main, startup):
        x = paddle.static.data('x', [64, 64])
        large = [paddle.static.nn.fc(x, 65536) for _ in range(8)]
        ends = paddle.concat([paddle.static.nn.fc(each, 4) for each in large])
    feed = {'x': np.ones([64, 64], 'float32')}
    return Case(main, startup, lambda step: feed, [ends.name])


def test_large_values_share_memory_where_a_late_collector_would_hold_two() -> None:
    case = branches_of_large_values()
    memory_optimize(case.main, fetch_list=list(case.fetch))
    written = [n for op in case.main.block(0).ops for n in op.output_arg_names]
    large = [
        n for n in dict.fromkeys(written)
        if case.main.block(0).has_var(n) and case.main.block(0).var(n).shape == (64, 65536)
    ]
    assert len(large) == 1
    assert_same_bytes(run_case(branches_of_large_values(), steps=2), run_case(case, steps=2))
