"""What is fetched and read again for the gradient is not there twice in later runs, whose executor copies it as soon as it can."""
from __future__ import annotations

from functools import partial

import numpy as np
import paddle
import pytest

from tests.harness import (SEED, Case, Mode, check, fingerprint, fresh_scope, least_peak,
                           measure_peak, new_programs)
from tests.scenarios.common import data, fc, floats, random_feed, train
from transpiler import memory_optimize
from transpiler.backends.paddle2.importer import import_program
from transpiler.ir import UNCOPIED

_BATCH, _WIDTH = 512, 256
_COPY = _BATCH * _WIDTH * 4
_BUILDER = f'{__name__}:fetches_an_activation'
_IN_ORDER = [Mode(order=order) for order in ('serial', 'sequential', 'default')]


def fetches_an_activation() -> Case:
    """Layers of which the first is fetched, long before its gradient reads it again."""
    with new_programs() as (main, startup):
        first = hidden = fc(data('x', -1, _WIDTH), _WIDTH, 'tanh')
        for _ in range(4):
            hidden = paddle.exp(paddle.tanh(fc(hidden, _WIDTH, 'tanh')) * 0.1)
        loss = paddle.mean(fc(hidden, 8))
        train(loss)
    return Case(main, startup, random_feed(x=floats(_BATCH, _WIDTH)), [first.name, loss.name])


def optimized() -> Case:
    case = fetches_an_activation()
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=_BATCH)
    return case


@pytest.mark.parametrize('mode', _IN_ORDER, ids=str)
def test_later_runs_need_no_more_than_the_first(mode: Mode) -> None:
    """The untouched program does, by the copy."""
    options = {'batch_size': _BATCH}
    first = measure_peak(_BUILDER, True, mode=mode, options=options).first
    later = least_peak(_BUILDER, 0, of=lambda peak: peak.later, mode=mode, options=options).later
    assert later < first + _COPY // 2
    if mode.order == 'serial':
        untouched = measure_peak(_BUILDER, False, mode=mode)
        assert untouched.later > untouched.first + _COPY // 2


def test_the_values_are_the_same_in_every_mode() -> None:
    check(fetches_an_activation)


def test_the_program_says_that_one_copy_waits() -> None:
    case = optimized()
    graph = import_program(fingerprint(case.main), case.fetch).graph
    marks = [op for op in graph.region_ops(0) if op.kind == UNCOPIED]
    assert [graph.values[op.operands[0]].name for op in marks] == [case.fetch[0]]
    assert list(graph.region_ops(0))[-1] is marks[0]


def test_a_second_call_changes_nothing() -> None:
    case = optimized()
    before = fingerprint(case.main)
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=_BATCH)
    assert fingerprint(case.main) == before


def test_clones_and_saved_programs_have_the_value(tmp_path: object) -> None:
    """A clone for tests leaves the mark out, with all that comes behind the loss; one that is saved may keep it."""
    case = optimized()
    feed, first = case.feed(0), case.fetch[0]
    clone = case.main.clone(for_test=True)
    with fresh_scope():
        paddle.seed(SEED)
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        run = partial(executor.run, feed=feed, fetch_list=[first])
        expected, = run(clone)
        variables = [case.main.global_block().var(name) for name in ('x', first)]
        paddle.static.save_inference_model(f'{tmp_path}/model',
                                           variables[:1],
                                           variables[1:],
                                           executor,
                                           program=case.main)
        loaded, _, fetched = paddle.static.load_inference_model(f'{tmp_path}/model', executor)
        saved, = executor.run(loaded, feed=feed, fetch_list=fetched)
        trained, = run(case.main)  # last: it updates
    assert expected.shape == (_BATCH, _WIDTH)
    for found in (saved, trained):
        np.testing.assert_array_equal(found, expected)
