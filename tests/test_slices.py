"""Gradients that are slices of one buffer, as fleet fuses them for communication: results, peaks, and damages."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, List

import numpy as np
import paddle
import pytest

from tests.harness import (ALL_MODES, Case, Mode, Peak, assert_same_bytes, check, executor_mode,
                           fingerprint, fresh_scope, least_peak, measure_peak, new_programs,
                           run_case)
from tests.scenarios.common import data, fc, floats, random_feed, square_loss
from transpiler import memory_optimize
from transpiler.backends.paddle2.importer import import_program
from transpiler.errors import VerificationError
from transpiler.ir import NOTHING, RELEASE, Graph
from transpiler.passes.context import PassContext
from transpiler.passes.releases.at_once import release_storages
from transpiler.runtime import RETAINING
from transpiler.verify import verify

ORDERED = Mode(order="sequential")
WIDTH, ROWS = 512, 2
HINT = {"batch_size": ROWS}
TRIES = 4


def fused(width: int = 48, layers: int = 5, group: int = 4, **options: Any) -> Case:
    """As fleet's RawProgramOptimizer makes it, with a `scale` of the buffer where it sums over the workers."""
    with new_programs() as (main, startup):
        hidden = data("x", -1, width)
        for _ in range(layers):
            hidden = fc(hidden, width, "tanh")
        loss = square_loss(hidden)
        optimizer = paddle.optimizer.Momentum(0.05, 0.9)
        pairs = optimizer.backward(loss)
        block = main.global_block()
        backward = next(i for i, op in enumerate(block.ops) if op.type == "fill_constant")
        groups = [pairs[i:i + group] for i in range(0, len(pairs), group)]
        for number, each in enumerate(groups):
            _fuse(block, backward, f"fused_{number}", each, options)
        optimizer.apply_gradients(pairs)
    return Case(main, startup, random_feed(x=floats(ROWS, width)), [loss.name])


def _fuse(block: Any, backward: int, name: str, pairs: List[Any], options: Any) -> None:
    buffer = block.create_var(name=name, dtype="float32", shape=[1])
    gradients = [gradient for _, gradient in pairs]
    attributes = {"copy_data": False, "use_align": True, "dtype": buffer.dtype, **options}
    block._insert_op(backward,
                     type="coalesce_tensor",
                     inputs={"Input": [parameter for parameter, _ in pairs]},
                     outputs={
                         "Output": gradients,
                         "FusedOutput": buffer
                     },
                     attrs=attributes)
    names = {gradient.name for gradient in gradients}
    made = max(i for i, op in enumerate(block.ops) if names.intersection(op.output_arg_names))
    for gradient in reversed(gradients):
        block._insert_op(made + 1,
                         type="depend",
                         inputs={
                             "X": gradient,
                             "Dep": buffer
                         },
                         outputs={"Out": gradient})
    block._insert_op(made + 1,
                     type="scale",
                     inputs={"X": buffer},
                     outputs={"Out": buffer},
                     attrs={"scale": 0.5})


def wide() -> Case:
    return fused(WIDTH, layers=6, group=2)


def copied_into_the_buffer() -> Case:
    return fused(copy_data=True)


def set_to_a_constant() -> Case:
    return fused(set_constant=True, constant=0.25)


@pytest.mark.parametrize("build", (fused, copied_into_the_buffer, set_to_a_constant))
def test_fused_gradients_train_to_equal_bytes(build: Callable[[], Case]) -> None:
    report = check(build,
                   lambda case: memory_optimize(case.main, fetch_list=list(case.fetch)),
                   modes=ALL_MODES,
                   steps=4)
    assert report.changed and "schedule" in dict(report.savings)


def test_fused_gradients_need_less_than_half_as_predicted_and_no_run_more_than_is_sure() -> None:
    before = measure_peak(f"{__name__}:wide", optimise=False, mode=ORDERED)
    case = wide()
    report = memory_optimize(case.main, fetch_list=list(case.fetch), **HINT)
    predicted = report.peak_bytes_after
    after = least_peak(f"{__name__}:wide",
                       1.03 * predicted,
                       of=Peak.first_above_resting,
                       mode=ORDERED,
                       options=HINT)
    assert after.first - after.resting < 0.5 * (before.first - before.resting)
    assert abs(after.first - after.resting - predicted) < 0.03 * predicted
    assert max(after.first, after.later) - after.resting <= report.sure_bytes


