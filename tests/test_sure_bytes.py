"""`sure_bytes` is what no run needs more than, on each runtime, and not much more than runs do need."""
from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import paddle
import pytest

from benchmarks.apart import apart
from tests.graphs import Draft
from tests.harness import (ORDERS, Case, Mode, Peak, executor_mode, fingerprint, least_peak,
                           measure_peak, new_programs)
from tests.serving.conftest import tiny  # noqa: F401  a fixture
from tests.processor import needs_bfloat16
from tests.scenarios.common import data, fc, floats, integers, random_feed, train
from transpiler import MemoryBudgetError, memory_optimize
from transpiler.analysis.retained import retained_peak, retained_peak_in_any_order
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import peak_with_workspaces
from transpiler.backends.paddle2.importer import import_program
from transpiler.ir import RegionKind, Size
from transpiler.planning import PlanOptions
from transpiler.report import MemoryReport
from transpiler.request import Request
from transpiler.runtime import COLLECTING, RETAINING
from transpiler.serving.files import read_program, write_program
from transpiler.serving.offline import optimize_saved
from transpiler.serving.wanted import Optimized, check_budget
from transpiler.serving.apart import RunSpec
from transpiler.serving.running import run

_TRAINED = ('tests.passes.test_hand_out:deep_branch', 'tests.measured_programs:loop',
            f'{__name__}:fetched_activation')
_TRIPS = {'trip_count': 12}
_STEPS = 4
_SHORT = 40  # steps of a millisecond: some are over before the collector wakes up


def fetched_activation() -> Case:
    """Half of the peak is what the caller fetches."""
    with new_programs() as (main, startup):
        wide = paddle.concat([fc(data('x', 128, 512), 512, 'relu')] * 8, axis=1)
        loss = paddle.mean(fc(wide, 16))
        train(loss)
    return Case(main, startup, random_feed(x=floats(128, 512)), [wide.name, loss.name])


@lru_cache(maxsize=None)
def _report(builder: str, mode: Mode) -> MemoryReport:
    module, function = builder.split(':')
    case = getattr(import_module(module), function)()
    with executor_mode(mode):
        report = memory_optimize(case.main, fetch_list=list(case.fetch), **_TRIPS)
    assert report.runtime == ('collecting' if mode.collect else 'retaining')
    return report


@pytest.mark.parametrize('builder', _TRAINED)
@pytest.mark.parametrize('mode', [Mode(), Mode(collect=False)], ids=str)
def test_no_run_of_a_training_program_needs_more_than_is_sure(builder: str, mode: Mode) -> None:
    peak = measure_peak(builder, True, mode, _STEPS, _TRIPS)
    assert peak.above_resting() <= _report(builder, mode).sure_bytes


def mixed_precision(rows: int = 64, width: int = 256) -> Case:
    """oneDNN's kernels multiply and add in bfloat16."""
    with new_programs() as (main, startup):
        hidden = data('x', rows, width)
        for _ in range(3):
            hidden = fc(hidden, width, 'relu')
        loss = _in_bfloat16(paddle.mean(hidden), main)
    return Case(main, startup, random_feed(x=floats(rows, width)), loss)


def mixed_attention() -> Case:
    """Heads are turned by kernels of oneDNN's forward, and by others backward, as it has none for bfloat16."""
    with new_programs() as (main, startup):
        hidden = data('x', 4, 32, 128)
        query, key, value = (paddle.transpose(
            paddle.reshape(paddle.static.nn.fc(hidden, 128, num_flatten_dims=2), [4, 32, 4, 32]),
            [0, 2, 1, 3]) for _ in range(3))
        shares = paddle.nn.functional.softmax(paddle.matmul(query, key, transpose_y=True))
        loss = _in_bfloat16(paddle.mean(paddle.matmul(shares, value)), main)
    return Case(main, startup, random_feed(x=floats(4, 32, 128)), loss)


def mixed_images() -> Case:
    """What a kernel of oneDNN's pools has been given another shape, in memory of its own, by one of Paddle's."""
    with new_programs() as (main, startup):
        hidden = fc(data('x', 32, 256), 1024)
        images = paddle.reshape(hidden, [32, 4, 16, 16])
        pooled = paddle.nn.functional.max_pool2d(images, 2)
        loss = _in_bfloat16(paddle.mean(pooled) + paddle.mean(paddle.tanh(hidden)), main)
    return Case(main, startup, random_feed(x=floats(32, 256)), loss)


