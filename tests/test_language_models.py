"""Ids and labels with two open dims each, as language models have them: what is said of them is what is measured."""
from __future__ import annotations

from typing import Any, Dict

import numpy as np
import paddle
import pytest

from tests.harness import Case, Mode, assert_same_bytes, least_peak, new_programs, run_case
from tests.scenarios.common import data, train
from transpiler import MemoryBudgetError, memory_optimize
from transpiler.backends.paddle2.importer import import_program

ORDERED = Mode(order='sequential')
_ROWS, _WORDS, _TOKENS = 4, 256, 500


def _scores() -> Any:
    hidden = paddle.static.nn.embedding(data('ids', -1, -1, dtype='int64'), [_TOKENS, 64])
    for _ in range(4):
        hidden = paddle.static.nn.fc(hidden, 64, num_flatten_dims=2, activation='relu')
    return paddle.static.nn.fc(hidden, _TOKENS, num_flatten_dims=2)


def _model(flat: bool, reshaped: bool) -> Case:
    with new_programs() as (main, startup):
        labels = data('labels', -1, 1, dtype='int64') if flat else data(
            'labels', -1, -1, dtype='int64')
        scores = _scores()
        if flat or reshaped:
            scores = paddle.reshape(scores, [-1, _TOKENS])
            labels = labels if flat else paddle.reshape(labels, [-1])
        else:
            labels = paddle.unsqueeze(labels, -1)
        loss = paddle.mean(paddle.nn.functional.cross_entropy(scores, labels))
        train(loss)
    words = np.random.RandomState(0).randint(0, _TOKENS, [_ROWS, _WORDS])
    fed = {'ids': words, 'labels': words.reshape(-1, 1) if flat else words}
    return Case(main, startup, lambda step: fed, [loss.name])


def padded() -> Case:
    return _model(flat=False, reshaped=False)


def reshaped() -> Case:
    return _model(flat=False, reshaped=True)


def flat() -> Case:
    return _model(flat=True, reshaped=False)


def taught() -> Case:
    """The scores of a teacher, for each word of each row."""
    with new_programs() as (main, startup):
        scores = paddle.reshape(_scores(), [-1, _TOKENS])
        loss = paddle.mean((scores - data('teacher', -1, _TOKENS))**2)
        train(loss)
    random = np.random.RandomState(0)
    fed = {
        'ids': random.randint(0, _TOKENS, [_ROWS, _WORDS]),
        'teacher': random.rand(_ROWS * _WORDS, _TOKENS).astype('float32')
    }
    return Case(main, startup, lambda step: fed, [loss.name])


_BUILDERS = {each.__name__: each for each in (padded, reshaped, flat, taught)}
_HINTS = [('padded', {
    'ids': _ROWS,
    'ids[1]': _WORDS
}), ('padded', {
    'labels': _ROWS,
    'labels[1]': _WORDS
}), ('reshaped', {
    'ids': _ROWS,
    'labels': _ROWS,
    'labels[1]': _WORDS
}), ('flat', {
    'ids': _ROWS,
    'ids[1]': _WORDS,
    'labels': _ROWS * _WORDS
}), ('taught', {
    'ids': _ROWS,
    'ids[1]': _WORDS
})]


@pytest.mark.parametrize('name, hints', _HINTS)
def test_whichever_input_names_the_length_the_peak_is_what_is_said(name: str,
                                                                   hints: Dict[str, int]) -> None:
    case = _BUILDERS[name]()
    report = memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=hints)
    assert report.changed and not report.assumed and not report.unknown_sizes
    peak = least_peak(f'{__name__}:{name}',
                      1.03 * report.needed_bytes,
                      mode=ORDERED,
                      options={'batch_size': hints})
    assert 0.97 * report.needed_bytes <= peak.above_resting() <= 1.03 * report.needed_bytes
    assert report.needed_bytes < report.peak_bytes_before
    assert_same_bytes(run_case(_BUILDERS[name]()), run_case(case))


@pytest.mark.parametrize('name, hints', _HINTS[1:])
def test_the_least_budget_is_kept(name: str, hints: Dict[str, int]) -> None:
    with pytest.raises(MemoryBudgetError) as refused:
        _optimized(name, hints, 1)
    least = refused.value.held_bytes + refused.value.best_bytes
    report = _optimized(name, hints, least)
    options = {'batch_size': hints, 'budget': least}
    peak = least_peak(f'{__name__}:{name}', report.sure_bytes, mode=ORDERED, options=options)
    assert 0.5 * report.sure_bytes < peak.above_resting() <= report.sure_bytes
    assert peak.resting + peak.above_resting() <= least


def _optimized(name: str, hints: Dict[str, int], budget: int) -> Any:
    case = _BUILDERS[name]()
    return memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=hints, budget=budget)


def test_hints_are_for_the_rows_that_an_input_has_and_not_for_others() -> None:
    """Nodes and edges of a graph: those of more inputs are the batch, which took the most of all hints."""
    for nodes, edges in ((200, 5), (5, 200)):
        with new_programs() as (main, _):
            x, target = data('x', -1, 8), data('target', -1, 8)
            start, weight = data('start', -1, dtype='int64'), data('weight', -1, 1)
            sent = paddle.mean(paddle.gather(paddle.static.nn.fc(x, 8), start) * weight)
            loss = sent + paddle.mean((paddle.static.nn.fc(x, 8) - target)**2)
            train(loss)
        hints = {'x': nodes, 'target': nodes, 'start': edges, 'weight': edges}
        report = memory_optimize(main, fetch_list=[loss], batch_size=hints)
        assert sorted(report.dims.values()) == [5, 200] and not report.assumed
        shapes = {
            v.name: v.shape for v in import_program(main.desc.serialize_to_string()).graph.values
        }
        said = {n: shapes[n][0].evaluate(report.dims) for n in hints}
        assert said == hints