def test_a_buffer_is_as_large_as_the_kernel_makes_it() -> None:
    case = fused()
    graph = imported(case)
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        names = sorted(v.name for v in case.main.list_vars() if v.name.startswith("fused_"))
        found = executor.run(case.main, feed=case.feed(0), fetch_list=names)
    assert len(names) == 3
    for name, array in zip(names, found):
        buffer = next(v for v in graph.values if v.name == name)
        assert buffer.size is not None and buffer.size.evaluate({}) == np.asarray(array).nbytes


def imported(case: Case) -> Graph:
    return import_program(case.main.desc.serialize_to_string(), case.fetch).graph


def test_whoever_touches_a_slice_touches_the_buffer() -> None:
    graph = imported(fused())
    made = [op for op in graph.region_ops(0) if op.kind == "coalesce_tensor"]
    assert len(made) == 3
    for op in made:
        buffer, *slices = sorted(op.writes(), key=lambda v: graph.values[v].size is NOTHING)
        for each in (other for other in graph.region_ops(0) if other is not op):
            if set(slices).intersection(each.reads()):
                assert buffer in each.reads()
            if set(slices).intersection(each.writes()):
                assert buffer in each.writes()


def test_an_update_in_front_of_what_is_done_to_its_buffer_is_refused() -> None:
    graph, origins = imported(fused()), {}
    refused = 0
    for at, op in enumerate(graph.region_ops(0)):
        if op.kind != "momentum":
            continue
        changed = graph.copy()
        ops = changed.regions[0].ops
        fusing = next(
            i for i, o in enumerate(ops)
            if graph.ops[o].kind == "scale" and set(graph.ops[o].writes()) & set(op.reads()))
        ops.insert(fusing, ops.pop(at))
        origins = {each: each for each in ops}
        with pytest.raises(VerificationError):
            verify(graph, changed, origins)
        refused += 1
    assert refused == 10


def released(graph: Graph) -> Graph:
    """With what is dead let go of at once."""
    return release_storages(graph.copy(), PassContext(RETAINING, {"N": ROWS}))


def test_a_buffer_is_let_go_of_with_all_its_slices_or_not_at_all() -> None:
    graph = imported(fused())
    changed, buffers = released(graph), graph.buffers()
    origins = {op.id: op.id for op in graph.ops}
    verify(graph, changed, origins)
    refused = 0
    for op in [op for op in changed.walk() if op.kind == RELEASE]:
        for each in set(op.writes()) & {v for members in buffers.values() for v in members}:
            damaged = changed.copy()
            kept = tuple(v for v in op.results if v != each)
            damaged.ops[op.id] = replace(op, results=kept)
            with pytest.raises(VerificationError, match="released without"):
                verify(graph, damaged, origins)
            refused += 1
    assert len(buffers) == 3 and refused == sum(map(len, buffers.values())) == 13


def test_a_buffer_of_which_a_slice_is_asked_for_stays() -> None:
    case = fused()
    slice_ = next(v.name for v in imported(case).values if v.name.endswith(".w_0@GRAD"))
    graph = import_program(case.main.desc.serialize_to_string(), case.fetch, [slice_]).graph
    gone = {v for op in released(graph).walk() if op.kind == RELEASE for v in op.writes()}
    whole = next(v.buffer for v in graph.values if v.name == slice_)
    members = graph.buffers()
    assert not gone.intersection(members[whole])
    assert all(gone.issuperset(members[other]) for other in members if other != whole)


def test_where_nothing_is_collected_buffers_go_with_their_last_use() -> None:
    case = wide()
    report = memory_optimize(case.main, fetch_list=list(case.fetch), runtime="retaining", **HINT)
    assert report.peak_bytes_after < 0.25 * report.peak_bytes_before
    holding = Mode(collect=False)
    peaks = (measure_peak(f"{__name__}:wide", optimise=True, mode=holding, options=HINT)
             for _ in range(TRIES))  # until one run has found the order that was planned
    assert any(
        max(peak.first, peak.later) - peak.resting < 1.03 * report.needed_bytes for peak in peaks)


