"""What loops change the dims of from trip to trip: never counted for less than it becomes."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import paddle
import pytest
from paddle import static

from benchmarks.programs import build
from benchmarks.programs.case import Case, Draft, Options, drafting
from tests import settled
from tests.backends.paddle3.running import MIB, in_order, optimized, run
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.scopes import fresh_scope
from transpiler.ir import Size
from transpiler.ir.symbols import is_trip

WIDTH = 64
Made = Callable[[Any, int], List[Any]]


def loop(trips: int, body: Callable[..., List[Any]], start: List[Any]) -> List[Any]:
    """What `body` makes of `start` in so many trips."""
    most = paddle.full([], trips, 'int64')
    made = static.nn.while_loop(lambda i, *_: i < most,
                                lambda i, *carried: [i + 1, *body(*carried)],
                                [paddle.full([], 0, 'int64'), *start])
    return list(made[1:])


def longer(x: Any, trips: int) -> List[Any]:
    """A cache, and what attends to it: Paddle declares scores of the first trip."""

    def body(cache: Any, state: Any) -> List[Any]:
        cache = paddle.concat([cache, state], axis=1)
        scores = paddle.nn.functional.softmax(paddle.matmul(state, cache, transpose_y=True))
        return [cache, paddle.tanh(paddle.matmul(scores, cache))]

    return loop(trips, body, [x * 1.0, paddle.exp(x)])


def scores_carried(x: Any, trips: int) -> List[Any]:
    """Declared with the dims of the first trip, in the body and behind it."""

    def body(cache: Any, _: Any) -> List[Any]:
        cache = paddle.concat([cache, x], axis=1)
        return [cache, paddle.matmul(x, cache, transpose_y=True)]

    twice = paddle.concat([x, x], axis=1)
    return loop(trips, body, [x * 1.0, paddle.matmul(x, twice, transpose_y=True)])


def in_a_branch(x: Any, trips: int) -> List[Any]:
    longer_or_not = lambda c: static.nn.cond(
        paddle.mean(c) > -9, lambda: paddle.concat([c, x], 1), lambda: c * 1.0)
    return loop(trips, lambda cache: [longer_or_not(cache)], [x * 1.0])


def in_both_loops(x: Any, trips: int) -> List[Any]:
    inner = lambda c: loop(trips, lambda v: [paddle.concat([v, x], axis=1)], [c * 2.0])
    return loop(trips, inner, [x * 1.0])


def around_a_loop(x: Any, trips: int) -> List[Any]:
    """What the inner loop is given changes from trip to trip of the outer one; Paddle declares it as it is first."""
    inner = lambda c: loop(2, lambda v: [paddle.tanh(v)], [c * 2.0])
    return loop(trips, lambda c: [paddle.concat([*inner(c), x], axis=1)], [x * 1.0])


def longer_and_longer(x: Any, trips: int) -> List[Any]:
    """One by what the other is."""
    body = lambda a, b: [paddle.concat([a, x], axis=1), paddle.concat([b, a], axis=1)]
    return loop(trips, body, [x * 1.0, x * 2.0])


def shorter(x: Any, trips: int) -> List[Any]:
    return loop(trips, lambda _: [paddle.exp(x)], [paddle.concat([x, x], axis=1)])


def twice_as_long(x: Any, trips: int) -> List[Any]:
    return loop(trips, lambda c: [paddle.concat([c, c], axis=1)], [x * 1.0])


def added_in_a_branch(x: Any, trips: int) -> List[Any]:
    """Paddle says of a sum that it is as long as the longer of both, of a branch's that it is one of two."""
    either = lambda c: static.nn.cond(paddle.mean(c) > 0, lambda: paddle.tanh(c + x), lambda: c * x)
    return loop(trips, lambda state: [either(state)], [x * 1.0])


def added_in_both_loops(x: Any, trips: int) -> List[Any]:
    inner = lambda c: loop(2, lambda v: added_in_a_branch(v + x, 1), [c * 2.0])
    return loop(trips, lambda c: [inner(c)[0] + c], [x * 1.0])


def added_to_one(x: Any, trips: int) -> List[Any]:
    """One row first, then as many as it is added to."""
    either = lambda c: static.nn.cond(paddle.mean(c) > 0, lambda: c + x, lambda: x - c)
    return loop(trips, lambda state: [either(state)], [paddle.ones([1, 1, WIDTH])])