def mixed_by_lists() -> Case:
    """Products alone in bfloat16, between layers in single precision."""
    with new_programs() as (main, startup):
        hidden = data('x', 64, 256)
        for _ in range(3):
            inner = fc(paddle.tanh(fc(hidden, 512)), 256)
            hidden = paddle.static.nn.layer_norm(hidden + inner)
        loss = _in_bfloat16(paddle.mean(hidden),
                            main,
                            custom_bf16_list={'matmul_v2', 'mul'},
                            custom_fp32_list={'elementwise_add', 'tanh'})
    return Case(main, startup, random_feed(x=floats(64, 256)), loss)


def _in_bfloat16(loss: Any, main: Any, **lists: Any) -> Any:
    """Trains it; gives the name that it has then."""
    amp = paddle.static.amp.bf16
    train(
        loss,
        amp.decorate_bf16(paddle.optimizer.SGD(0.1),
                          amp_lists=amp.AutoMixedPrecisionListsBF16(**lists)))
    return next(op for op in main.global_block().ops if op.type == 'reduce_mean').output('Out')


@needs_bfloat16
@pytest.mark.parametrize('builder',
                         ['mixed_precision', 'mixed_attention', 'mixed_images', 'mixed_by_lists'])
@pytest.mark.parametrize('optimise', [False, True])
def test_the_first_run_holds_what_it_gives_other_layouts_and_no_copies(
        builder: str, optimise: bool) -> None:
    case, mode = globals()[builder](), Mode(order='sequential')
    with executor_mode(mode):
        if optimise:
            memory_optimize(case.main, fetch_list=list(case.fetch))
    graph = import_program(fingerprint(case.main), case.fetch).graph
    needed = peak_with_workspaces(graph, Timeline(graph, COLLECTING, {}))
    peak = least_peak(f'{__name__}:{builder}',
                      needed,
                      optimise,
                      of=Peak.first_above_resting,
                      mode=mode,
                      steps=1)
    assert peak.first_above_resting() == needed


@needs_bfloat16
@pytest.mark.parametrize('mode', [Mode(), Mode(order='sequential')], ids=str)
def test_copies_in_other_layouts_are_predicted_and_within_what_is_sure(mode: Mode) -> None:
    builder = f'{__name__}:mixed_precision'
    report = _report(builder, mode)
    assert measure_peak(builder, True, mode, _STEPS, _TRIPS).above_resting() <= report.sure_bytes
    enough = 1.03 * report.needed_bytes
    peak = least_peak(builder, enough, mode=mode, steps=2, options=_TRIPS)
    assert 0.97 * report.needed_bytes <= peak.above_resting() <= enough


def layers() -> Case:
    with new_programs() as (main, startup):
        hidden = data('x', 128, 256)
        for _ in range(6):
            hidden = paddle.tanh(paddle.sin(fc(hidden, 256)))
        loss = paddle.mean(hidden)
    return Case(main, startup, random_feed(x=floats(128, 256)), [loss.name])


def test_what_is_not_released_for_a_budget_is_sure_to_fit_if_it_is_never_collected() -> None:
    """Where the budget bears all that, nothing is released."""
    mode, case = Mode(order='sequential'), layers()
    with executor_mode(mode):
        report = memory_optimize(case.main, fetch_list=list(case.fetch), budget='1GB')
    never = measure_peak(f'{__name__}:layers', False, replace(mode, collect=False), 2)
    assert never.later - never.resting <= report.sure_bytes


def sparse_and_clipped() -> Case:
    """Which rows of the embedding have gradients, and how many, depends on what is fed."""
    with new_programs() as (main, startup):
        words, labels = data('words', 256, 16, dtype='int64'), data('labels', 256, 1, dtype='int64')
        found = paddle.sum(paddle.static.nn.embedding(words, [3000, 128], is_sparse=True), axis=1)
        scores = fc(fc(found, 256, 'relu'), 10)
        loss = paddle.mean(paddle.nn.functional.cross_entropy(scores, labels))
        clip = paddle.nn.ClipGradByGlobalNorm(1.0)
        train(loss, paddle.optimizer.SGD(0.1, grad_clip=clip))
    return Case(main, startup,
                random_feed(words=integers(3000, 256, 16), labels=integers(10, 256, 1)),
                [loss.name])


def test_sparse_gradients_under_a_clip_never_need_more_than_untouched() -> None:
    builder, mode = f'{__name__}:sparse_and_clipped', Mode(order='sequential')
    plain = measure_peak(builder, False, mode, 1)
    optimised = least_peak(builder, plain.first, of=lambda peak: peak.first, mode=mode, steps=1)
    assert optimised.first <= plain.first
    assert optimised.above_resting() <= _report(builder, mode).sure_bytes


@pytest.mark.parametrize('builder', _TRAINED)
def test_a_later_run_that_holds_all_needs_what_is_predicted(builder: str) -> None:
    mode = Mode(collect=False, order='sequential')
    peak = measure_peak(builder, True, mode, _STEPS, _TRIPS)
    assert peak.later - peak.resting == pytest.approx(_report(builder, mode).needed_bytes, rel=0.03)