@pytest.mark.parametrize("network", (paddle.nn.LSTM, paddle.nn.GRU, paddle.nn.SimpleRNN))
def test_who_averages_a_flat_parameter_stays_behind_the_updates_of_its_slices(network: Any) -> None:
    """The startup program alone says what the flat parameter is."""
    with new_programs() as (main, startup):
        loss = square_loss(network(8, 16, 2)(data("x", 4, 5, 8))[0])
        paddle.optimizer.Adam(0.1).minimize(loss)
        paddle.static.ExponentialMovingAverage(0.9).update()
    (made,) = [op for op in startup.global_block().ops if op.type == "coalesce_tensor"]
    graph = import_program(main.desc.serialize_to_string(), [loss.name]).graph
    name_of = {v.id: v.name for v in graph.values}
    (whole,), slices = made.output("FusedOutput"), set(made.output("Output"))
    order = graph.regions[0].ops
    last = max(at for at, o in enumerate(order)
               if slices.intersection(map(name_of.get, graph.ops[o].writes())))
    averaging = [
        at for at, o in enumerate(order) if whole in map(name_of.get, graph.ops[o].reads())
    ]
    assert averaging and averaging[0] > last and len(slices) > 2
    changed = graph.copy()
    ops = changed.regions[0].ops
    ops.insert(last, ops.pop(averaging[0]))
    with pytest.raises(VerificationError):
        verify(graph, changed, {each: each for each in ops})


def test_a_parameter_is_not_flat_for_being_as_large_as_all_that_another_op_is_given() -> None:
    with new_programs() as (main, _):
        hidden = paddle.nn.LayerNorm(16)(data("x", 4, 16))  # its scale and its bias are 32 numbers
        apart = paddle.create_parameter([32], "float32", name="apart")
        loss = square_loss(hidden) + paddle.sum(apart.detach())
        paddle.optimizer.Adam(0.1).minimize(loss)
    graph = import_program(main.desc.serialize_to_string(), [loss.name]).graph
    (whole,) = [v.id for v in graph.values if v.name == "apart"]
    readers = [op for op in graph.walk() if whole in op.reads()]
    assert readers and all(len(set(op.reads())) == 1 for op in readers)


def averaged_lstm() -> Case:
    """Its later part gives the optimizer much to do, and the executor the time to run the average first."""
    with new_programs() as (main, startup):
        loss = square_loss(paddle.nn.LSTM(8, 16)(data("x", 4, 5, 8))[0])
        paddle.optimizer.Adam(0.1).minimize(loss)
        paddle.static.ExponentialMovingAverage(0.9).update()
    return Case(main, startup, random_feed(x=floats(4, 5, 8)), [loss.name])


@pytest.mark.parametrize("mode", (Mode(collect=False), Mode(False, "serial")), ids=str)
def test_the_average_of_a_flat_parameter_is_that_of_the_given_order_if_no_order_is_held(
        mode: Mode) -> None:
    """Untouched, the executor reads it before its slices are updated, in modes that start what is ready."""
    in_order = run_case(averaged_lstm(), mode=Mode(order="sequential"))
    case = averaged_lstm()
    with executor_mode(mode):
        report = memory_optimize(case.main, fetch_list=list(case.fetch), parallel=True)
    assert report.changed and not import_program(fingerprint(case.main)).pinned_blocks
    assert_same_bytes(in_order, run_case(case, mode=mode))
    if mode.order == "default":
        with pytest.raises(AssertionError, match="w_0_ema"):
            assert_same_bytes(in_order, run_case(averaged_lstm(), mode=mode))


def test_slices_that_a_branch_touches_leave_the_order_as_it_is() -> None:
    with new_programs() as (main, _):
        hidden = data("x", 4, 8)
        gradients = [
            main.global_block().create_var(name=f"part_{i}", dtype="float32", shape=[4, 8])
            for i in range(2)
        ]
        buffer = main.global_block().create_var(name="whole", dtype="float32", shape=[1])
        main.global_block().append_op(type="coalesce_tensor",
                                      inputs={"Input": [hidden, hidden]},
                                      outputs={
                                          "Output": gradients,
                                          "FusedOutput": buffer
                                      },
                                      attrs={
                                          "copy_data": True,
                                          "dtype": buffer.dtype
                                      })
        paddle.static.nn.cond(
            paddle.mean(hidden) > 0, lambda: gradients[0] * 2, lambda: gradients[1] * 3)
    graph = import_program(main.desc.serialize_to_string()).graph
    made = next(op for op in graph.region_ops(0) if op.kind == "coalesce_tensor")
    assert made.facts.shares_unsaid
