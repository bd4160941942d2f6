"""memory_optimize for layers on Paddle 2.6: the ways in which users write them, to the last byte, in both interpreters."""
from __future__ import annotations

from typing import Any, List, Tuple

import paddle
import pytest

from tests import settled
from tests.backends.layers import (BATCH, FLOW_STEP, FLOWS, SIMPLE, WAYS, WIDTH, Looped, Net, built,
                                   data, flow, static, trained)
from tests.backends.layers_anywhere import *  # noqa: F401, F403
from tests.backends.layers_anywhere import assert_peak_is_told, gradients, untouched
from transpiler import memory_optimize

FLAG = 'FLAGS_enable_pir_with_pt_in_dy2st'


@pytest.mark.parametrize('way, pir', [(way, True) for way in WAYS] + [('called', False),
                                                                      ('evaluated between', False)])
def test_training_gives_the_same_bytes(way: str, pir: bool) -> None:
    paddle.set_flags({FLAG: pir})
    try:
        expected = trained(*built(way, True))
        made, step = built(way, True)
        report = memory_optimize(made, recompute='max', batch_size=BATCH)
        assert trained(made, step) == expected
    finally:
        paddle.set_flags({FLAG: True})
    assert {each.traced.mode for each in report.programs} == {'train'}
    assert all(each.report is not None and each.report.changed for each in report.programs)
    assert all(each.kept_after < each.kept_before for each in report.programs)


@pytest.mark.parametrize('way', WAYS)
def test_stretches_that_paddle_finds_in_bytecode_are_planned_too(way: str) -> None:
    made, step = built(way, False)
    report = memory_optimize(made, recompute='max', batch_size=BATCH)
    assert trained(made, step) == untouched(way, False)
    assert report.programs and all(each.report.changed for each in report.programs)


@pytest.mark.parametrize('kind, pir', [(kind, pir) for kind in FLOWS for pir in (True, False)])
def test_loops_and_branches_in_layers_are_planned_too(kind: str, pir: bool) -> None:
    """Ten steps, of 2 to 8 trips, with statistics and random numbers in each."""
    paddle.set_flags({FLAG: pir})
    try:
        expected = trained(flow(kind), FLOW_STEP, 10)
        made = flow(kind)
        report = memory_optimize(made, recompute='max', trip_count=8)
        assert trained(made, FLOW_STEP, 10) == expected
    finally:
        paddle.set_flags({FLAG: True})
    program, = report.programs
    assert program.report.changed and program.kept_after < program.kept_before
    assert_peak_is_told(program)


def updated_between(kind: str, **options: Any) -> List[bytes]:
    """Gradients of two calls with an update between their backward. Without options the layer is untouched."""
    made = flow(kind)
    paddle.seed(5)
    if options:
        memory_optimize(made, trip_count=7, max_overhead=10.0, **options)
    one, other = (made(data(at), paddle.to_tensor([7])) for at in range(2))
    one.backward()
    paddle.optimizer.SGD(0.5, parameters=made.parameters()).step()
    other.backward()
    return gradients(made)


@pytest.mark.parametrize('kind', FLOWS)
def test_parameters_that_change_are_an_error_in_loops_and_branches_too(kind: str) -> None:
    with pytest.raises(OSError, match="ChangedTensorError: '.*' has changed"):
        updated_between(kind, recompute='max')
    expected = updated_between(kind)
    assert updated_between(kind, recompute=False) == expected and expected


def static_twin(trips: int) -> Any:
    """What memory_optimize says of the same loop in a static program, with the same hints."""
    paddle.enable_static()
    try:
        main = paddle.static.Program()
        with paddle.static.program_guard(main, paddle.static.Program()):
            net, x = Looped(), paddle.static.data('x', [BATCH, WIDTH])
            most = paddle.static.data('trips', [1], 'int64')
            _, made = paddle.static.nn.while_loop(
                lambda at, x: at < most, lambda at, x: (at + 1, net.block(x)),
                [paddle.zeros([1], 'int64'), net.begin(x)])
            loss = paddle.mean(made * made)
            paddle.optimizer.SGD(0.1).minimize(loss)
            return memory_optimize(main, fetch_list=[loss], recompute='max', trip_count=trips)
    finally:
        paddle.disable_static()


def test_a_loop_in_a_layer_saves_as_its_static_twin_does() -> None:
    trips, made = 64, flow('loop')
    report = memory_optimize(made, recompute='max', trip_count=trips)
    inputs = data(0), paddle.to_tensor([trips])
    resting = settled.long_at_rest() - sum(each.numpy().nbytes for each in inputs)
    loss = made(*inputs)
    kept = settled.at_rest() - resting
    loss.backward()
    program, twin = report.programs[0], static_twin(trips)
    assert abs(kept - program.kept_after) <= 0.01 * kept
    assert program.kept_after < 0.3 * program.kept_before
    saved = [each.peak_bytes_before / each.peak_bytes_after for each in (program.report, twin)]
    assert saved[0] >= 0.95 * saved[1] > 3


@pytest.mark.parametrize('pir', [True, False])
def test_what_is_kept_between_the_parts_is_what_was_predicted(pir: bool) -> None:
    paddle.set_flags({FLAG: pir})
    try:
        made = static(Net(blocks=2), True)
        report = memory_optimize(made, recompute='max')
        x = paddle.concat([data(0)] * 256)
        resting = settled.long_at_rest() - x.numpy().nbytes
        loss = made(x)
        kept = settled.at_rest() - resting
        loss.backward()
    finally:
        paddle.set_flags({FLAG: True})
    assert abs(kept - report.programs[0].kept_after) <= 0.01 * kept
    assert report.programs[0].kept_after < 0.5 * report.programs[0].kept_before


def test_state_is_not_carried_on_twice_where_paddle_translates_programs() -> None:
    """A clone of batch_norm reads no state: Paddle would translate the program, and end the process over it."""

    def trained_net(optimized: bool) -> Tuple[bytes, ...]:
        paddle.seed(3)
        made = static(Net(blocks=2), False)
        if optimized:
            report = memory_optimize(made, recompute='max')
        found = trained(made, SIMPLE)
        assert not optimized or report.programs[0].report.changed
        return found

    assert trained_net(True) == trained_net(False)