def products_by_equations() -> Case:
    """Whose kernels do not take the memory that the run before has left for their results, one of which hands its own on."""
    with new_programs() as (main, startup):
        hidden = fc(data('x', 64, 256), 256, 'tanh')
        heads = paddle.reshape(hidden, [64, 4, 64])
        scores = paddle.einsum('bij,bkj->bik', heads, paddle.reshape(hidden, [64, 4, 64]))
        loss = paddle.mean(paddle.square(scores))
        train(loss)
    return Case(main, startup, random_feed(x=floats(64, 256)), [loss.name])


def test_a_later_run_makes_anew_what_its_kernels_do_not_make_in_the_memory_that_is_there() -> None:
    graph = import_program(fingerprint(products_by_equations().main)).graph
    needed = peak_with_workspaces(graph, Timeline(graph, RETAINING, {}))
    mode = Mode(collect=False, order='sequential')
    peak = measure_peak(f'{__name__}:products_by_equations', False, mode, _STEPS)
    assert peak.later - peak.resting == needed


_INPUTS = 64 * 16 * 4  # bytes


def growing() -> Case:
    """Batches of one half, and then of the whole size. A result is made in the memory of what was made long before."""
    with new_programs() as (main, startup):
        x, weight = data('x', -1, 16), paddle.create_parameter([16, 2048], 'float32')
        one, other = paddle.matmul(x, weight), paddle.matmul(x, weight + 1.0)
        mean = paddle.add(paddle.mean(paddle.tanh(one)), paddle.mean(other))
    batches = [random_feed(x=floats(rows, 16)) for rows in (64, 32)]
    return Case(main, startup, lambda step: batches[step % 2](step), [mean.name])


@pytest.mark.parametrize('order', ORDERS)
def test_what_a_smaller_batch_has_left_is_there_while_a_larger_one_is_made(order: str) -> None:
    graph = import_program(fingerprint(growing().main)).graph
    timeline = Timeline(graph, RETAINING, {'N': 64})
    mode = Mode(collect=False, order=order)
    peak = measure_peak(f'{__name__}:growing', False, mode, _STEPS)
    assert peak.later - peak.resting <= retained_peak_in_any_order(graph, timeline) + _INPUTS
    if order == 'sequential':
        needed = peak_with_workspaces(graph, timeline)
        assert needed + 32 * 2048 * 4 <= peak.later - peak.resting
        assert peak.later - peak.resting <= retained_peak(graph, timeline) + _INPUTS


def growing_by_a_row() -> Case:
    """What is large is made last, when all else is as large as this batch wants it."""
    with new_programs() as (main, startup):
        x = data('x', -1, 16)
        mean = paddle.mean(
            paddle.tanh(paddle.matmul(paddle.tanh(x), paddle.create_parameter([16, 32],
                                                                              'float32'))))
        paddle.tile(x, [1, 256])  # to 4096
    batches = [random_feed(x=floats(rows, 16)) for rows in (1, 62, 63, 64)]
    return Case(main, startup, lambda step: batches[step](step), [mean.name])


@pytest.mark.parametrize('order', ORDERS)
def test_what_a_batch_of_a_row_less_has_left_is_there_while_a_result_is_made_last(
        order: str) -> None:
    """`tests.wild` 8517830 needed 189 KB of 172."""
    graph = import_program(fingerprint(growing_by_a_row().main)).graph
    timeline = Timeline(graph, RETAINING, {'N': 64})
    peak = measure_peak(f'{__name__}:growing_by_a_row', False, Mode(collect=False, order=order),
                        _STEPS)
    assert peak.later - peak.resting <= retained_peak_in_any_order(graph, timeline) + _INPUTS
    if order == 'sequential':
        needed = peak_with_workspaces(graph, timeline)
        assert needed + 60 * 4096 * 4 < peak.later - peak.resting
        assert peak.later - peak.resting <= retained_peak(graph, timeline) + _INPUTS


def test_bodies_that_may_run_side_by_side_are_all_there_at_once() -> None:
    """In a run that starts what is ready, of a runtime that frees nothing."""
    draft = Draft()
    draft.values('x a b')
    draft.op('make', '', 'x')
    for name in 'ab':
        body = draft.region(draft.op('while', 'x', name), RegionKind.LOOP, trips=Size.of(1))
        for inside in range(3):
            draft.value(f'{name}{inside}', region=body)
            draft.op('inside', 'x', f'{name}{inside}', region=body)
    graph, unit = draft.graph, 4096
    timeline = Timeline(graph, RETAINING, {})
    assert timeline.peak_bytes == retained_peak(graph, timeline) == (3 + 3) * unit
    assert retained_peak_in_any_order(graph, timeline) == (3 + 3 + 3) * unit


