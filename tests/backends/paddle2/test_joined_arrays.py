"""Arrays whose tensors are joined: the operators that do it have them under names of their own until they next run."""

from __future__ import annotations

from typing import Any

import paddle
import pytest

from tests.harness import Case, Mode, executor_mode, fingerprint, least_peak, measure_peak, new_programs
from tests.scenarios.common import data, floats, random_feed, train
from transpiler import memory_optimize
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import peak_with_workspaces
from transpiler.backends.paddle2.importer import import_program
from transpiler.ir import RELEASE
from transpiler.runtime import COLLECTING, RETAINING, Runtime

_ROWS, _WIDTH, _TRIPS = 16, 128, 20
_RETAINING, _COLLECTING = Mode(collect=False, order='sequential'), Mode(order='sequential')
_TOLD = {'trip_count': _TRIPS}


def joined(stacked: bool = True) -> Case:
    """Four tensors, each written by an op of its own."""
    with new_programs() as (main, startup):
        hidden = data('x', 64, 1024) * paddle.create_parameter([1], 'float32')
        array = paddle.tensor.create_array('float32')
        for i in range(4):
            array = paddle.tensor.array_write(hidden * float(i + 1), paddle.full([1], i, 'int64'),
                                              array)
        whole, _ = paddle.tensor.manipulation.tensor_array_to_tensor(array, 0, use_stack=stacked)
        loss = paddle.mean(whole * whole)
        train(loss)
    return Case(main, startup, random_feed(x=floats(64, 1024)), [loss.name])


def concatenated() -> Case:
    return joined(stacked=False)


def joined_twice() -> Case:
    """The gradients are two arrays, of which a third is the sum."""
    with new_programs() as (main, startup):
        hidden = data('x', 32, 1024) * paddle.create_parameter([1], 'float32')
        array = paddle.tensor.create_array('float32')
        for i in range(3):
            array = paddle.tensor.array_write(paddle.tanh(hidden * float(i + 1)),
                                              paddle.full([1], i, 'int64'), array)
        stacked, _ = paddle.tensor.manipulation.tensor_array_to_tensor(array, 0, use_stack=True)
        beside, _ = paddle.tensor.manipulation.tensor_array_to_tensor(array, 1)
        loss = paddle.mean(stacked * stacked) + paddle.mean(paddle.tanh(beside))
        train(loss)
    return Case(main, startup, random_feed(x=floats(32, 1024)), [loss.name])


def recurrent() -> Case:
    """A loop over cells writes outputs and states to arrays."""
    with new_programs() as (main, startup):
        network = paddle.nn.RNN(paddle.nn.GRUCell(_WIDTH, _WIDTH))
        return _trained(main, startup, network)


def bidirectional() -> Case:
    """Two of them, whose results only fit together if both loops have as many trips."""
    with new_programs() as (main, startup):
        cells = [paddle.nn.GRUCell(_WIDTH, _WIDTH) for _ in range(2)]
        return _trained(main, startup, paddle.nn.BiRNN(*cells))


def _trained(main: Any, startup: Any, network: Any) -> Case:
    outputs, _ = network(data('x', _ROWS, _TRIPS, _WIDTH))
    loss = paddle.mean(paddle.tanh(outputs))
    train(loss)
    return Case(main, startup, random_feed(x=floats(_ROWS, _TRIPS, _WIDTH)), [loss.name])


def _needed(builder: str, runtime: Runtime) -> int:
    """Bytes above resting that are predicted of the program as it is."""
    case = globals()[builder]()
    imported = import_program(fingerprint(case.main), case.fetch)
    timeline = Timeline(imported.graph, runtime, dict.fromkeys(imported.symbols(), _TRIPS))
    return peak_with_workspaces(imported.graph, timeline)


# Bytes of numbers alone, as counters: one may be gone while its operator runs.
_NUMBERS = 64
_PROGRAMS = ('joined', 'concatenated', 'joined_twice', 'recurrent', 'bidirectional')


@pytest.mark.parametrize('builder', _PROGRAMS)
def test_where_nothing_is_freed_a_later_run_needs_what_is_predicted(builder: str) -> None:
    peak = measure_peak(f'{__name__}:{builder}', False, _RETAINING)
    assert abs(peak.later - peak.resting - _needed(builder, RETAINING)) <= _NUMBERS


@pytest.mark.parametrize('builder', ('joined', 'concatenated'))
def test_what_a_collector_does_not_know_is_predicted_too(builder: str) -> None:
    """Read again where it is not: a late collector hides a peak from Paddle's counters, or makes it higher."""
    needed = _needed(builder, COLLECTING)
    off = lambda peak: abs(peak.above_resting() - needed)
    peak = least_peak(f'{__name__}:{builder}', 0, optimise=False, of=off, mode=_COLLECTING)
    assert 0 <= peak.above_resting(
    ) - needed <= _NUMBERS  # beside two suites two were late in 20 of 20


def test_only_a_later_run_finds_what_such_ops_have() -> None:
    imported = import_program(fingerprint(joined().main))
    tensors, = (v for v in imported.graph.values if v.lasting and v.name.endswith('@JOINED'))
    first, later = (Timeline(imported.graph, runtime, {})
                    for runtime in (COLLECTING.in_first_run(), COLLECTING))
    ops = imported.graph.regions[0].ops
    join = next(at for at, op in enumerate(ops) if imported.graph.ops[op].facts.one_memory)
    had = later.lifetimes.by_region[0][tensors.id]
    assert tensors.id not in first.lifetimes.by_region[0]
    assert had.last == join - 1 and later.evaluate(had.size) == 4 * 64 * 1024 * 4


@pytest.mark.parametrize('mode', (_RETAINING, _COLLECTING, Mode(), Mode(collect=False)), ids=str)
@pytest.mark.parametrize('builder', ('recurrent', 'bidirectional'))
def test_no_run_needs_more_than_is_sure(builder: str, mode: Mode) -> None:
    case = globals()[builder]()
    with executor_mode(mode):
        report = memory_optimize(case.main, fetch_list=list(case.fetch), **_TOLD)
    assert report.changed and not report.unknown_sizes
    peak = measure_peak(f'{__name__}:{builder}', True, mode, options=_TOLD)
    assert peak.above_resting() <= report.sure_bytes


def test_what_such_an_op_has_is_not_emptied() -> None:
    """It would be freed by nobody, and made anew in the next run."""
    case = recurrent()
    with executor_mode(_RETAINING):
        assert memory_optimize(case.main, fetch_list=list(case.fetch), **_TOLD).changed
    graph = import_program(fingerprint(case.main), case.fetch).graph
    had = {graph.values[v].name for op in graph.walk() if op.facts.one_memory for v in op.reads()}
    emptied = {
        graph.values[v].name for op in graph.region_ops(0) if op.kind == RELEASE
        for v in op.writes()
    }
    assert had and emptied and not had & emptied