ALIKE = (added_in_a_branch, added_in_both_loops)
KNOWN: Dict[str, Made] = {
    each.__name__: each
    for each in (longer, scores_carried, in_a_branch, in_both_loops, around_a_loop,
                 longer_and_longer, shorter, added_to_one, *ALIKE)
}


def built(make: Made, trips: int, rows: int = 8, open_batch: bool = False) -> Case:
    with drafting(Options(static_batch=not open_batch, inference=True), rows, trips) as draft:
        return draft.case(make(draft.floats('x', [rows, 1, WIDTH]), trips), training=False)


def shown(case: Case) -> List[np.ndarray]:
    with fresh_scope():
        executor = static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        return executor.run(case.main, feed=case.feed(0), fetch_list=list(case.fetch))


@pytest.mark.parametrize('open_batch', [False, True])
@pytest.mark.parametrize('name', KNOWN)
def test_what_a_loop_makes_is_never_more_than_is_said(name: str, open_batch: bool) -> None:
    for trips in (1, 2, 5):
        case = built(KNOWN[name], trips, open_batch=open_batch)
        read = import_program(case.main)
        values = {v.id: read.graph.values[i] for i, v in read.values.items()}
        symbols = {s for v in values.values() if v.bound is not None for s in v.bound.dims}
        dims = {s: trips if is_trip(s) else 8 for s in symbols}
        made = shown(case)
        assert len(made) == len(case.fetch) > 0
        for value, result in zip(case.fetch, made):
            bound = values[value.id].bound
            assert bound is not None and bound.evaluate(dims) >= result.nbytes, (trips, str(value))


@pytest.mark.parametrize('open_batch', [False, True])
def test_of_what_each_trip_makes_as_much_longer_the_last_is_known(open_batch: bool) -> None:
    case = built(longer, 5, open_batch=open_batch)
    read = import_program(case.main)
    values = {v.id: read.graph.values[i] for i, v in read.values.items()}
    seen = [(values[v.id].bound.evaluate({
        'N': 8,
        'T1': 5
    }), each.nbytes) for v, each in zip(case.fetch, shown(case))]
    assert seen and all(said == made for said, made in seen)


@pytest.mark.parametrize('make', ALIKE)
def test_what_is_added_to_what_is_as_long_stays_so_long(make: Made) -> None:
    case = built(make, 5, open_batch=True)
    read = import_program(case.main)
    values = read.graph.values
    sizes = {v.size for v in values if v.size is not None and 'N' in v.size.dims}
    assert sizes == {Size.of(4 * WIDTH) * Size.dim('N')}
    assert not optimized(built(make, 5, open_batch=True)).bounded_sizes


@pytest.mark.parametrize('name', ['weights_in_cond_in_loop', 'cond_in_loop', 'gru_loop'])
def test_what_a_trained_loop_carries_is_as_large_in_each_trip(name: str) -> None:
    graph = import_program(build(name, Options()).main).graph
    loops = [r for r in graph.regions if r.trips.dims]
    bounds = [v.bound for v in graph.values if v.bound is not None and 'N' in v.bound.dims]
    assert loops and bounds and not any(is_trip(s) for bound in bounds for s in bound.dims)


def test_where_nobody_can_say_how_long_it_becomes_the_report_says_so() -> None:
    report = optimized(built(twice_as_long, 5))
    assert any(name.startswith('while') for name in report.unknown_sizes)
    assert any(name.startswith('concat') for name in report.unknown_sizes)


# What a trip begins with is counted as long as what it ends with; in nested loops, as if the others had come to their ends.
@pytest.mark.parametrize('make, trips, within', [(longer, 20, 0.1), (in_both_loops, 5, 0.5)])
def test_a_loop_that_makes_something_longer_needs_what_was_predicted(make: Made, trips: int,
                                                                     within: float) -> None:
    means = lambda x, trips: [paddle.mean(each) for each in make(x, trips)]
    report = optimized(built(means, trips, rows=1024))
    assert not report.unknown_sizes and report.peak_bytes_before <= report.sure_bytes

    def first() -> Tuple[float]:
        settled.long_at_rest()  # what other tests have left would be freed meanwhile
        with in_order():
            return (run(built(means, trips, rows=1024), 1).peaks[0],)

    settled.assert_as_predicted(first, (report.peak_bytes_before / MIB,), within)