def test_a_plan_says_so_for_sure() -> None:
    case = growing()
    with executor_mode(Mode(collect=False)):
        report = memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=64)
    larger = report.needed_bytes + 64 * 2048 * 4
    assert larger <= report.sure_bytes <= larger + 2 * _INPUTS


def _optimized(path: Path) -> Optimized:
    return optimize_saved(read_program(str(path)), Request(batch_size=2), PlanOptions())


def test_no_run_of_a_predictor_needs_more_than_is_sure(tiny: Any) -> None:  # noqa: F811
    done = _optimized(tiny)
    out = str(tiny.parent / 'sure')
    write_program(out, read_program(str(tiny)), done.serialized, done.replaced, force=True)
    for setting in ((), ('memory_optim',), ('new_executor',)):
        measured = apart(run, RunSpec(out, str(tiny) + '.npz', settings=list(setting), runs=3))
        assert 0 < max(measured.peak_bytes) <= done.report.sure_bytes
    assert done.report.sure_bytes <= 1.01 * done.report.needed_bytes


def test_a_predictor_is_given_the_budget_that_is_sure_and_no_less(tiny: Any) -> None:  # noqa: F811
    report = _optimized(tiny).report
    enough = report.resting_bytes + report.sure_bytes
    check_budget(report, enough)
    with pytest.raises(MemoryBudgetError):
        check_budget(report, enough - 1)


def short() -> Case:
    with new_programs() as (main, startup):
        hidden = data('x', 8, 64)
        for _ in range(6):
            hidden = paddle.tanh(fc(hidden, 64))
        loss = paddle.mean(hidden)
        train(loss, paddle.optimizer.Momentum(0.01, 0.9))
    return Case(main, startup, random_feed(x=floats(8, 64)), [loss.name])


@pytest.mark.parametrize('order', ORDERS)
def test_no_short_run_without_a_budget_needs_more_than_is_sure(order: str) -> None:
    """Nothing is released there, as that would take too long: what a collector that is late lets pile up in a run counts. One whose
    thread gets no processor for many such runs, of a tenth of a millisecond each, leaves more."""
    mode, builder = Mode(order=order), f'{__name__}:short'
    case = short()
    with executor_mode(mode):
        report = memory_optimize(case.main, fetch_list=list(case.fetch))
    assert report.changed and 'transpiler.empty' not in case.main.global_block().vars
    peak = least_peak(builder, report.sure_bytes, mode=mode, steps=_SHORT)
    assert peak.above_resting() <= report.sure_bytes
    never = measure_peak(builder, True, replace(mode, collect=False), 2, {'runtime': 'executor'})
    assert report.budget_bytes < never.later - never.resting <= report.sure_bytes


_ROWS, _CACHED, _TRIPS_OF_CACHE = 8, 64, 24


def caches() -> Case:
    """A loop makes keys and values longer by one row with each trip, as generation does."""
    with new_programs() as (main, startup):
        weight = paddle.create_parameter([_CACHED, _CACHED], 'float32')
        now, at = data('x', _ROWS, 1, _CACHED) * 1.0, paddle.zeros([1], 'int64')

        def body(at: Any, now: Any, keys: Any, values: Any) -> Any:
            keys = paddle.concat([keys, paddle.matmul(now, weight)], axis=1)
            values = paddle.concat([values, paddle.tanh(now)], axis=1)
            shares = paddle.nn.functional.softmax(paddle.matmul(now, keys, transpose_y=True))
            return [at + 1, paddle.matmul(shares, values), keys, values]

        end = paddle.full([1], _TRIPS_OF_CACHE, 'int64')
        found = paddle.static.nn.while_loop(lambda at, *_: at < end,
                                            body, [at, now, now * 2.0, now * 3.0],
                                            is_test=True)
        total = paddle.mean(found[1])
    return Case(main, startup, random_feed(x=floats(_ROWS, 1, _CACHED)), [total.name])


@pytest.mark.parametrize('order', ['default', 'sequential'])
def test_what_a_loop_makes_longer_is_there_twice_while_it_is_made_longer(order: str) -> None:
    case, mode = caches(), Mode(collect=False, order=order)
    told = {'trip_count': _TRIPS_OF_CACHE}
    with executor_mode(mode):
        report = memory_optimize(case.main, fetch_list=list(case.fetch), **told)
    used = measure_peak(f'{__name__}:caches', True, mode, _STEPS, told).above_resting()
    assert used <= report.sure_bytes
    rows = 2 * 3 * _ROWS * _CACHED * 4  # of two caches each of three has a row less, at the most: made, carried, left
    assert used <= report.needed_bytes <= used + rows
