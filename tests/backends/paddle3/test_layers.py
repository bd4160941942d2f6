"""memory_optimize for layers on Paddle 3: the ways in which users write them, to the last byte."""
from __future__ import annotations

from typing import Any, Tuple

import paddle
import pytest
from paddle.base import core

from tests.backends.layers import BATCH, WAYS, Net, built, data, static, trained
from tests.backends.layers_anywhere import (  # noqa: F401
    dygraph, simple, untouched, test_programs_made_before_are_made_again_and_on_release_too,
    test_twice_changes_nothing, test_what_is_saved_is_the_untouched_program,
    test_what_cannot_be_planned_is_said_and_left_alone, test_bad_calls_are_answered_at_once)
from transpiler import memory_optimize

# The rest is the same for stretches, which take longer to build.
STRETCHES = ('called', 'layers inside')


@pytest.mark.parametrize('way, full_graph',
                         [(way, True) for way in WAYS] + [(way, False) for way in STRETCHES])
def test_training_gives_the_same_bytes(way: str, full_graph: bool) -> None:
    made, step = built(way, full_graph)
    report = memory_optimize(made, recompute='max', batch_size=BATCH)
    assert trained(made, step) == untouched(way, full_graph)
    trains = [each for each in report.programs if each.traced.mode == 'train']
    assert trains and all(each.report.changed for each in trains)
    assert all(each.kept_after < each.kept_before for each in trains)
    modes = {each.traced.mode for each in report.programs}
    assert modes == ({'train', 'eval'} if way == 'evaluated between' else {'train'})


def test_a_first_call_without_gradients_is_one_of_a_program_without_them() -> None:
    made, again = simple(), simple()
    report = memory_optimize(made, recompute='max')
    with paddle.no_grad():
        losses = []
        for each in (made, again):
            paddle.seed(9)
            losses.append(each(data(0)).numpy().tobytes())
    assert losses[0] == losses[1]
    assert [each.traced.mode for each in report.programs] == ['no grad']


def measured(recompute: Any) -> Tuple[Any, int, int]:
    """The report of one program; bytes between the parts, and the least peak, of some steps with large batches."""
    made = static(Net(blocks=2), True)
    report = memory_optimize(made, recompute=recompute) if recompute else None
    x, kept, peaks = paddle.concat([data(0)] * 256), [], []
    for _ in range(5):
        resting = core.host_memory_stat_current_value('Allocated', 0)
        core.host_memory_stat_reset_peak_value('Allocated', 0)
        loss = made(x)
        kept.append(core.host_memory_stat_current_value('Allocated', 0) - resting)
        loss.backward()
        peaks.append(core.host_memory_stat_peak_value('Allocated', 0) - resting)
        del loss
        for parameter in made.parameters():
            parameter.clear_gradient(False)
    return report, min(kept), min(peaks)


def test_what_is_kept_and_the_peak_are_what_was_predicted() -> None:
    """The input is the caller's, and there before."""
    given = data(0).numpy().nbytes * 256
    _, kept, peak = measured(None)
    report, less_kept, lower = measured('max')
    made = report.programs[0]
    for seen, said in ((kept, made.kept_before), (peak, made.report.peak_bytes_before),
                       (less_kept, made.kept_after), (lower, made.report.peak_bytes_after)):
        assert abs(seen + given - said) <= 0.01 * said
    assert less_kept < 0.5 * kept and lower < 0.75 * peak
