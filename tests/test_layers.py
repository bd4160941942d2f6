"""memory_optimize for layers on Paddle 2.6: the ways in which users write them, to the last byte, in both interpreters."""
from __future__ import annotations

from typing import Tuple

import paddle
import pytest

from tests import settled
from tests.backends.layers import SIMPLE, BATCH, WAYS, Net, built, data, static, trained
from tests.backends.layers_anywhere import (  # noqa: F401
    dygraph, untouched, test_programs_made_before_are_made_again_and_on_release_too,
    test_twice_changes_nothing, test_what_is_saved_is_the_untouched_program,
    test_what_cannot_be_planned_is_said_and_left_alone, test_what_is_kept_is_told_by_layer,
    test_names_of_layers_start_at_the_one_that_was_given,
    test_of_a_function_of_no_layer_all_is_told_in_one_line, test_bad_calls_are_answered_at_once)
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


@pytest.mark.parametrize('way', ['called', 'layers inside'])
def test_stretches_that_paddle_finds_in_bytecode_are_planned_too(way: str) -> None:
    made, step = built(way, False)
    report = memory_optimize(made, recompute='max', batch_size=BATCH)
    assert trained(made, step) == untouched(way, False)
    assert report.programs and all(each.report.changed for each in report.programs)


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
