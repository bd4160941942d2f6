"""Lists on Paddle 3: what a gradient names in one for its shape alone is gone before it."""
from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Callable, Dict, List, Tuple

import paddle
import pytest
from paddle import static

from benchmarks.apart import apart
from benchmarks.programs.case import Case, Options, drafting
from tests.backends.paddle3.running import (MIB, Seen, assert_equal, first_peak, in_order,
                                            kept_uncollected, optimized, run, run_planned)

SIDE = 512  # of a value of one MiB


def _apart(x: Any) -> List[Any]:
    """Two values, neither in place."""
    return [paddle.flip(x, [0]), paddle.flip(x, [1])]


def _joined(x: Any) -> Any:
    return paddle.concat(_apart(x), axis=1)


def _stacked(x: Any) -> Any:
    return paddle.stack(_apart(x))


def _read_in_place_too(x: Any) -> Any:
    """The executor does not work in place on what a list names later. Most is needed where it would."""
    left, right = _apart(x)
    joined = paddle.concat([left, right], axis=1)
    large = paddle.tile(x.detach(), [24, 1])
    return joined * (paddle.mean(paddle.tanh(left)) + paddle.mean(large))


def _once_more(x: Any) -> Any:
    left, right = _apart(x)
    return paddle.concat([left, left, right, x], axis=0)


def _in_trips(x: Any) -> Any:
    """Of a loop, whose gradient takes what each trip has kept."""
    count, most = paddle.full([1], 0, 'int64'), paddle.full([1], 3, 'int64')

    def trip(i: Any, h: Any) -> List[Any]:
        left, right = _apart(paddle.tanh(h))
        return [i + 1, paddle.concat([left, right], axis=1)[:, ::2] + x]

    return static.nn.while_loop(lambda i, _: i < most, trip, [count, x])[1]


def _several(x: Any) -> Any:
    width = x.shape[1]
    for _ in range(3):
        x = paddle.tanh(_joined(x)[:, :width])
    return _joined(x)


def _in_a_branch(x: Any) -> Any:
    return static.nn.cond(paddle.mean(x) > -100, lambda: _several(x), lambda: _joined(x))


WAYS: Dict[str, Callable[[Any], Any]] = {
    'joined': _joined,
    'stacked': _stacked,
    'read in place, too': _read_in_place_too,
    'once more': _once_more,
    'in trips': _in_trips,
    'in a branch': _in_a_branch,
}
STRAIGHT = [way for way, make in WAYS.items() if make not in (_in_trips, _in_a_branch)]


def built(way: str, side: int = SIDE, static_batch: bool = True) -> Case:
    """The list stands between layers, whose gradients need what they read."""
    with drafting(Options(static_batch=static_batch), batch_size=side) as draft:
        hidden = WAYS[way](paddle.tanh(static.nn.fc(draft.floats('x', [side, side]), side)))
        last = static.nn.fc(paddle.tanh(hidden), side, num_flatten_dims=len(hidden.shape) - 1)
        loss = paddle.mean(paddle.tanh(last))
        paddle.optimizer.SGD(0.1).minimize(loss)
        case: Case = draft.case([loss])
    return case


def _predicted_and_measured(way: str, planned: bool) -> Tuple[float, float]:
    """Bytes of a first run in MiB: by a plan, or untouched in its order."""
    report, build = optimized(built(way)), partial(built, way)
    predicted = (report.peak_bytes_after if planned else report.peak_bytes_before) / MIB
    how: Dict[str, Any] = {'rewrite': optimized} if planned else {'ordered': True}
    return predicted, first_peak(build, predicted * 1.001, **how)


@pytest.mark.parametrize('planned', [False, True])
@pytest.mark.parametrize('way', STRAIGHT)
def test_a_program_needs_what_was_predicted(way: str, planned: bool) -> None:
    predicted, measured = apart(_predicted_and_measured, way, planned)
    assert abs(predicted - measured) <= 0.001 * measured


SMALL = partial(built, side=16)


@lru_cache(maxsize=None)
def untouched(way: str, static_batch: bool) -> Seen:
    with in_order():
        return run(SMALL(way, static_batch=static_batch))


@pytest.mark.parametrize('static_batch', [True, False])
@pytest.mark.parametrize('recompute', ['auto', 'max', False])
@pytest.mark.parametrize('way', WAYS)
def test_five_steps_give_the_same_bytes(way: str, recompute: Any, static_batch: bool) -> None:
    case = SMALL(way, static_batch=static_batch)
    report = optimized(case, recompute=recompute)
    assert report.changed or recompute is False or not static_batch
    assert_equal(untouched(way, static_batch), run_planned(case, report))


def _for_a_budget() -> Tuple[Seen, Seen]:
    case = SMALL('in trips')
    assert optimized(case, budget=1 << 22).changed
    return untouched('in trips', True), run(case)


def test_no_kernel_is_tried_with_steps_that_are_not_those_of_the_program() -> None:
    """Those of the slice in the loop come from where each trip has kept them; `strided_slice_grad` has no end with others, or writes where it may not."""
    assert_equal(*apart(_for_a_budget, seconds=300))


@pytest.mark.parametrize('way', STRAIGHT)
def test_what_is_let_go_of_is_gone_if_the_collector_never_comes(way: str) -> None:
    assert 'pd_op.share_var' in kept_uncollected(partial(built, way, side=64))
